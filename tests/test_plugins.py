"""Files from outside the package add one of each kind: strategy, algorithm, reward, source of problems, baseline."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import Verdict
from cudal1_ray.problems import Problem, ProblemsConfig, load_problems, select
from cudal1_ray.rewards import RewardsConfig, verdict_reward
from cudal1_ray.rewards import reward as rewards

MODULE = """
from cudal1_ray.exemplars import Draw, register_strategy
from cudal1_ray.learning import Algorithm, register_algorithm
from cudal1_ray.learning.advantages import group_centred
from cudal1_ray.problems import Problem, register_source
from cudal1_ray.rewards import register_reward


def oldest(view, count, rng, config):
    positions = tuple(range(min(count, len(view.speedup))))
    return Draw(positions, tuple(1.0 for _ in positions))


register_strategy("oldest", oldest)
register_algorithm("centred_twice", Algorithm(lambda r, g: 2 * group_centred(r, g)))
register_reward("half", lambda verdict, speedup, config: speedup / 2)
register_source("pairs", lambda config: [Problem(line, f"# {line}", line) for line in open(config.path).read().split()])
"""
BASELINE = "def dress(model):\n    raise RuntimeError('dressed from outside')\n"
SCRIPT = """
from dataclasses import replace
import numpy as np
import ray
from cudal1_ray.actors.evaluation import EvaluatorActor
from cudal1_ray.actors.exemplars import ExemplarActor
from cudal1_ray.actors.member import FleetMember
from cudal1_ray.actors.placement import actor_options, connect
from cudal1_ray.config import load_config
from cudal1_ray.evaluation import Verdict
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, select
from cudal1_ray.problems import ProblemsConfig, load_problems


class Learner(FleetMember):
    def surrogate(self):
        from cudal1_ray.learning.algorithm import get_algorithm
        return get_algorithm("centred_twice").surrogate

    def reward(self, config):
        from cudal1_ray.rewards import verdict_reward
        return verdict_reward(Verdict("p", "accepted", speedup=3.0, credited_speedup=3.0), config)


settings = ["plugins=[my_additions,page_additions]", "exemplars.strategy=oldest", "algorithm.name=centred_twice"]
settings += ["rewards.kind=half", "problems.source=pairs", "problems.path=pairs.txt"]
settings += ["evaluation.against=my_baseline.py", "exemplars.headroom=1"]
config = load_config([*settings, "cluster.object_store_mib=80"])
connect(config.cluster)
options = actor_options(config.cluster.exemplars)
buffer = ray.remote(ExemplarActor).options(**options).remote("exemplars", config.exemplars)
exemplars = [Exemplar.new("p", f"class ModelNew:\\n    value = {i}\\n", 1.0 + i) for i in range(3)]
ray.get(buffer.insert.remote(exemplars))
(selection,) = ray.get(buffer.select.remote(["p"], 1))
print("shown", [exemplar.speedup for exemplar in selection.exemplars])
learner = ray.remote(Learner).options(**options).remote()
print("surrogate", ray.get(learner.surrogate.remote()))
print("reward", ray.get(learner.reward.remote(config.rewards)))
local = ExemplarBuffer()
local.insert(exemplars)
newest = select(local, "p", replace(config.exemplars, strategy="newest"), np.random.default_rng(0))
print("newest", sorted(exemplar.speedup for exemplar in newest.exemplars))
evaluator = ray.remote(EvaluatorActor).options(**options).remote(config.evaluation)
problem = load_problems(ProblemsConfig())[0]
verdict = ray.get(evaluator.evaluate.remote(problem, problem.source.replace("Model", "ModelNew")))
print("baseline", verdict.reasons, verdict.detail)
print("problems", [problem.problem_id for problem in load_problems(config.problems)])
"""


def test_plugin_when_it_cannot_be_imported_is_named():
    with pytest.raises(UserError, match="plugins=no_such_module"):
        load_config(["plugins=[no_such_module]"])


def test_plugin_when_it_exits_is_named_and_the_command_goes_on(tmp_path, monkeypatch):
    (tmp_path / "leaving.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"plugins=leaving: cannot be imported \(SystemExit: 3\)"):
        load_config(["plugins=[leaving]"])


@pytest.mark.parametrize("loaded", [None, ["text"], [Problem("a", "1", "a"), Problem("a", "2", "b")]])
def test_source_when_it_gives_no_problems_or_one_id_twice_is_named(monkeypatch, loaded):
    monkeypatch.setitem(select._sources, "outside", lambda config: loaded)
    with pytest.raises(UserError, match="problems.source=outside: (gives|'a' and 'b' have one problem id)"):
        load_problems(ProblemsConfig(source="outside"))


@pytest.mark.parametrize("reward", [None, "1", float("nan"), float("inf")])
def test_reward_when_it_is_no_finite_number_is_named(monkeypatch, reward):
    monkeypatch.setitem(rewards._rewards, "outside", lambda verdict, speedup, config: reward)
    for verdict in (Verdict.unparsable("p", "no code"), Verdict("p", "accepted", speedup=2.0, credited_speedup=2.0)):
        with pytest.raises(UserError, match="rewards.kind=outside: gives .* it must be a finite number"):
            verdict_reward(verdict, RewardsConfig(kind="outside"))


@pytest.mark.slow
def test_plugin_when_it_registers_names_makes_them_known_in_actors(tmp_path, repository):
    page = (repository / "docs" / "architecture.md").read_text()
    (tmp_path / "page_additions.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    (tmp_path / "my_additions.py").write_text(MODULE)
    (tmp_path / "my_baseline.py").write_text(BASELINE)
    (tmp_path / "pairs.txt").write_text("first second")
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "shown [1.0, 2.0]" in done.stdout and "surrogate token_clip" in done.stdout
    assert "newest [2.0, 3.0]" in done.stdout  # the example of the documentation
    assert "baseline ('reference_error',)" in done.stdout and "dressed from outside" in done.stdout
    assert "reward 1.5" in done.stdout and "problems ['first', 'second']" in done.stdout
