"""The parts of the overlapping pipeline that need no actor: what counts, what is too old, what a kill leaves."""

from __future__ import annotations

import pytest

from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.prompting import Answer, Prompt
from cudal1_ray.rollout import Completion
from cudal1_ray.training.in_flight import InFlight
from cudal1_ray.training.preflight import check_overlap
from cudal1_ray.training.quota import Quota
from cudal1_ray.training.reinforcement import within_bound
from cudal1_ray.training.roles import idle_line, idle_over_steps, idle_shares
from cudal1_ray.training.sampling import EvaluatedSample

PROMPTS = [Prompt("a", "do a", ("e1", "e2"), (0.25, 0.5)), Prompt("b", "do b")]


def completion(request_id: str, version: int, segments=()) -> Completion:
    return Completion(request_id, 0, (1, 2, 3), (-0.5, -0.25, -0.125), "text", version, "stop", segments)


def test_quota_when_there_is_no_surplus_counts_everything():
    quota = Quota(groups=2, n=2)
    for key in ("0/0", "1/0", "1/1"):
        assert quota.take(int(key[0]), key) and not quota.full
    assert quota.filled(1) and not quota.filled(0)
    assert quota.take(0, "0/1") and quota.full
    assert quota.chosen == {"0/0", "0/1", "1/0", "1/1"}


def test_quota_when_there_is_a_surplus_counts_the_first_to_finish():
    quota = Quota(groups=2, n=2)  # of three groups, three completions each
    taken = [quota.take(int(key[0]), key) for key in ("0/2", "2/0", "0/0", "0/1", "1/1", "2/2")]
    assert taken == [True, True, True, False, True, True]
    assert quota.full and quota.chosen == {"0/2", "0/0", "2/0", "2/2"}
    assert not quota.take(1, "1/0") and len(quota.chosen) == 4


def test_step_when_in_flight_survives(tmp_path):
    step = InFlight(tmp_path).step("contrastive/7")
    assert step.prompts == [] and step.completions == []
    step.begin(PROMPTS, 1, 0.5)
    step.add(completion("contrastive/7/0/0", 6))
    step.add(completion("contrastive/7/1/0", 7, ((2, 7), (1, 8))))
    (path,) = tmp_path.glob("*")
    path.write_bytes(path.read_bytes() + b'{"completion": {"request_id": "cut sho')  # the kill came here
    again = InFlight(tmp_path).step("contrastive/7")
    assert again.prompts == PROMPTS
    assert again.completions == step.completions  # segments and log-probabilities to the last bit

    assert again.drop_newer(6) == 1
    assert [c.policy_version for c in InFlight(tmp_path).step("contrastive/7").completions] == [6]
    again.begin(PROMPTS, 1, 0.5)  # the same prompts: what there is stays
    assert len(InFlight(tmp_path).step("contrastive/7").completions) == 1
    again.begin(PROMPTS[:1], 1, 0.5)  # other prompts: answers to these ones are of no use
    left = InFlight(tmp_path).step("contrastive/7")
    assert left.prompts == PROMPTS[:1] and left.completions == []


@pytest.mark.parametrize(("n", "temperature", "count"), [(4, 1.0, 1), (2, 1.0, 0), (4, 0.7, 0)])
def test_completions_when_asked_for_in_another_way_are_dropped(tmp_path, n, temperature, count):
    step = InFlight(tmp_path).step("assessment/untrained")
    step.begin(PROMPTS, 4, 1.0)
    step.add(completion("assessment/untrained/0/3", 0))
    again = InFlight(tmp_path).step("assessment/untrained")
    again.begin(PROMPTS, n, temperature)
    assert len(again.completions) == len(InFlight(tmp_path).step("assessment/untrained").completions) == count


def test_steps_when_kept_are_those_to_come_only(tmp_path):
    in_flight = InFlight(tmp_path / "in_flight")
    in_flight.keep(["contrastive/1"])  # nothing is there yet
    for number in (1, 2, 3):
        in_flight.step(f"contrastive/{number}").begin(PROMPTS, 1, 0.5)
    in_flight.keep(["contrastive/2", "contrastive/3"])
    in_flight.forget("contrastive/3")
    in_flight.forget("contrastive/9")
    assert [path.name for path in (tmp_path / "in_flight").iterdir()] == ["contrastive-2.jsonl"]


@pytest.mark.parametrize(("staleness", "versions"), [(0, [4]), (1, [3, 4]), (2, [2, 3, 4])])
def test_samples_when_older_than_the_bound_are_not_trained_on(staleness, versions):
    samples = [
        EvaluatedSample(0, i, PROMPTS[0], (1,), completion(f"x/0/{i}", version), Answer(None, "", "", "no code"), None)
        for i, version in enumerate((1, 2, 3, 4))
    ]
    kept = within_bound(samples, 4, staleness)
    assert [j.completion.policy_version for j in kept] == versions


def test_idle_shares_when_computed_by_hand_are_these():
    busy, members = {"rollout": 4.0, "evaluation": 16.0, "learner": 11.0}, {"rollout": 1, "evaluation": 2, "learner": 1}
    assert idle_shares(busy, 10.0, members) == {
        "rollout": pytest.approx(0.6),
        "evaluation": pytest.approx(0.2),
        "learner": 0.0,  # a clock that ran over is not less than nothing
    }
    rows = [
        {"stage": "contrastive", "step_s": 6.0, "busy_rollout": 3.0, "busy_evaluation": 12.0, "busy_learner": 0.0},
        {"stage": "contrastive", "step_s": 4.0, "busy_rollout": 1.0, "busy_evaluation": 4.0, "busy_learner": 4.0},
        {"stage": "sft", "step_s": 4.0},
    ]
    shares = idle_over_steps(rows, members)
    assert shares == {
        "rollout": pytest.approx(0.6), "evaluation": pytest.approx(0.2), "learner": pytest.approx(0.6)
    }  # fmt: skip
    assert idle_line("contrastive", rows, members) == "contrastive: idle rollout 60%, evaluation 20%, learner 60%"
    assert idle_line("sft", rows, members) == ""
    without_engine = [{"stage": "sft", "step_s": 4.0, "busy_evaluation": 0.0, "busy_learner": 3.0}]
    assert idle_line("sft", without_engine, {"evaluation": 2, "learner": 1}) == "sft: idle evaluation 100%, learner 25%"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["contrastive.staleness=-1"], "contrastive.staleness=-1: must be at least 0"),
        (["contrastive.extra_completions=-2"], "contrastive.extra_completions=-2"),
        (["contrastive.partial_rollouts=true"], "contrastive.staleness=1 or more"),
    ],
)
def test_settings_when_they_cannot_work_together_are_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        load_config(overrides)


def test_roles_when_they_take_turns_cannot_overlap():
    with pytest.raises(UserError, match=r"contrastive.staleness=1: .*cluster.shared_gpu=true"):
        check_overlap(load_config(["recipe=kernelbench_one_gpu", "contrastive.staleness=1"]))
    check_overlap(load_config(["recipe=kernelbench_one_gpu"]))
    for recipe in ("demo", "kernelbench_two_gpus", "kernelbench_four_gpus", "kernelbench_multi_node"):
        check_overlap(load_config([f"recipe={recipe}", "policy.path=somewhere", "contrastive.staleness=1"]))
