"""Run by test_local.py on a cluster of three nodes on one machine: roles land where their accelerator type is.

A job of a sweep gets its room, its actors live in it, and the next job waits until it is given back.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace

import ray

from cudal1_ray.actors.config import ClusterConfig, RoleConfig
from cudal1_ray.actors.placement import actor_options, connect
from cudal1_ray.training.sweeps.reservation import Reservation, inside

DRIVER_CPUS = 0.5


class Where:
    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()


@ray.remote(max_calls=1)
def drive(cluster: ClusterConfig) -> dict[str, list[str]]:
    """Start an actor for every member of every role, as a run does, and return on which nodes they live."""
    nodes = {}
    kept = []
    for name in ("learner", "rollout", "evaluator", "compiler", "exemplars"):
        role = getattr(cluster, name)
        actors = [ray.remote(Where).options(**actor_options(role)).remote() for _ in range(role.count)]
        nodes[name] = ray.get([actor.node.remote() for actor in actors], timeout=300)
        kept += actors
    return nodes


def cluster(accelerator_type: str) -> ClusterConfig:
    small = RoleConfig(num_cpus=0.5, scheduling="SPREAD")
    evaluator = RoleConfig(num_cpus=0.5, num_gpus=1, accelerator_type=accelerator_type)
    return ClusterConfig(
        address="auto", rollout=small, learner=small, compiler=small, exemplars=small, evaluator=evaluator
    )


def main() -> None:
    connect(cluster("A100"))
    nodes = {node["NodeID"]: node["Resources"] for node in ray.nodes()}
    types = {
        node: next((key.split(":")[1] for key in resources if key.startswith("accelerator_type:")), "none")
        for node, resources in nodes.items()
    }
    placed = {}
    for kind in ("A100", "H100"):
        room = Reservation(cluster(kind), DRIVER_CPUS)
        assert room.one_node and room.ready(30)
        node_lists = ray.get(drive.options(**room.options()).remote(inside(cluster(kind))), timeout=400)
        placed[kind] = {name: [types[node] for node in on] for name, on in node_lists.items()}
        room.release()
    larger = replace(
        cluster("H100"), rollout=RoleConfig(count=2, num_cpus=2), compiler=RoleConfig(count=4, num_cpus=0.5)
    )
    room = Reservation(larger, DRIVER_CPUS)
    assert not room.one_node and room.ready(30)
    left = room.open()
    driver = drive.options(**room.options()).remote(larger)
    node_lists = ray.get(driver, timeout=400)
    placed["larger"] = {name: [types[node] for node in on] for name, on in node_lists.items()}
    first = Reservation(cluster("A100"), DRIVER_CPUS)
    assert first.ready(30)
    second = Reservation(cluster("A100"), DRIVER_CPUS)  # the only A100 is taken
    waited = not second.ready(1)
    first.release()
    report = {"placed": placed, "left": left, "waited": waited, "then": second.ready(30)}
    print(json.dumps({**report, "types": sorted(types.values())}))
    second.release()


if __name__ == "__main__":
    assert os.environ["RAY_ADDRESS"]
    main()
