"""The Ray Serve application: put together, started, drained and stopped."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable

from ray import serve
from ray.serve import Application

from cudal1_ray.actors.config import ClusterConfig
from cudal1_ray.actors.placement import connect
from cudal1_ray.errors import UserError
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.serving.endpoint import Endpoint, KeeperDeployment
from cudal1_ray.serving.workshop import DeskDeployment, JudgeDeployment

MARGIN_S = 30.0  # Ray Serve's own time limit comes after ours, which answers in a form that clients know
JUDGEMENTS = 16  # that wait at or run in one judge; it takes them in turns by itself


def application(config: ServingConfig) -> Application:
    """The deployments, bound to each other: what `serve.run` and a RayService's import path take."""
    replicas = config.replicas
    threads = str(replicas.threads)
    options = {
        "max_ongoing_requests": replicas.max_ongoing_requests,
        "graceful_shutdown_timeout_s": config.drain_timeout_s,
        "ray_actor_options": {
            "num_cpus": replicas.num_cpus,
            "num_gpus": replicas.num_gpus,
            "runtime_env": {"env_vars": {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}},
        },
    }
    if replicas.min == replicas.max:
        options["num_replicas"] = replicas.max
    else:
        options["autoscaling_config"] = {
            "min_replicas": replicas.min,
            "max_replicas": replicas.max,
            "target_ongoing_requests": replicas.target_ongoing_requests,
        }
    few = {"ray_actor_options": {"num_cpus": 0.1}, "max_ongoing_requests": 100_000}
    optimize = config.optimize
    judge = JudgeDeployment.options(
        name="judge",
        num_replicas=optimize.evaluators,
        max_ongoing_requests=JUDGEMENTS,
        ray_actor_options={"num_cpus": optimize.evaluator_cpus, "num_gpus": optimize.evaluator_gpus},
    ).bind(config.evaluation)
    keeper = KeeperDeployment.options(name="keeper", **few).bind(config.security)
    desk = DeskDeployment.options(name="desk", **few).bind(config, judge)
    return Endpoint.options(name="endpoint", **options).bind(config, keeper, desk)


def start(config: ServingConfig) -> None:
    """Starts Ray where none runs, the HTTP proxy, and the application; returns when it answers.

    Raises:
        UserError: when the port is taken, or the replicas do not start.
    """
    if config.address is None:
        _check_port(config.host, config.port)
    connect(ClusterConfig(address=config.address, num_cpus=config.num_cpus, object_store_mib=config.object_store_mib))
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # its progress is ours to tell
    security = config.security
    limit_s = security.request_timeout_s + security.body_timeout_s + MARGIN_S
    serve.start(
        proxy_location="HeadOnly",
        http_options={"host": config.host, "port": config.port, "request_timeout_s": limit_s},
        logging_config={"log_level": "WARNING", "enable_access_log": False},
    )
    try:
        serve.run(application(config), name=config.name, route_prefix="/", blocking=False)
    except RuntimeError as error:
        last = [line.strip() for line in str(error).splitlines() if line.strip()][-1:]
        raise UserError(f"the replicas of policy={config.policy.path} do not start: {' '.join(last)}") from None


def stop(config: ServingConfig, report: Callable[[str], None] = lambda line: None) -> bool:
    """Lets nobody in any more, waits for requests under way, then stops. True when all of them ended by themselves."""
    keeper = serve.get_deployment_handle("keeper", config.name)
    keeper.drain.remote().result()
    serve.get_deployment_handle("desk", config.name).drain.remote().result()  # jobs wait on disk for the next start
    deadline, left, told = time.monotonic() + config.drain_timeout_s, keeper.under_way.remote().result(), -1
    while left and time.monotonic() < deadline:
        if left != told:
            report(f"draining: {left} requests under way")
            told = left
        time.sleep(0.1)
        left = keeper.under_way.remote().result()
    serve.delete(config.name)
    serve.shutdown()
    return not left


def _check_port(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(f"host={host} port={port}: {error.strerror}; choose another port=") from None
