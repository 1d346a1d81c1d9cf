"""Opened problems are read by other evaluators and by later processes."""

from __future__ import annotations

import os

import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem, renamed

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.opening import maker_requests, open_problems
from cudal1_ray.evaluation.opening import store as store_module

pytestmark = pytest.mark.usefixtures("warm_server")

OTHER = renamed("chain").replace("torch.relu(self.a(x))", "self.a(x).relu_()")
WRONG = OTHER.replace("return self.norm(", "return 1.01 * self.norm(")


@pytest.fixture
def config(tmp_path):
    settings = quick_config()
    settings.problem_cache = str(tmp_path / "problems")
    return settings


@pytest.fixture
def opened(monkeypatch):
    """Return the problems that a maker opened, in order."""
    problem_ids: list[str] = []
    function = open_problems.open_problem

    def counted(maker, problem, *args, **kwargs):
        problem_ids.append(problem.problem_id)
        return function(maker, problem, *args, **kwargs)

    monkeypatch.setattr(open_problems, "open_problem", counted)
    return problem_ids


def test_an_opened_problem_when_another_evaluator_asks_is_read_and_evaluates_alike(config, opened):
    with Evaluator(config) as first:
        before = [first.evaluate(problem("chain"), code) for code in (OTHER, WRONG)]
    with Evaluator(config) as second:
        after = [second.evaluate(problem("chain"), code) for code in (OTHER, WRONG)]
    assert opened == ["test/chain"]
    assert [verdict.accepted for verdict in before] == [verdict.accepted for verdict in after] == [True, False]
    assert before[1].reasons == after[1].reasons


def test_an_opened_problem_when_settings_differ_is_opened_again(config, opened):
    with Evaluator(config) as first:
        first.evaluate(problem("chain"), WRONG)
    config.check.rms_tolerance *= 10
    with Evaluator(config) as second:
        second.evaluate(problem("chain"), WRONG)
    config.slots = 3  # the number of evaluators does not change a problem
    with Evaluator(config) as third:
        third.evaluate(problem("chain"), WRONG)
    assert opened == ["test/chain"] * 2


def test_an_opened_problem_when_the_evaluators_code_differs_is_opened_again(config, opened, monkeypatch):
    for code in ("one", "one", "another"):
        monkeypatch.setattr(store_module, "_sources", lambda code=code: code)
        with Evaluator(config) as evaluator:
            evaluator.evaluate(problem("chain"), WRONG)
    assert opened == ["test/chain"] * 2


def test_a_degenerate_problem_when_another_evaluator_asks_is_refused_unopened(config, opened):
    for _ in range(2):
        with Evaluator(config) as evaluator:
            verdict = evaluator.evaluate(problem("constant"), renamed("constant") + "\n\nanother = 1\n")
            assert verdict.reasons == ("degenerate_input",) and verdict.degenerate
    assert opened == ["test/constant"]


def test_a_problem_that_needs_the_device_to_itself_when_it_is_read_waits_for_that(config, tmp_path, monkeypatch):
    monkeypatch.setattr(maker_requests, "needs_all", lambda device, nbytes: True)
    for _ in range(2):
        with Evaluator(config, turns_file=str(tmp_path / "turns")) as evaluator:
            turns, candidate = [], evaluator._turns.candidate
            monkeypatch.setattr(evaluator._turns, "candidate", lambda **how: turns.append(how) or candidate(**how))  # noqa: B023
            assert not evaluator.evaluate(problem("chain"), WRONG).accepted
        assert turns == [{}, {"without_others": True}]


def test_a_cut_off_file_when_it_is_read_counts_as_none(config, opened):
    with Evaluator(config) as first:
        first.evaluate(problem("chain"), WRONG)
    (file,) = os.scandir(config.problem_cache)
    os.truncate(file.path, file.stat().st_size // 2)
    with Evaluator(config) as second:
        assert second.evaluate(problem("chain"), WRONG).reasons
    assert opened == ["test/chain"] * 2


@pytest.mark.parametrize("files", [0, 1])  # for which the folder has room: the second one never fits beside it
def test_a_full_folder_when_another_problem_is_saved_loses_the_oldest(config, monkeypatch, files):
    with Evaluator(config) as evaluator:
        evaluator._problems.session(problem("chain"), has_room=True)
        (file,) = os.scandir(config.problem_cache)
        monkeypatch.setattr(store_module, "_MOST_BYTES", files * file.stat().st_size)
        evaluator._problems.session(problem("softmax"), has_room=True)
    assert file.name not in os.listdir(config.problem_cache) and len(os.listdir(config.problem_cache)) == 1


def test_problem_cache_when_others_may_write_it_is_refused_by_name(config, tmp_path):
    os.mkdir(config.problem_cache, 0o700)
    os.chmod(config.problem_cache, 0o777)
    with pytest.raises(UserError, match=r"evaluation\.problem_cache .* mode 0700"):
        Evaluator(config)


def test_problem_cache_when_candidates_can_read_files_keeps_no_problem(config):
    config.required_sandbox = "seccomp"
    with Evaluator(config) as evaluator:
        evaluator._problems.session(problem("chain"), has_room=True)
    assert not os.path.exists(config.problem_cache)
