"""Which Ray the run lives on, and what each role's actors ask of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import ray
from ray._private import parameter  # `_lean_node`: `ray.init` takes none of what it sets
from ray._private.node import Node  # `_lean_node`: nothing public leaves its server out
from ray._private.services import canonicalize_bootstrap_address  # what "auto" is: Ray exports no other way to ask
from ray.job_config import JobConfig

from cudal1_ray.actors.config import ROLES, ClusterConfig, RoleConfig
from cudal1_ray.actors.process_group import separate_group
from cudal1_ray.errors import UserError, first_line
from cudal1_ray.plugins import plugin_environment

KNOCK_S = 5.0


def connect(cluster: ClusterConfig, setting: str = "cluster.address=") -> None:
    """Join the configured Ray cluster, or start a private one that ends with this process.

    `setting`: what the user gave the address with, for the message.

    Raises:
        UserError: when no cluster answers at `cluster.address`, or Ray does not start here.
    """
    if ray.is_initialized():
        return
    # Ray's own log lines would break the live progress; errors still come through as exceptions.
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    # Ray puts the current folder first on its workers' path, where a file named like a package's optional module, such
    # as h2.py, is imported in its place. The job of a client has no folder; plugins look there themselves.
    options["job_config"] = JobConfig(_client_job=True)
    if cluster.address:
        check_answers(cluster.address, setting)
        try:
            ray.init(address=cluster.address, **options)
        except (ConnectionError, ValueError) as error:
            raise _no_answer(cluster.address, setting, error) from None
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # No workers for tasks, of which Ray would start one per core: there are only actors, each with its own process.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    try:
        with separate_group(), _lean_node():
            ray.init(
                address="local",  # a cluster that another user started on this machine is not joined
                num_cpus=cluster.num_cpus,
                num_gpus=cluster.num_gpus,
                object_store_memory=cluster.object_store_mib << 20,
                include_dashboard=False,
                **options,
            )
    except Exception as error:  # Ray raises plain ones, for amounts that it does not take among others
        amounts = {key: getattr(cluster, key) for key in ("num_cpus", "num_gpus", "object_store_mib")}
        prefix = setting.removesuffix("address=")
        settings = ", ".join(f"{prefix}{key}={value}" for key, value in amounts.items() if value is not None)
        raise UserError(f"{settings}: Ray does not start here with them ({first_line(error)})") from error


@contextmanager
def _lean_node() -> Iterator[None]:
    """Let `ray.init` start a node without what is of no use to a run, and its agent at any free port.

    Ray has no public way for either (2.60): `ray start` has flags for monitors and agent, `ray.init` has none, and both
    start the dashboard's server. Its log monitor reads all log files ten times a second, its autoscaler's monitor asks
    for machines, of which there are no more, and what is left of the dashboard without its page counts for Ray's
    makers. The agent waits for port 52365, which another Ray on the machine has, for 4 s before it does without.
    """
    unused = {"no_monitor": True, "include_log_monitor": False, "dashboard_agent_listen_port": 0}
    parameters, start_dashboard = parameter.RayParams, Node.start_api_server
    parameter.RayParams = partial(parameters, **unused)
    Node.start_api_server = lambda node, **_: None
    try:
        yield
    finally:
        parameter.RayParams, Node.start_api_server = parameters, start_dashboard


def check_answers(address: str, setting: str = "cluster.address=") -> None:
    """Check that a port of the cluster accepts a connection: Ray itself retries an unused address for five minutes.

    Args:
        address: as `ray.init` takes it; "auto" is the cluster that RAY_ADDRESS names, or the last one started here.
        setting: what the user gave it with, for the message.

    Raises:
        UserError: naming the address, when there is none or nothing listens at it.
    """
    try:
        place = _place(address)
        if place is not None:
            socket.create_connection(place, timeout=KNOCK_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_answer(address, setting, error) from None


def _place(address: str) -> tuple[str, int] | None:
    """Return host and port of the address; None where Ray is to start a cluster, or the scheme is not Ray's own."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    if "://" not in address:
        address = canonicalize_bootstrap_address(address) or ""
    elif not address.startswith("ray://"):
        return None
    if not address:
        return None
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError("an address is HOST:PORT, ray://HOST:PORT or auto")
    if len(port) > 5 or not 0 < int(port) < 1 << 16:  # the C library would knock at what is left of it
        raise ValueError("a port is a number from 1 to 65535")
    return host.strip("[]"), int(port)


def _no_answer(address: str, setting: str, error: Exception) -> UserError:
    resolved = os.environ.get("RAY_ADDRESS", "") if address == "auto" else ""
    place = f"{address} (RAY_ADDRESS={resolved})" if resolved else address
    return UserError(
        f"{setting}{place}: no cluster answers there ({first_line(error)}); `ray start --head` starts a cluster, "
        f"launch/ has more ways; without {setting.rstrip('= ')} everything runs on this machine"
    )


def actor_options(role: RoleConfig, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Return what `ActorClass.options(**...)` takes for one member of a role."""
    threads = str(role.threads)
    options: dict[str, Any] = {
        "num_cpus": role.num_cpus,
        "num_gpus": role.num_gpus,
        "max_restarts": 0,  # a fleet replaces its dead itself: it must bring them up to date first
    }
    variables = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **plugin_environment(), **(env or {})}
    options["runtime_env"] = {"env_vars": variables}
    if role.scheduling != "DEFAULT":
        options["scheduling_strategy"] = role.scheduling
    if role.accelerator_type:
        options["accelerator_type"] = role.accelerator_type
    return options


def check_capacity(cluster: ClusterConfig, roles: Sequence[str] = ROLES) -> None:
    """Check that the Ray that was started here has what the roles ask for: Ray itself lets an actor without a place
    wait, in silence, until its start timeout is over. A cluster that is joined may yet grow.

    Raises:
        UserError: naming what is short, and how much of it each role wants.
    """
    if cluster.address:
        return
    resources = ray.cluster_resources()
    for resource, key in (("GPU", "num_gpus"), ("CPU", "num_cpus")):
        demands = {name: getattr(cluster, name).count * getattr(getattr(cluster, name), key) for name in roles}
        total = sum(demands.values())
        if total > resources.get(resource, 0.0) + 1e-4:  # Ray counts in ten-thousandths
            shares = ", ".join(f"{name} {amount:g}" for name, amount in demands.items() if amount)
            raise UserError(
                f"cluster: its roles want {total:g} {resource}s ({shares}), Ray has {resources.get(resource, 0.0):g}: "
                f"lower a role's count or {key}, or raise cluster.{key}"
            )
