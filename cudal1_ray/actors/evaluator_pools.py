"""Evaluators over a Ray cluster, in pools: one for each accelerator type that candidates are to be measured on."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cudal1_ray.actors.config import ClusterConfig, RoleConfig
from cudal1_ray.actors.confirmations import config_of_members
from cudal1_ray.actors.evaluation import EvaluatorActor
from cudal1_ray.actors.evaluation_queue import EvaluationQueue
from cudal1_ray.actors.fleet import Fleet, FleetLost
from cudal1_ray.actors.placement import actor_options, check_answers, connect
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.evaluation.scrutiny.confirmation import BestSpeedups
from cudal1_ray.problems import Problem

Pairs = Iterable[tuple[str, Problem, str]]  # id, problem, the candidate's code
# Prefix of Ray's resource of a node that has this type.
TYPE = "accelerator_type:"
POLL_S = 0.1


@dataclass(frozen=True)
class Pool:
    """The evaluators of one accelerator type; None takes any.

    Attributes:
        role: as many members as there are devices, asking for one each.
        nodes: a node id for each member; empty where Ray finds places by itself, since a GPU has one owner.
    """

    accelerator_type: str | None
    role: RoleConfig
    nodes: tuple[str, ...] = ()

    def start(self, evaluation: EvaluationConfig, max_replacements: int) -> Fleet:
        """Start the members; `Fleet.wait_until_ready` waits for them."""
        config = config_of_members(evaluation, self.role.count)

        def member(number: int) -> ray.actor.ActorHandle:
            options = actor_options(self.role)
            if self.nodes:  # soft: where a node is lost, another of the type takes over
                node = self.nodes[number % len(self.nodes)]
                options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
            return ray.remote(EvaluatorActor).options(**options).remote(config)

        name = f"evaluator on {self.accelerator_type}" if self.accelerator_type else "evaluator"
        return Fleet(name, member, self.role, max_replacements)


def make_pool(
    accelerator_type: str | None, device: str, cluster: ClusterConfig, nodes: Sequence[Mapping[str, Any]]
) -> Pool:
    """Return a pool of an evaluator on every GPU of the type; for device cpu on every node of it, since a node's would
    take turns.

    Args:
        nodes: as `ray.nodes()` lists them.

    Raises:
        UserError: when no node has the device.
    """
    alive = [node for node in nodes if node["Alive"]]
    typed = [node for node in alive if not accelerator_type or node["Resources"].get(TYPE + accelerator_type)]
    role = replace(cluster.evaluator, accelerator_type=accelerator_type)
    if device == "cpu" and typed:
        return Pool(accelerator_type, replace(role, count=len(typed), num_gpus=0), tuple(n["NodeID"] for n in typed))
    gpus = 0 if device == "cpu" else sum(int(node["Resources"].get("GPU", 0)) for node in typed)
    if gpus:
        return Pool(accelerator_type, replace(role, count=gpus, num_gpus=1))
    what = "is" if device == "cpu" else "has a GPU"
    kind = f" of type {accelerator_type}" if accelerator_type else ""
    types = sorted({key.removeprefix(TYPE) for node in alive for key in node["Resources"] if key.startswith(TYPE)})
    raise UserError(
        f"--device {device}: no node of the Ray cluster at {cluster.address} {what}{kind}; "
        f"types there: {', '.join(types) or 'none'}"
    )


def evaluate_on_cluster(
    pairs: Pairs, evaluation: EvaluationConfig, cluster: ClusterConfig, best: BestSpeedups | None = None
) -> Iterator[tuple[str, Verdict]]:
    """Yield (id, verdict) of every pair, in the order in which they are ready, over the cluster at `cluster.address`:
    an evaluator on every GPU of the role's type, or on every node for device cpu. Each is held against the best of its
    problem so far, as `best` knows it, and as those before it have shown.

    Raises:
        UserError: when no cluster answers, none of its nodes has the device, or its evaluators cannot go on.
    """
    kind = cluster.evaluator.accelerator_type
    for _, identity, verdict in _evaluate({kind: pairs}, evaluation, cluster, {kind: best or BestSpeedups()}):
        yield identity, verdict


def evaluate_on_types(
    work: Mapping[str, Pairs], evaluation: EvaluationConfig, cluster: ClusterConfig, best: Mapping[str, BestSpeedups]
) -> Generator[tuple[str, str, Verdict], None, None]:
    """Yield (accelerator type, id, verdict) of the pairs of every type, measured on that type; all pools work side by
    side. `best`: for every type, as for `evaluate_on_cluster`.

    Raises:
        UserError: as `evaluate_on_cluster`, and before anything is evaluated when the cluster lacks one of the types.
    """
    for kind, identity, verdict in _evaluate(work, evaluation, cluster, best):
        yield str(kind), identity, verdict


def _evaluate(
    work: Mapping[Any, Pairs], evaluation: EvaluationConfig, cluster: ClusterConfig, best: Mapping[Any, BestSpeedups]
) -> Iterator[tuple[str | None, str, Verdict]]:
    if cluster.address:
        check_answers(cluster.address, "--ray ")
    connect(cluster, "--ray ")
    nodes = ray.nodes()
    pools = [make_pool(kind, evaluation.device, cluster, nodes) for kind in work]
    fleets: list[Fleet] = []
    try:
        for pool in pools:
            fleets.append(pool.start(evaluation, cluster.max_replacements))
        for fleet in fleets:
            fleet.wait_until_ready()
        queues = {}
        for fleet, (kind, pairs) in zip(fleets, work.items(), strict=True):
            queues[kind] = EvaluationQueue(fleet, evaluation, best=best[kind])
            for identity, problem, code in pairs:
                queues[kind].submit(identity, problem, code)
        while busy := [kind for kind, queue in queues.items() if queue.outstanding]:
            for kind in busy:
                for done in queues[kind].collect(timeout_s=POLL_S / len(busy)):
                    yield kind, done.work_id, done.value
    except FleetLost as error:
        raise UserError(f"--ray {cluster.address}: {error}; the same command goes on from here") from None
    finally:
        for fleet in fleets:
            fleet.stop()
