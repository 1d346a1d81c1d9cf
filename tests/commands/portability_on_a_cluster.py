"""Run by test_portability.py on a cluster of three nodes on one machine, in the folder of a manifest."""

from __future__ import annotations

import json
from pathlib import Path

import ray

from cudal1_ray.actors.config import ClusterConfig, RoleConfig
from cudal1_ray.actors.evaluator_pools import TYPE, make_pool
from cudal1_ray.actors.placement import connect
from cudal1_ray.cli import main
from cudal1_ray.evaluation import EvaluationConfig

QUICK = [f"evaluation.timing.{key}" for key in ("budget_s=0.3", "contestants=2", "min_pairs=6", "half_width=0.1")]
MANIFEST = ["evaluate", "--manifest", "pairs.jsonl", "--out", "portability", *QUICK, "--ray"]


def node_of(actor: object) -> str:
    return ray.get_runtime_context().get_node_id()


def placed() -> dict[str, list[str]]:
    """Return for each type the types of the nodes that its evaluators live on."""
    cluster = ClusterConfig(address="auto", evaluator=RoleConfig(num_cpus=0.5, start_timeout_s=200))
    connect(cluster)
    types = {
        node["NodeID"]: next((key.removeprefix(TYPE) for key in node["Resources"] if key.startswith(TYPE)), "none")
        for node in ray.nodes()
    }
    nodes = {}
    for kind in ("A100", "H100"):
        fleet = make_pool(kind, "cpu", cluster, ray.nodes()).start(EvaluationConfig(), max_replacements=0)
        fleet.wait_until_ready()
        handles = [fleet.handle(member) for member in fleet.members]
        nodes[kind] = [types[node] for node in ray.get([actor.apply.remote(node_of) for actor in handles], timeout=120)]
        fleet.stop()
    ray.shutdown()
    return nodes


if __name__ == "__main__":
    said = {"placed": placed()}
    codes = [main([*MANIFEST, "--on", "A100", "--on", "B200"])]
    ray.shutdown()
    codes.append(main([*MANIFEST, "--on", "A100"]))
    ray.shutdown()
    before = Path("portability/A100.jsonl").read_text()
    codes.append(main([*MANIFEST, "--on", "A100,H100"]))
    print(json.dumps({**said, "codes": codes, "before": before}))
