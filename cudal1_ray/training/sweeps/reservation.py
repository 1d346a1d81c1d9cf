"""Room for a job: everything its driver and its actors ask for, set aside on the cluster at once or not at all."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cudal1_ray.actors.config import ClusterConfig, RoleConfig

# What Ray itself asks of a node's accelerator resource for an actor with accelerator_type=.
ACCELERATOR_SHARE = 0.001

Bundle = dict[str, float]


def job_bundles(cluster: ClusterConfig, driver_cpus: float) -> list[Bundle]:
    """Return what each process of a job asks for: the driver first, then every actor of every role."""
    bundles = [{"CPU": driver_cpus}]
    sections = [getattr(cluster, field.name) for field in fields(cluster)]
    for role in (section for section in sections if isinstance(section, RoleConfig)):
        resources = {"CPU": role.num_cpus, "GPU": role.num_gpus}
        if role.accelerator_type:
            resources[f"accelerator_type:{role.accelerator_type}"] = ACCELERATOR_SHARE
        bundles += [dict(resources) for _ in range(role.count)]
    return [
        resources for bundle in bundles if (resources := {key: value for key, value in bundle.items() if value > 0})
    ]


def total(bundles: list[Bundle]) -> Bundle:
    """Return the sum of all bundles."""
    keys = dict.fromkeys(key for bundle in bundles for key in bundle)
    return {key: round(sum(bundle.get(key, 0.0) for bundle in bundles), 4) for key in keys}


class Reservation:
    """A placement group for one job.

    A job that one node can hold keeps it: the actors that the driver creates land in it, replacements of dead ones too.
    A larger one only waits in it until there is room for all of it, and then opens it: Ray would put actors into it
    without regard to whose bundle is whose, and the small ones could be in the way of the large.

    Attributes:
        asked: resources of the whole job.
        one_node: whether one node can hold it.
    """

    def __init__(self, cluster: ClusterConfig, driver_cpus: float):
        bundles = job_bundles(cluster, driver_cpus)
        self.asked = total(bundles)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.one_node = any(all(node.get(key, 0.0) >= value for key, value in self.asked.items()) for node in nodes)
        self._driver_cpus = driver_cpus
        self._group: PlacementGroup = placement_group([self.asked] if self.one_node else bundles, strategy="PACK")

    def ready(self, timeout_s: float) -> bool:
        """Return whether the cluster had room, after at most `timeout_s` seconds."""
        return self._group.wait(timeout_s)

    def open(self) -> Bundle:
        """Let a larger job's actors out onto the cluster; return what the cluster will have left once all of them are
        up.
        """
        left = {key: value for key, value in ray.available_resources().items() if key in ("CPU", "GPU")}
        self.release()
        left["CPU"] = left.get("CPU", 0.0) + self._driver_cpus  # a driver that waits for its actors lends its CPU out
        return left

    def options(self) -> dict[str, Any]:
        """Return the options of the task that is to be the driver."""
        if not self.one_node:
            return {"num_cpus": self._driver_cpus}
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_capture_child_tasks=True)
        return {"num_cpus": self._driver_cpus, "scheduling_strategy": strategy}

    def release(self) -> None:
        """Give the room back; whatever of the job still lives in it is killed."""
        remove_placement_group(self._group)


def inside(cluster: ClusterConfig) -> ClusterConfig:
    """Return the cluster for a one-node job's actors: a scheduling of their own would lead them out of their room."""
    roles = {field.name: getattr(cluster, field.name) for field in fields(cluster)}
    spread = {name: replace(role, scheduling="DEFAULT") for name, role in roles.items() if isinstance(role, RoleConfig)}
    return replace(cluster, **spread)
