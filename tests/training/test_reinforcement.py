"""From verdicts to advantages: what a void evaluation leaves untouched."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from cudal1_ray.evaluation import Verdict
from cudal1_ray.learning import AlgorithmConfig
from cudal1_ray.prompting import Prompt, parse_answer
from cudal1_ray.rewards import RewardsConfig, RewardSmoother
from cudal1_ray.rollout import Completion
from cudal1_ray.training.reinforcement import policy_sequences, without_noise
from cudal1_ray.training.sampling import EvaluatedSample

STEADY, SCATTERED = (2.0,) * 7, (1.0, 3.0) * 4


def evaluated_sample(
    group: int,
    speedup: float,
    buckets: tuple[float, ...] = STEADY,
    reasons: tuple[str, ...] = (),
    copied: bool = False,
    truncated: bool = False,
) -> SimpleNamespace:
    status = "accepted" if speedup else "rejected"
    return SimpleNamespace(
        group=group,
        prompt=SimpleNamespace(problem_id="p"),
        prompt_token_ids=(1, 2),
        completion=SimpleNamespace(token_ids=(3, 4), logprobs=(-0.1, -0.2), policy_version=0),
        verdict=Verdict("p", status, reasons, speedup=speedup, credited_speedup=speedup, bucket_speedups=buckets),
        copied=copied,
        truncated=truncated,
    )


def test_evaluation_when_void_is_neither_rewarded_nor_held_against_a_candidate():
    config, algorithm = RewardsConfig(kind="speedup", robust=True, smoothing=False), AlgorithmConfig()
    others = [
        evaluated_sample(0, 2.0),
        evaluated_sample(0, 0.0),
        evaluated_sample(1, 2.0, (3.0,) * 7),
        evaluated_sample(1, 2.0),
    ]
    rewards, advantages, sequences = policy_sequences(others, config, algorithm, None)
    assert rewards == [2.0, 0.0, 3.0, 2.0] and len(sequences) == 4
    with_void = [others[0], evaluated_sample(0, 2.0, SCATTERED), *others[1:], evaluated_sample(1, 2.0, ())]
    same, with_zeros, unchanged = policy_sequences(with_void, config, algorithm, None)
    assert same == [2.0, None, 0.0, 3.0, 2.0, None]
    assert with_zeros == pytest.approx([advantages[0], 0.0, *advantages[1:], 0.0])
    assert [sequence.advantage for sequence in unchanged] == [sequence.advantage for sequence in sequences]


def test_running_statistics_when_an_evaluation_is_void_leave_it_out():
    config, algorithm = RewardsConfig(kind="speedup", robust=True, smoothing=True), AlgorithmConfig(name="reinforce")
    batch, void = [evaluated_sample(0, 2.0), evaluated_sample(0, 0.0)], evaluated_sample(0, 2.0, SCATTERED)
    smoother, void_smoother = RewardSmoother(config), RewardSmoother(config)
    _, without, _ = policy_sequences(batch, config, algorithm, smoother)
    _, with_void, _ = policy_sequences([void, *batch], config, algorithm, void_smoother)
    assert with_void == [0.0, *without]
    assert policy_sequences([void], config, algorithm, void_smoother) == ([None], [0.0], [])


SPEEDUP = RewardsConfig(kind="speedup")
GRPO = AlgorithmConfig()


@pytest.mark.parametrize("reason", ["evaluator_error", "reference_error", "degenerate_input", "unstable_timing"])
def test_fault_when_not_the_candidates_gets_no_advantage_and_changes_no_other(reason):
    batch = [evaluated_sample(0, 2.0), evaluated_sample(0, 0.0, reasons=("wrong_output",))]
    void = evaluated_sample(0, 0.0, reasons=(reason,))
    rewards, advantages, sequences = policy_sequences([void, *batch], SPEEDUP, GRPO, None)
    assert rewards == [None, 2.0, 0.0] and advantages == [0.0, 1.0, -1.0] and len(sequences) == 2


HALF = "class ModelNew(nn.Module):\n    def forward(self, x):\n        y = x * x"


@pytest.mark.parametrize(
    ("text", "verdict", "finish_reason", "truncated"),
    [
        ("## Performance Analysis\nIt is", Verdict.rejected("p", "unparsable"), "length", True),
        (f"```python\n{HALF} +", Verdict.rejected("p", "unparsable"), "length", True),
        (f"```python\n{HALF}", Verdict.rejected("p", "wrong_structure"), "length", True),
        (f"```python\n{HALF}", Verdict.rejected("p", "wrong_structure"), "stop", False),
        (f"```python\n{HALF}\n        return y", Verdict("p", "accepted", credited_speedup=1.0), "length", False),
        (f"```python\n{HALF}\n```\nThis", Verdict.rejected("p", "wrong_structure"), "length", False),
        (f"```python\n{HALF} +\n```\nThis", Verdict.rejected("p", "unparsable"), "length", False),
    ],
)
def test_completion_when_cut_within_its_code_is_truncated_whatever_became_of_it(
    text, verdict, finish_reason, truncated
):
    completion = Completion("r", 0, (1,), (-0.1,), text, 0, finish_reason)
    sample = EvaluatedSample(0, 0, Prompt("p", "do it"), (1,), completion, parse_answer(text), verdict)
    assert sample.truncated is truncated


def test_completions_when_truncated_are_kept_masked_or_penalised_as_configured():
    batch = [evaluated_sample(0, 2.0), evaluated_sample(0, 0.0, reasons=("unparsable",), truncated=True)]
    for truncated, expected in (("keep", 0.0), ("mask", None), ("penalise", -0.5)):
        rewards, advantages, _ = policy_sequences(batch, RewardsConfig(kind="speedup", truncated=truncated), GRPO, None)
        assert rewards == [2.0, expected]
        assert advantages == ([0.0, 0.0] if truncated == "mask" else [1.0, -1.0])


def test_copy_when_of_an_exemplar_has_no_advantage_and_changes_no_other():
    batch = [evaluated_sample(0, 1.0), evaluated_sample(0, 0.0, reasons=("timeout",))]
    copies = [evaluated_sample(0, 3.0, copied=True), evaluated_sample(0, 0.1, copied=True)]
    for config in (SPEEDUP, RewardsConfig(kind="success")):
        rewards, advantages, sequences = policy_sequences([*copies, *batch], config, GRPO, None)
        assert rewards == ([3.0, 0.1, 1.0, 0.0] if config is SPEEDUP else [1.0, 1.0, 1.0, 0.0])
        assert advantages == [0.0, 0.0, 1.0, -1.0] and len(sequences) == 2
    _, advantages, _ = policy_sequences([*copies, *batch], SPEEDUP, AlgorithmConfig(name="reinforce"), None)
    assert advantages == [0.0, 0.0, 1.0, 0.0]
    assert policy_sequences(copies, SPEEDUP, GRPO, None)[1:] == ([0.0, 0.0], [])


def test_group_when_its_rewards_differ_by_noise_is_a_tie():
    # Noise 0.01 each: a tie below a standard deviation of 0.014. That of 1.00, 1.02 is 0.01; of 1.00, 1.04 it is 0.02.
    assert without_noise([1.0, 1.02, 3.0], [0, 0, 1], [0.01] * 3) == pytest.approx([1.01, 1.01, 3.0])
    assert without_noise([1.0, 1.04], [0, 0], [0.01] * 2) == [1.0, 1.04]
    assert without_noise([0.0, 1.02, 1.0], [0, 0, 0], [0.0, 0.01, 0.01]) == [0.0, 1.02, 1.0]


def test_speedups_when_within_the_noise_teach_nothing_and_a_clear_difference_does():
    _, advantages, _ = policy_sequences([evaluated_sample(0, 1.0), evaluated_sample(0, 1.02)], SPEEDUP, GRPO, None)
    assert advantages == [0.0, 0.0]
    _, advantages, _ = policy_sequences([evaluated_sample(0, 1.0), evaluated_sample(0, 1.2)], SPEEDUP, GRPO, None)
    assert advantages == pytest.approx([-1.0, 1.0])


@pytest.mark.parametrize("own_kernel", [False, True])
def test_staged_rewards_when_speedups_differ_by_noise_are_a_tie(own_kernel):
    staged = RewardsConfig(kind="staged")

    def group(*speedups: float) -> list[SimpleNamespace]:
        samples = [evaluated_sample(0, speedup) for speedup in speedups]
        for sample, speedup in zip(samples, speedups, strict=True):
            interval = {"speedup_low": speedup * 0.99, "speedup_high": speedup * 1.01}
            kernel = {"own_kernel": own_kernel, "own_kernel_share": 0.1 * own_kernel}
            sample.verdict = dataclasses.replace(sample.verdict, **interval, **kernel)
        return samples

    assert policy_sequences(group(1.5, 1.51), staged, GRPO, None)[1] == [0.0, 0.0]
    assert policy_sequences(group(1.5, 1.6), staged, GRPO, None)[1] == pytest.approx([-1.0, 1.0])
