"""Which Ray the run lives on, and what each role's actors ask of it."""

from __future__ import annotations

import os
from typing import Any

import ray

from cudal1_ray.actors.config import ClusterConfig, RoleConfig
from cudal1_ray.errors import UserError


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
        num_cpus=cluster.num_cpus,
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
    if role.accelerator_type:
        options["accelerator_type"] = role.accelerator_type
    return options
