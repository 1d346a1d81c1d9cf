"""The presets of conf/cluster compose, fit each other, and Ray grants what they ask for on a machine of their size."""

from __future__ import annotations

import ast
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from cudal1_ray.actors.config import check_placement
from cudal1_ray.actors.placement import actor_options
from cudal1_ray.config import load_config

pytestmark = pytest.mark.slow

ROLES = ("rollout", "learner", "evaluator", "compiler", "exemplars")


@pytest.mark.parametrize("preset", ["laptop", "one_gpu", "two_gpus", "four_gpus", "multi_node"])
def test_cluster_preset_when_composed_fits(repository, preset):
    assert "# " in (repository / "conf" / "cluster" / f"{preset}.yaml").read_text()
    recipe = "demo" if preset == "laptop" else f"kernelbench_{preset}"
    config = load_config([f"recipe={recipe}", "policy.path=somewhere"])
    check_placement(config.cluster, config.rollout, config.evaluation)
    assert config.evaluation.device == config.rollout.device == ("cpu" if preset == "laptop" else "cuda")
    if preset in ("two_gpus", "four_gpus", "multi_node"):
        assert config.cluster.evaluator.num_gpus == 1 and not config.cluster.shared_gpu
        typed = load_config([f"recipe={recipe}", "policy.path=somewhere", "cluster.evaluator.accelerator_type=A100"])
        assert actor_options(typed.cluster.evaluator)["accelerator_type"] == "A100"
    if preset == "one_gpu":
        roles = [getattr(config.cluster, name) for name in ROLES]
        assert sum(role.count * role.num_gpus for role in roles) <= 1.0
        assert config.rollout.sleep_mode and not config.cluster.evaluate_during_generation


PLACED = """
import ray, sys
from cudal1_ray.actors.placement import actor_options, connect
from cudal1_ray.config import load_config

class Probe:
    def gpus(self):
        return tuple(ray.get_gpu_ids())

preset, gpus = sys.argv[1:]
cluster = load_config([f"cluster={preset}", f"cluster.num_gpus={gpus}", "cluster.object_store_mib=80"]).cluster
connect(cluster)
places, probes = {}, []
for name in ("rollout", "learner", "evaluator"):
    role = getattr(cluster, name)
    actors = [ray.remote(Probe).options(**actor_options(role)).remote() for _ in range(role.count)]
    probes += actors
    places[name] = ray.get([actor.gpus.remote() for actor in actors], timeout=300)
ray.shutdown()
print("places", places)
"""


def test_evaluators_when_placed_by_ray_have_a_gpu_each():
    """Logical GPUs: Ray hands them out by the same rules as real ones. Clusters mostly wait while they start: the two
    do so side by side.
    """
    sizes = {"two_gpus": 2, "four_gpus": 4}  # with one GPU, shares that sum to at most 1 are all there is

    def placed(preset: str) -> dict[str, list[tuple[int, ...]]]:
        command = [sys.executable, "-c", PLACED, preset, str(sizes[preset])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        (line,) = (line for line in done.stdout.splitlines() if line.startswith("places "))
        return ast.literal_eval(line.removeprefix("places "))

    with ThreadPoolExecutor(len(sizes)) as threads:
        places_of = dict(zip(sizes, threads.map(placed, sizes), strict=True))
    for preset, places in places_of.items():
        others = [gpu for name in ("rollout", "learner") for member in places[name] for gpu in member]
        evaluators = [gpu for member in places["evaluator"] for gpu in member]
        assert not set(evaluators) & set(others) and len(set(evaluators)) == len(evaluators)
        if preset == "two_gpus":  # IPC needs engine and learner on one
            assert len(set(others)) == 1
        if preset == "four_gpus":
            assert sorted(others + evaluators) == [0, 1, 2, 3]
