"""A module from outside the package adds a reward, a strategy and an algorithm; actors of Ray know them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError

MODULE = """
from cudal1_ray.exemplars import Draw, register_strategy
from cudal1_ray.learning import Algorithm, register_algorithm
from cudal1_ray.learning.advantages import group_centred
from cudal1_ray.rewards import register_reward


def oldest(view, count, rng, config):
    positions = tuple(range(min(count, len(view.speedup))))
    return Draw(positions, tuple(1.0 for _ in positions))


register_strategy("oldest", oldest)
register_algorithm("centred_twice", Algorithm(lambda r, g: 2 * group_centred(r, g)))
register_reward("half", lambda verdict, speedup, config: speedup / 2)
"""
SCRIPT = """
import ray
from cudal1_ray.actors.exemplars import ExemplarActor
from cudal1_ray.actors.member import FleetMember
from cudal1_ray.actors.placement import actor_options, connect
from cudal1_ray.config import load_config
from cudal1_ray.exemplars import Exemplar


class Learner(FleetMember):
    def surrogate(self):
        from cudal1_ray.learning.algorithm import get_algorithm
        return get_algorithm("centred_twice").surrogate


settings = ["plugins=[my_additions]", "exemplars.strategy=oldest", "algorithm.name=centred_twice", "rewards.kind=half"]
config = load_config([*settings, "cluster.object_store_mib=80"])
connect(config.cluster)
options = actor_options(config.cluster.exemplars)
buffer = ray.remote(ExemplarActor).options(**options).remote("exemplars", config.exemplars)
found = [Exemplar.new("p", f"class ModelNew:\\n    value = {i}\\n", 1.0 + i) for i in range(3)]
ray.get(buffer.insert.remote(found))
(selection,) = ray.get(buffer.select.remote(["p"], 1))
print("shown", [one.speedup for one in selection.exemplars])
print("surrogate", ray.get(ray.remote(Learner).options(**options).remote().surrogate.remote()))
"""


def test_a_module_that_cannot_be_imported_is_named():
    with pytest.raises(UserError, match="plugins=no_such_module"):
        load_config(["plugins=[no_such_module]"])


@pytest.mark.slow
def test_what_a_plugin_registers_is_known_in_actors(tmp_path):
    (tmp_path / "my_additions.py").write_text(MODULE)
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "shown [1.0, 2.0]" in done.stdout and "surrogate token_clip" in done.stdout
