"""The Ray Serve application: put together, started, drained and stopped."""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve import Application
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ReplicaState

from cudal1_ray.actors.causes import last_exception
from cudal1_ray.actors.config import ClusterConfig
from cudal1_ray.actors.placement import connect
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.hardware import prepared
from cudal1_ray.serving.access.keys import KeyFile
from cudal1_ray.serving.config import ReplicasConfig, ServingConfig
from cudal1_ray.serving.coordinator import CoordinatorDeployment
from cudal1_ray.serving.endpoint import EndpointDeployment
from cudal1_ray.serving.optimize.deployments import EvaluatorDeployment, JobQueueDeployment
from cudal1_ray.serving.optimize.jobs import OPEN, SERVER, JobStore
from cudal1_ray.serving.served_policy import check_files
from cudal1_ray.wording import counted

# Seconds by which Ray Serve's own time limit is after this server's, which answers in a form that clients know.
MARGIN_S = 30.0
# Of every process of Ray Serve that is started by us: children inherit what the controller has.
PROCESSES = {
    "RAY_worker_niceness": "0",  # Ray's own 15 lets any caller on the same machine take the engine's cores
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "1.0",  # it looks after replicas this often; at 0.1 s that costs some CPU
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "10000",  # Ray's 100 ms wakes every replica ten times a second
}
# Environment of compilers and candidates, which give way to requests.
LOW_PRIORITY = {"RAY_worker_niceness": "15"}
# Of the Ray that is started here, where the environment does not set it. Its defaults are made for clusters; on
# one machine, what watches the engine takes from the engine.
PRIVATE_RAY = {
    "RAY_prestart_worker_first_driver": "0",  # no workers for tasks: there are only actors, each with its own process
    "RAY_num_workers_soft_limit": "0",  # and those that are left over go
    "RAY_enable_metrics_collection": "0",  # /metrics is ours and vLLM's; Ray's own are not read
    "REPORTER_UPDATE_INTERVAL_MS": "60000",  # nor its dashboard's, which is not started
    "RAY_task_events_report_interval_ms": "0",  # nor its dashboard's events of tasks
    "RAY_memory_monitor_refresh_ms": "1000",  # how often it looks whether memory runs short; it would four times more
    "RAY_raylet_report_resources_period_milliseconds": "1000",  # the one node reports to itself ten times a second what
    "RAY_raylet_check_gc_period_milliseconds": "1000",  # is free, and whether garbage should be collected
    "RAY_kill_idle_workers_interval_ms": "2000",
    "RAY_report_worker_backlog_interval_ms": "10000",
}
QUIET = {"log_level": "WARNING", "enable_access_log": False}
# Evaluations that wait at or run in one evaluator, which takes them in turns by itself.
EVALUATIONS_PER_REPLICA = 16
# Seconds that an earlier server has to leave the folder of jobs.
CLAIM_S = 60.0
# Seconds that a deployment has for an answer where `drain_timeout_s` is over or shorter.
LEAST_ANSWER_S = 1.0
FOR_EVER_S = 1e9


def application(config: ServingConfig, itself: bool = False) -> Application:
    """Return the deployments, bound to each other: what `serve.run` and a RayService's import path take.

    Args:
        itself: the one replica listens at host and port itself; else Ray Serve's proxies do, wherever they are.
    """
    if not config.server_id:
        config.server_id = uuid.uuid4().hex
        own = f"{config.name}-{socket.gethostname()}-{config.port}"  # hosts may share a file system
        config.weights.store_dir = str(Path(config.weights.store_dir) / own)
    few = {"ray_actor_options": {"num_cpus": 0.1}, "max_ongoing_requests": 100_000}
    optimize = config.optimize
    evaluator = EvaluatorDeployment.options(
        name="evaluator",
        **evaluators_started(config, itself),
        max_ongoing_requests=EVALUATIONS_PER_REPLICA,
        ray_actor_options={
            "num_cpus": optimize.evaluator_cpus,
            "num_gpus": optimize.evaluator_gpus,
            "runtime_env": {"env_vars": LOW_PRIORITY},
        },
    ).bind(config.evaluation)
    coordinator = None if itself else CoordinatorDeployment.options(name="coordinator", **few).bind(config)
    started = job_queue_started(config, itself)
    job_queue = JobQueueDeployment.options(name="job_queue", **started, **few).bind(config, evaluator)
    options = endpoint_options(config.replicas, config.drain_timeout_s)
    return EndpointDeployment.options(name="endpoint", **options).bind(config, coordinator, job_queue, evaluator)


def evaluators_started(config: ServingConfig, itself: bool) -> dict[str, Any]:
    """Return the options for the number of evaluators: beside one replica on its own machine, only while there are
    jobs.

    A Ray process that does nothing wakes a hundred times a second, in between the engine's steps. Where engines scale,
    or an evaluator owns a device, evaluators run from the start: a device that is free now may be taken later.
    """
    optimize = config.optimize
    if not itself or config.evaluation.device != "cpu":
        return {"num_replicas": optimize.evaluators}
    return _from_none(optimize.evaluators, optimize.evaluator_idle_s)


def job_queue_started(config: ServingConfig, itself: bool) -> dict[str, Any]:
    """Return the options that decide when the job queue starts: beside one replica with the first request, or at once
    where jobs are open.
    """
    if not itself:
        return {"num_replicas": 1}
    unfinished = any(job.status in OPEN for job in JobStore(config.optimize.jobs_dir).load())
    # It works on jobs between requests about them, and must not be scaled away meanwhile.
    return _from_none(1, FOR_EVER_S, at_first=int(unfinished))


def _from_none(most: int, idle_s: float, at_first: int = 0) -> dict[str, Any]:
    """Return options of a deployment that Ray Serve starts in full at the first call, and ends after `idle_s` without
    any.
    """
    return {
        "autoscaling_config": {
            "min_replicas": 0,
            "initial_replicas": at_first,
            "max_replicas": most,
            "target_ongoing_requests": 0.001,  # all of them or none: one that goes early would take a call along
            "upscaling_factor": float(most),
            "upscale_delay_s": 0.0,
            "downscale_delay_s": idle_s,
        }
    }


def endpoint_options(replicas: ReplicasConfig, drain_timeout_s: float) -> dict[str, Any]:
    """Return deployment options of the replicas: what each needs, and how many of them there may be."""
    threads = str(replicas.threads)
    options: dict[str, Any] = {
        "max_ongoing_requests": replicas.max_ongoing_requests,
        "graceful_shutdown_timeout_s": drain_timeout_s,
        "ray_actor_options": {
            "num_cpus": replicas.num_cpus,
            "num_gpus": replicas.num_gpus,
            "runtime_env": {"env_vars": {**PROCESSES, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}},
        },
    }
    if replicas.min == replicas.max:
        return options | {"num_replicas": replicas.max}
    return options | {
        "autoscaling_config": {
            "min_replicas": replicas.min,
            "max_replicas": replicas.max,
            "target_ongoing_requests": replicas.target_ongoing_requests,
            "upscale_delay_s": replicas.upscale_delay_s,
            "downscale_delay_s": replicas.downscale_delay_s,
        }
    }


def start(config: ServingConfig) -> JobStore | None:
    """Start Ray where none runs, the HTTP proxy and the application; return when it answers.

    Returns:
        The lock on the folder of jobs, for as long as it is held; None where the job queue, which runs from the
        start, holds it.

    Raises:
        UserError: when the port is taken, the replicas do not start, no job could be worked on, the file of keys cannot
            be read, or a file of the policy's weights is damaged.
    """
    check_files(Path(config.policy.path))
    if config.security.keys_file:
        KeyFile(config.security.keys_file).names()
    if config.address is None:
        _check_port(config.host, config.port)
    store = _ready_for_jobs(config) if listens(config) else None
    cluster = ClusterConfig(address=config.address, num_cpus=config.num_cpus, object_store_mib=config.object_store_mib)
    _start_ray(cluster)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # its progress is reported here
    security = config.security
    itself = listens(config)
    serve.start(
        proxy_location="Disabled" if itself else "HeadOnly",
        http_options={
            "host": config.host,
            "port": config.port,
            "request_timeout_s": security.request_timeout_s + security.body_timeout_s + MARGIN_S,
        },
        logging_config=QUIET,
        controller_options={"runtime_env": {"env_vars": PROCESSES}},
    )
    target = serve.RunTarget(application(config, itself), name=config.name, route_prefix="/", logging_config=QUIET)
    try:
        serve.run_many([target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)
        _wait_until_running(config)
    except RuntimeError as error:
        cause = last_exception(str(error))
        raise UserError(f"the replicas of policy={config.policy.path} do not start: {cause}") from None
    return store


def stop(config: ServingConfig, report: Callable[[str], None] = lambda line: None) -> bool:
    """Stop admitting requests, wait for those under way, then stop; return whether all of them ended by themselves.

    A server whose endpoint does not answer within `drain_timeout_s` is stopped nevertheless.
    """
    try:
        finished = _drain(config, report)
    except (TimeoutError, RayError, RayServeException):
        report("the endpoint does not answer; stopping without it")
        finished = False
    with _worker_logs_silenced():
        serve.delete(config.name)
        if not serve.status().applications:  # a shared cluster may serve others'
            serve.shutdown()
    return finished


def _drain(config: ServingConfig, report: Callable[[str], None]) -> bool:
    """Stop admitting requests and wait for those under way; return whether all of them ended in time.

    Raises:
        TimeoutError, RayError, RayServeException: a deployment does not answer.
    """
    deadline = time.monotonic() + config.drain_timeout_s

    def ask(handle: DeploymentHandle, method: str) -> Any:
        return getattr(handle, method).remote().result(timeout_s=max(deadline - time.monotonic(), LEAST_ANSWER_S))

    coordinator = serve.get_deployment_handle("endpoint" if listens(config) else "coordinator", config.name)
    ask(coordinator, "drain")
    if _runs("job_queue", config.name):
        ask(serve.get_deployment_handle("job_queue", config.name), "drain")  # jobs wait on disk
    left, reported = ask(coordinator, "under_way"), -1
    while left and time.monotonic() < deadline:
        if left != reported:
            report(f"draining: {counted(left, 'request')} under way")
            reported = left
        time.sleep(0.1)
        left = ask(coordinator, "under_way")
    return not left


def leave() -> None:
    """End a private cluster, or this process's part in a shared one."""
    ray.shutdown()


def listens(config: ServingConfig) -> bool:
    """Return whether the one replica listens at the port itself."""
    return config.front == "replica" or (config.front == "auto" and config.replicas.max == 1 and not config.address)


def _ready_for_jobs(config: ServingConfig) -> JobStore:
    """Lock the folder of jobs and return it, after checking at the start what would fail at the first job."""
    if config.evaluation.device == "cpu":
        prepared(config.evaluation)
    store = JobStore(config.optimize.jobs_dir)
    store.claim(CLAIM_S, SERVER)
    return store


def _runs(deployment: str, app_name: str) -> bool:
    status = serve.status().applications.get(app_name)
    return status is not None and bool(status.deployments[deployment].replica_states.get(ReplicaState.RUNNING))


def _start_ray(cluster: ClusterConfig) -> None:
    """Join the cluster, or start one that spends as little as it can on itself."""
    private = cluster.address is None and not ray.is_initialized()
    ours = {name: value for name, value in PRIVATE_RAY.items() if private and name not in os.environ}
    os.environ.update(ours)
    try:
        connect(cluster, "address=")
    finally:
        for name in ours:
            os.environ.pop(name, None)


@contextmanager
def _worker_logs_silenced() -> Iterator[None]:
    """Silence Ray's lines on failed calls of its controller within the context: that is how Ray Serve ends."""
    worker = ray._private.worker  # no public way either: `log_to_driver` is read once, by `ray.init`
    worker._worker_logs_enabled, before = False, worker._worker_logs_enabled
    try:
        yield
    finally:
        worker._worker_logs_enabled = before


def _wait_until_running(config: ServingConfig) -> None:
    """Wait until the replicas run. Raises RuntimeError with a replica's last report, when they are not up in time."""
    deadline = time.monotonic() + config.replicas.start_timeout_s
    while True:
        status = serve.status().applications.get(config.name)
        if status is not None and status.status == "RUNNING":
            return
        if status is not None and status.status == "DEPLOY_FAILED":
            messages = [deployment.message for deployment in status.deployments.values() if deployment.message]
            raise RuntimeError("\n".join([status.message, *messages]))
        if time.monotonic() > deadline:
            seconds = config.replicas.start_timeout_s
            raise RuntimeError(
                f"not up after {seconds:g} s (replicas.start_timeout_s); the engine's log has the reason"
            )
        time.sleep(0.2)


def _check_port(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(f"host={host} port={port}: {error.strerror}; choose another port=") from None
