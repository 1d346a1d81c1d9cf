"""The population simulator: its worlds hold what was recorded, its policy follows its rule, and strategies differ."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.common.results import latest_result, read_result, write_result
from benchmarks.exemplars.simulation.policy import COPYIST, PolicyRule, PromptExemplars, reader, write
from benchmarks.exemplars.simulation.population import simulate
from benchmarks.exemplars.simulation.recorded import Recorded, RecordedProblem, read_recorded
from benchmarks.exemplars.simulation.world import WorldConfig, build_world
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import ExemplarsConfig
from cudal1_ray.exemplars.strategies import BUNDLED

SPEEDS = ((0.5, 0.9, 1.4, 4.0, 7.0), (0.8, 1.0, 2.0, 2.5), (0.4, 3.0, 11.0))
QUIET = dataclasses.replace(COPYIST, drop=0.0, borrow=0.0, keep_variant=1.0)


def recorded(noise=0.0, failure_rate=0.2, reasons=None) -> Recorded:
    reasons = reasons or {"runtime_error": 3, "wrong_output": 1}
    problems = [RecordedProblem(f"p{i}", speeds, failure_rate, reasons) for i, speeds in enumerate(SPEEDS)]
    return Recorded(tuple(problems), noise, 0.6, 2.0, "made by hand")


def world(failure_rate=0.0, noise=0.0, **config):
    return build_world(recorded(noise, failure_rate), WorldConfig(**{"problems": 30, "techniques": 5, **config}))


def prompt_of(count, masks, speedups) -> PromptExemplars:
    """Return the same prompt for `count` problems."""
    masks = np.tile(masks, (count, 1))
    return PromptExemplars(masks, np.ones_like(masks), np.tile(np.array(speedups, np.float64), (count, 1)))


def test_recorded_verdicts_when_written_to_a_file_are_read_back(tmp_path):
    path = tmp_path / "recorded.json"
    write_result(path, recorded().to_dict(), {})
    assert read_recorded(path) == recorded()
    assert read_recorded(latest_result("recorded-candidates")).problems
    path.write_text('{"problems": []}')
    for broken in (path, tmp_path / "none.json"):
        with pytest.raises(UserError, match=str(broken)):
            read_recorded(broken)


def test_world_when_built_spans_what_was_recorded():
    simulated = world(interference=0.3)
    for i, identity in enumerate(simulated.problem_ids):
        speeds = SPEEDS[int(identity[1])]
        assert np.exp(simulated.log_speedup[i, 0]) == pytest.approx(speeds[0])
        assert np.exp(simulated.log_speedup[i].max()) == pytest.approx(speeds[-1])
    assert {identity[:2] for identity in simulated.problem_ids} == {"p0", "p1", "p2"}
    assert (simulated.best_log == simulated.log_speedup.max(axis=1)).all()  # without noise, variants are alike


def test_techniques_when_they_interfere_do_not_add_up():
    single = 1 << np.arange(5)
    free, bound = world(interference=0.0), world(interference=1.0)
    gains = free.log_speedup[:, single] - free.log_speedup[:, :1]
    assert free.log_speedup[:, -1] - free.log_speedup[:, 0] == pytest.approx(gains.sum(axis=1))
    gains = bound.log_speedup[:, single] - bound.log_speedup[:, :1]
    both = bound.log_speedup[:, 0b11] - bound.log_speedup[:, 0]
    assert both == pytest.approx(gains[:, :2].min(axis=1))


def test_world_when_built_with_the_same_seed_is_the_same():
    assert (world().ease == world().ease).all()
    assert not (world().ease == world(seed=2).ease).all()
    problem = RecordedProblem("p", (1.0, 1.0), 0.0, {})
    with pytest.raises(UserError, match="made by hand"):
        build_world(dataclasses.replace(recorded(), problems=(problem,)), WorldConfig(problems=1))


def test_sketches_when_sets_are_similar_are_similar():
    simulated = world(techniques=8)
    differing = np.bitwise_count(simulated.sketch[:, 0b11111111] ^ simulated.sketch[:, 0b11111110]).mean()
    assert differing < np.bitwise_count(simulated.sketch[:, 0b11111111] ^ simulated.sketch[:, 0]).mean() / 2
    assert (simulated.length[:, 0b11] > simulated.length[:, 0b1]).all()


@pytest.mark.parametrize("exponent", [0.0, 2.0])
def test_start_of_an_answer_when_exemplars_are_accepted_follows_their_speedups(exponent):
    simulated = world(problems=200, ease=(1e-12, 1e-11))
    rule = dataclasses.replace(QUIET, speed_exponent=exponent)
    prompt = prompt_of(200, [0b1, 0b10, -1], [1.0, 3.0, 0.0])
    answers = write(simulated, rule, prompt, 50, np.random.default_rng(1))
    assert set(np.unique(answers.masks)) == {0b1, 0b10} and answers.copies.all() and (answers.variants == 1).all()
    assert (answers.masks == 0b10).mean() == pytest.approx(3.0**exponent / (1.0 + 3.0**exponent), abs=0.02)


def test_start_of_an_answer_when_no_exemplar_is_accepted_is_the_reference():
    simulated = world(problems=500, ease=(0.1, 0.1 + 1e-9))
    for prompt in (prompt_of(500, [-1], [0.0]), prompt_of(500, [0b11], [0.0])):
        answers = write(simulated, QUIET, prompt, 40, np.random.default_rng(1))
        assert not answers.copies.any()
        assert np.bitwise_count(answers.masks).mean() == pytest.approx(0.5, abs=0.02)  # 5 techniques, 0.1 each


def test_techniques_when_answers_are_drawn_are_lost_borrowed_and_discovered_at_the_rules_rates():
    simulated = world(problems=2000, ease=(0.03, 0.03 + 1e-9))
    rule = PolicyRule("test", 30.0, explained=0.5, inspiration=2.0, heed=0.0, drop=0.2, borrow=0.3)
    prompt = prompt_of(2000, [0b00101, 0b00011], [1.0, 4.0])  # contrast 0.75; the second is started from
    masks = write(simulated, rule, prompt, 40, np.random.default_rng(1)).masks
    chance = 0.03 * (1.0 + 2.0 * 0.75)
    expected = (0.8, 1.0 - 0.2 * (1.0 - 0.5 * 0.75), 1.0 - (1.0 - chance) * (1.0 - 0.3), chance, chance)
    assert [(masks >> t & 1).mean() for t in range(5)] == pytest.approx(expected, abs=0.01)


def test_failures_when_answers_are_drawn_come_at_the_recorded_rate_and_can_be_heeded():
    simulated = world(failure_rate=0.4, problems=2000, ease=(0.5, 0.5 + 1e-9))
    heeding = dataclasses.replace(QUIET, heed=0.5)
    prompt = prompt_of(2000, [0b1, 0b10], [1.0, 0.0])  # the second failed
    answers = write(simulated, heeding, prompt, 20, np.random.default_rng(1))
    tried = answers.masks & 0b10 > 0
    assert 1.0 - answers.accepted[tried].mean() == pytest.approx(0.2, abs=0.02)
    assert 1.0 - answers.accepted[~tried].mean() == pytest.approx(0.4, abs=0.02)


def test_contrast_when_some_exemplars_failed_is_of_accepted_ones_only():
    assert prompt_of(2, [1, 2, -1], [1.0, 4.0, 0.0]).contrast() == pytest.approx([0.75, 0.75])
    assert prompt_of(2, [1, 2], [3.0, 0.0]).contrast().tolist() == [0.0, 0.0]
    assert prompt_of(2, [-1], [0.0]).contrast().tolist() == [0.0, 0.0]


@pytest.mark.parametrize("strategy", sorted(BUNDLED))
def test_simulation_when_run_covers_every_strategy(strategy):
    simulated = world(failure_rate=0.2, noise=0.05)
    config = ExemplarsConfig(strategy=strategy, count=0 if strategy == "none" else 2)
    outcome = simulate(simulated, config, reader(2.0), rounds=5, writes=3)
    again = simulate(simulated, config, reader(2.0), rounds=5, writes=3)
    start = simulate(simulated, ExemplarsConfig(strategy="none", count=0), COPYIST, rounds=1, writes=3).best_log[:, 0]
    assert (outcome.best_log == again.best_log).all() and (outcome.best_log[:, 0] == start).all()
    assert outcome.best_log.shape == (30, 6) and len(outcome.written_log) == len(outcome.contrast) == 5
    assert (outcome.shown > 0) == (strategy != "none") and outcome.shown <= 2
    assert 1 <= outcome.distinct.mean() <= 18


def test_best_speedup_when_rounds_go_on_never_falls_and_never_beats_the_world():
    outcome = simulate(world(failure_rate=0.2), ExemplarsConfig(strategy="top_k"), reader(2.0), rounds=8)
    accepted = outcome.best_log[:, :1] > np.log(0.11)  # before the first accepted one, the best counts as a failure
    assert (np.diff(outcome.best_log, axis=1) >= 0.0)[accepted[:, 0]].all()
    assert (outcome.regret >= -1e-12).all()


def test_policy_when_it_starts_from_exemplars_gains_from_them():
    simulated = world(problems=40, techniques=8)
    best = {
        name: simulate(simulated, ExemplarsConfig(strategy=name), reader(3.0), rounds=12).best_log[:, -1].mean()
        for name in ("none", "uniform", "top_k")
    }
    assert best["none"] < best["uniform"] < best["top_k"]


def test_completion_when_it_holds_no_candidate_makes_no_exemplar():
    problem = RecordedProblem("p", SPEEDS[0], 1.0, {"unparsable": 1})
    simulated = build_world(dataclasses.replace(recorded(), problems=(problem,)), WorldConfig(problems=5, techniques=3))
    outcome = simulate(simulated, ExemplarsConfig(strategy="failures_included"), COPYIST, rounds=3)
    assert outcome.shown == 0.0 and outcome.distinct.tolist() == [0.0] * 5


def test_simulation_when_the_strategy_is_unknown_names_it():
    with pytest.raises(UserError, match="no_such"):
        simulate(world(), ExemplarsConfig(strategy="no_such"), COPYIST)


def test_population_command_when_run_compares_all_strategies_and_fills_its_section(tmp_path, monkeypatch):
    from benchmarks.exemplars import population

    page, out, source = tmp_path / "page.md", tmp_path / "out.json", tmp_path / "recorded.json"
    page.write_text("# Page\n<!-- population simulation: begin -->\n<!-- population simulation: end -->\n")
    write_result(source, recorded(noise=0.05).to_dict(), {})
    files = ["--recorded", str(source), "--out", str(out), "--docs", str(page)]
    for more in (["--problems", "8", "--rounds", "3"], ["--write-docs"]):
        monkeypatch.setattr("sys.argv", ["population.py", *files, *more])
        population.main()
    content = read_result(out)
    result = content["metrics"]
    assert [rule["name"] for rule in content["configuration"]["rules"]] == list(result["settings"])
    for strategies in result["settings"].values():
        assert set(strategies) == set(BUNDLED) and strategies["bucket"]["against_bucket"] == 1.0
        reached = [strategy["best"] for strategy in strategies.values()]
        assert reached == sorted(reached, reverse=True) and reached[0] <= result["best_there_is"]
    text = page.read_text()
    assert all(f"| {name} |" in text for name in BUNDLED) and all(rule in text for rule in result["settings"])
    assert "made by hand" in text  # where the verdicts come from
    assert (tmp_path / "population.svg").read_text().count("shinka_weighted") == 2
