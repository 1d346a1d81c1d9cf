"""A module that is one of a run's problems starts from what the run found; the run's folder is only read."""

from __future__ import annotations

import shutil

import pytest
import yaml

from cudal1_ray.checking import ServedExemplars
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, ExemplarsConfig
from cudal1_ray.exemplars.hardware_buffers import insert_measured
from cudal1_ray.problems import ProblemsConfig, load_problems
from cudal1_ray.serving.optimize.known_problems import KnownProblems

PROBLEM, OTHER = load_problems(ProblemsConfig())[:2]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "demo"
    buffer = ExemplarBuffer.open(folder / "exemplars", create=True)
    buffer.insert(Exemplar.new(PROBLEM.problem_id, f"x = {i}", 0.5 + 0.5 * i) for i in range(8))
    buffer.insert([Exemplar.new(PROBLEM.problem_id, "hack = 1", 0.0, reasons=("result_cache",))])
    buffer.insert([Exemplar.new(OTHER.problem_id, "wrong = 1", 0.0, reasons=("wrong_output",))])
    buffer.save()
    (folder / "config.yaml").write_text(
        yaml.safe_dump({"name": "demo", "problems": {"source": "bundled", "limit": None}})
    )
    return folder


def everything(folder) -> dict[str, tuple[float, bytes]]:
    return {str(file): (file.stat().st_mtime_ns, file.read_bytes()) for file in folder.rglob("*") if file.is_file()}


def test_known_problem_when_a_run_has_it_brings_its_fastest_and_other_exemplars(run):
    before = everything(run)
    problems = KnownProblems(str(run), 3, ExemplarsConfig())
    prior = problems.of(f"# mine\n\n{PROBLEM.source}\n")
    assert prior.origin == "demo" and len(prior.exemplars) == 3
    assert prior.exemplars[0].speedup == 4.0 and all(e.speedup > 0 for e in prior.exemplars)
    assert len({e.exemplar_id for e in prior.exemplars}) == 3
    assert prior == problems.of(PROBLEM.source)
    assert problems.of(PROBLEM.source.replace("Model", "Model") + "\nx = 1\n").exemplars == ()
    assert problems.of(OTHER.source).exemplars == ()  # nothing right was found for it
    assert everything(run) == before


def test_known_problem_when_a_run_goes_on_brings_later_exemplars(run):
    problems = KnownProblems(str(run), 1, ExemplarsConfig())
    buffer = ExemplarBuffer.open(run / "exemplars")
    buffer.insert([Exemplar.new(PROBLEM.problem_id, "later = 1", 9.0)])
    buffer.save()
    assert [e.code for e in problems.of(PROBLEM.source).exemplars] == ["later = 1"]


def test_known_problem_when_other_hardware_alone_measured_its_exemplars_brings_those(run):
    insert_measured(run / "exemplars", "a GPU", [Exemplar.new(p.problem_id, "y = 1", 9.0) for p in (PROBLEM, OTHER)])
    problems = KnownProblems(str(run), 1, ExemplarsConfig())
    assert [exemplar.code for exemplar in problems.of(OTHER.source).exemplars] == ["y = 1"]
    assert [exemplar.speedup for exemplar in problems.of(PROBLEM.source).exemplars] == [4.0]


def test_known_problem_when_the_run_withholds_its_fastest_exemplar_brings_the_next(run):
    ServedExemplars(ExemplarBuffer.open(run / "exemplars")).withhold([(PROBLEM.problem_id, "x = 7")])
    prior = KnownProblems(str(run), 8, ExemplarsConfig()).of(PROBLEM.source)
    assert prior.exemplars[0].speedup == 3.5 and "x = 7" not in {exemplar.code for exemplar in prior.exemplars}


def test_known_problems_when_the_run_has_no_exemplars_yet_are_none_and_nothing_is_created(run):
    shutil.rmtree(run / "exemplars")
    assert KnownProblems(str(run), 4, ExemplarsConfig()).of(PROBLEM.source).exemplars == ()
    assert not (run / "exemplars").exists()


def test_known_problems_when_there_is_no_run_are_none_and_a_broken_one_is_named(run, tmp_path):
    assert KnownProblems("", 4, ExemplarsConfig()).of(PROBLEM.source).exemplars == ()
    assert KnownProblems(str(run), 0, ExemplarsConfig()).of(PROBLEM.source).exemplars == ()
    (run / "config.yaml").write_text("problems: {source: folder, path: nowhere}")
    with pytest.raises(UserError, match="known_run.*nowhere"):
        KnownProblems(str(run), 4, ExemplarsConfig())
    for damaged in ("[1", "name: demo", "problems: {levels: all}"):
        (run / "config.yaml").write_text(damaged)
        with pytest.raises(UserError, match="known_run.*restore"):
            KnownProblems(str(run), 4, ExemplarsConfig())
