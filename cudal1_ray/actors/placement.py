"""Which Ray the run lives on, and what each role's actors ask of it."""

from __future__ import annotations

import os
from typing import Any

import ray

from cudal1_ray.actors.config import ClusterConfig, RoleConfig
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.rollout import RolloutConfig

SCHEDULING = ("DEFAULT", "SPREAD")


def connect(cluster: ClusterConfig) -> None:
    """Joins the configured Ray cluster, or starts a private one that ends with this process.

    Raises:
        UserError: when `cluster.address` answers nobody.
    """
    if ray.is_initialized():
        return
    # Ray's own log lines would break the live progress; errors still come through as exceptions.
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if cluster.address:
        try:
            ray.init(address=cluster.address, **quiet)
        except (ConnectionError, ValueError) as error:
            raise UserError(
                f"cluster.address={cluster.address}: no Ray cluster answers there ({error}); "
                "start one, or set cluster.address=null to run on this machine"
            ) from None
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(
        address="local",  # a cluster that somebody else started on this machine is none of ours
        num_cpus=cluster.num_cpus,
        num_gpus=cluster.num_gpus,
        object_store_memory=cluster.object_store_mib << 20,
        include_dashboard=False,
        **quiet,
    )


def actor_options(role: RoleConfig, env: dict[str, str] | None = None) -> dict[str, Any]:
    """`ActorClass.options(**...)` for one member of a role."""
    threads = str(role.threads)
    options: dict[str, Any] = {
        "num_cpus": role.num_cpus,
        "num_gpus": role.num_gpus,
        "max_restarts": 0,  # a fleet replaces its dead itself: it must bring them up to date first
        "runtime_env": {"env_vars": {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **(env or {})}},
    }
    if role.scheduling != "DEFAULT":
        options["scheduling_strategy"] = role.scheduling
    if role.accelerator_type:
        options["accelerator_type"] = role.accelerator_type
    return options


def check_placement(cluster: ClusterConfig, rollout: RolloutConfig, evaluation: EvaluationConfig) -> None:
    """Checks that the roles' GPUs fit what they do with them.

    Raises:
        UserError: naming the field and what it takes.
    """
    for name in ("rollout", "evaluator", "compiler", "exemplars", "learner"):
        role: RoleConfig = getattr(cluster, name)
        if role.count < 1:
            raise UserError(f"cluster.{name}.count={role.count}: must be at least 1")
        if role.scheduling not in SCHEDULING:
            raise UserError(f"cluster.{name}.scheduling={role.scheduling}: must be one of {', '.join(SCHEDULING)}")
        if role.num_gpus > 1 and role.num_gpus % 1:
            raise UserError(f"cluster.{name}.num_gpus={role.num_gpus:g}: above 1 it must be a whole number")
    engine, evaluator = cluster.rollout, cluster.evaluator
    if rollout.device == "cuda" and rollout.tensor_parallel > max(1, engine.num_gpus):
        raise UserError(
            f"cluster.rollout.num_gpus={engine.num_gpus:g}: an engine with rollout.tensor_parallel="
            f"{rollout.tensor_parallel} needs as many GPUs"
        )
    if evaluation.device == "cuda" and cluster.evaluate_during_generation and evaluator.num_gpus < 1:
        raise UserError(
            f"cluster.evaluator.num_gpus={evaluator.num_gpus:g}: an evaluator must own its GPU, or it measures others' "
            "work; set it to 1, or cluster.evaluate_during_generation=false where there is only one GPU"
        )
    if cluster.shared_gpu and cluster.evaluate_during_generation:
        raise UserError("cluster.shared_gpu=true: set cluster.evaluate_during_generation=false, the GPU is one")
