"""What reaches Ray Serve, which process listens, and the metrics of several replicas as one page."""

from __future__ import annotations

import os
import shutil
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from ray.exceptions import RayActorError
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import DeploymentUnavailableError

from cudal1_ray.actors.config import ClusterConfig
from cudal1_ray.errors import UserError
from cudal1_ray.serving import ServingConfig, load_serving_config
from cudal1_ray.serving import application as serving_application
from cudal1_ray.serving.application import PRIVATE_RAY, application, endpoint_options, listens
from cudal1_ray.serving.coordinator import Coordinator
from cudal1_ray.serving.metrics import RequestMetrics, WeightMetrics, merged
from cudal1_ray.serving.optimize.deployments import JobQueueDeployment
from cudal1_ray.serving.optimize.jobs import FINISHED, RUNNING, SERVER, JobSettings, JobStore, OptimizeJob
from tests.ports import free_port
from tests.rollout.conftest import make_tiny_model


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> str:
    return make_tiny_model(tmp_path_factory.mktemp("application"), seed=0).path


def test_autoscaling_when_bounded_passes_its_bounds_to_ray_serve(policy):
    settings = ["replicas.min=2", "replicas.max=5", "replicas.target_ongoing_requests=7", "replicas.upscale_delay_s=3"]
    settings += ["replicas.downscale_delay_s=40", "replicas.max_ongoing_requests=99", "drain_timeout_s=12"]
    config = load_serving_config([f"policy={policy}", *settings])
    endpoint = application(config)._bound_deployment
    scaling = endpoint._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas, scaling.target_ongoing_requests) == (2, 5, 7)
    assert (scaling.upscale_delay_s, scaling.downscale_delay_s) == (3, 40)
    assert endpoint.max_ongoing_requests == 99
    assert endpoint._deployment_config.graceful_shutdown_timeout_s == 12
    fixed = endpoint_options(load_serving_config([f"policy={policy}"]).replicas, 60.0)
    assert fixed["num_replicas"] == 1 and "autoscaling_config" not in fixed


def test_weights_when_a_file_is_cut_short_are_named_before_anything_starts(policy, tmp_path):
    shutil.copytree(policy, tmp_path / "cut")
    file = tmp_path / "cut" / "model.safetensors"
    os.truncate(file, file.stat().st_size - 10)
    with pytest.raises(UserError, match="model.safetensors: damaged"):
        serving_application.start(load_serving_config([f"policy={tmp_path / 'cut'}", f"port={free_port()}"]))


@pytest.mark.parametrize(
    ("text", "fault"), [(None, "cudal1 serve --add-key NAME security.keys_file"), ("{}", "restore it")]
)
def test_keys_when_their_file_cannot_be_read_are_named_before_anything_starts(policy, tmp_path, text, fault):
    keys = tmp_path / "keys.json"
    if text is not None:
        keys.write_text(text)
    settings = [f"policy={policy}", f"port={free_port()}", f"security.keys_file={keys}"]
    with pytest.raises(UserError, match=f"security.keys_file={keys}: .*{fault}"):
        serving_application.start(load_serving_config(settings))


def test_gpu_preset_when_composed_scales_and_gives_each_replica_a_gpu(policy):
    options = endpoint_options(load_serving_config([f"policy={policy}", "serving=gpu"]).replicas, 60.0)
    assert options["autoscaling_config"]["max_replicas"] > options["autoscaling_config"]["min_replicas"] >= 1
    assert options["ray_actor_options"]["num_gpus"] == 1.0


def test_one_gpu_preset_when_composed_fits_engine_and_evaluator_on_one_gpu(policy):
    config = load_serving_config([f"policy={policy}", "serving=one_gpu"])
    assert config.replicas.num_gpus + config.optimize.evaluators * config.optimize.evaluator_gpus <= 1.0
    assert config.rollout.kv_cache_gib and listens(config)


def test_engines_when_started_are_as_urgent_as_their_callers_and_evaluators_give_way(policy):
    def niceness(deployment) -> str:
        return deployment.ray_actor_options["runtime_env"]["env_vars"]["RAY_worker_niceness"]

    endpoint = application(load_serving_config([f"policy={policy}"]))._bound_deployment
    job_queue = endpoint.init_args[2]._bound_deployment
    evaluator = job_queue.init_args[1]._bound_deployment
    assert (endpoint.name, job_queue.name, evaluator.name) == ("endpoint", "job_queue", "evaluator")
    assert niceness(endpoint) == "0" and int(niceness(evaluator)) > 0


def options_of(config, itself: bool) -> tuple:
    """Return the options of the job queue and of the evaluators."""
    job_queue = application(config, itself)._bound_deployment.init_args[2]._bound_deployment
    evaluator = job_queue.init_args[1]._bound_deployment
    return job_queue._deployment_config, evaluator._deployment_config


def test_job_queue_when_beside_one_replica_waits_for_the_first_job(policy, tmp_path):
    settings = [f"policy={policy}", f"optimize.jobs_dir={tmp_path}", "optimize.evaluators=3"]
    config = load_serving_config([*settings, "optimize.evaluator_idle_s=42"])
    job_queue, evaluator = (options.autoscaling_config for options in options_of(config, itself=True))
    assert (job_queue.min_replicas, job_queue.initial_replicas, job_queue.max_replicas) == (0, 0, 1)
    assert (evaluator.min_replicas, evaluator.initial_replicas, evaluator.max_replicas) == (0, 0, 3)
    assert job_queue.downscale_delay_s > 1e6 and evaluator.downscale_delay_s == 42  # it may have jobs without callers
    assert evaluator.get_upscaling_factor() == 3  # all of them at once


def test_job_queue_when_jobs_are_open_starts_at_once(policy, tmp_path):
    config = load_serving_config([f"policy={policy}", f"optimize.jobs_dir={tmp_path}"])
    store = JobStore(tmp_path)
    job = OptimizeJob("a", "source", JobSettings(1, 1, 1.0), ["alice"], 0.0, status=FINISHED)
    store.save(job)
    assert options_of(config, itself=True)[0].autoscaling_config.initial_replicas == 0
    job.status = RUNNING
    store.save(job)
    job_queue, evaluator = options_of(config, itself=True)
    assert job_queue.autoscaling_config.initial_replicas == 1 and evaluator.autoscaling_config.initial_replicas == 0


def test_job_queue_when_it_starts_after_the_first_checkpoint_is_gone_has_its_tokenizer(policy, tmp_path):
    place = tmp_path / "run" / "checkpoints" / "sft-000001" / "policy"
    shutil.copytree(policy, place)
    settings = [f"policy={tmp_path / 'run'}", f"optimize.jobs_dir={tmp_path / 'jobs'}"]
    config = load_serving_config([*settings, f"weights.store_dir={tmp_path / 'weights'}"])
    config.server_id = "a"
    Coordinator(config, pytest.fail)
    shutil.rmtree(place.parent)
    job_queue = JobQueueDeployment.func_or_class(config, None)
    assert job_queue._count_tokens("class Model") > 0


def test_evaluators_when_others_take_their_resources_start_at_once(policy, tmp_path):
    config = load_serving_config([f"policy={policy}", f"optimize.jobs_dir={tmp_path}", "optimize.evaluators=2"])
    assert [options.num_replicas for options in options_of(config, itself=False)] == [1, 2]
    assert not any(options.autoscaling_config for options in options_of(config, itself=False))
    config.evaluation.device = "cuda"
    job_queue, evaluator = options_of(config, itself=True)
    assert job_queue.autoscaling_config is not None
    assert evaluator.autoscaling_config is None and evaluator.num_replicas == 2


def test_server_when_its_jobs_cannot_be_worked_on_does_not_start(policy, tmp_path, monkeypatch):
    """Although the job queue and the evaluators, which would report it, start later."""
    monkeypatch.setattr(serving_application, "CLAIM_S", 0.0)
    monkeypatch.setattr(serving_application, "_start_ray", lambda _: pytest.fail("too late"))
    config = load_serving_config([f"policy={policy}", f"optimize.jobs_dir={tmp_path}", f"port={free_port()}"])
    first = JobStore(tmp_path)
    first.claim(0.0, SERVER)
    JobStore(tmp_path).claim(0.0)  # the job queue's own claim is another one
    with pytest.raises(UserError, match="belongs to a server"):
        serving_application.start(config)
    config.evaluation.against = "cuda_graph"
    with pytest.raises(UserError, match="evaluation.against"):
        serving_application.start(config)


@pytest.mark.parametrize("error", [TimeoutError(), RayActorError(), DeploymentUnavailableError(DeploymentID("a"))])
def test_server_when_its_endpoint_is_down_is_stopped_nevertheless(error, monkeypatch):
    class Response:
        def result(self, timeout_s=None):
            assert timeout_s is not None and timeout_s <= 5.0, "waits for ever"
            raise error

    class Handle:
        def __getattr__(self, name):
            return SimpleNamespace(remote=Response)

    config, deleted, lines = ServingConfig(drain_timeout_s=5.0), [], []
    served = SimpleNamespace(
        get_deployment_handle=lambda *_: Handle(),
        delete=deleted.append,
        status=lambda: SimpleNamespace(applications={"another": ...}),
    )
    monkeypatch.setattr(serving_application, "serve", served)
    assert serving_application.stop(config, lines.append) is False
    assert deleted == [config.name] and lines == ["the endpoint does not answer; stopping without it"]


def test_ray_settings_when_ray_is_private_reach_no_other_process(monkeypatch):
    """Not to a cluster that runs already, nor to what this process starts later; the operator's own word stays."""
    environments = []
    monkeypatch.setattr(serving_application, "connect", lambda *_: environments.append(dict(os.environ)))
    monkeypatch.setattr(serving_application.ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_num_workers_soft_limit", "7")
    before = dict(os.environ)
    serving_application._start_ray(ClusterConfig(address="10.0.0.1:6379"))
    assert environments[-1] == before
    serving_application._start_ray(ClusterConfig(address=None))
    assert {name: environments[-1][name] for name in PRIVATE_RAY} == PRIVATE_RAY | {"RAY_num_workers_soft_limit": "7"}
    assert dict(os.environ) == before


def test_listener_when_there_is_one_replica_is_that_and_the_proxy_otherwise(policy):
    def fronted(*settings: str) -> bool:
        return listens(load_serving_config([f"policy={policy}", *settings]))

    assert fronted() and fronted("front=replica")
    assert not fronted("replicas.max=2") and not fronted("front=proxy") and not fronted("address=ray:6379")
    for settings in (["front=replica", "replicas.max=2"], ["front=replica", "address=ray:6379"], ["front=both"]):
        with pytest.raises(UserError, match="front="):
            fronted(*settings)


@pytest.mark.parametrize(
    "override, named",
    [
        ("replicas.target_ongoing_requests=1000", "max_ongoing_requests"),
        ("replicas.target_ongoing_requests=0", "target_ongoing_requests=0"),
        ("replicas.upscale_delay_s=-1", "upscale_delay_s=-1"),
        ("weights.follow=/no/such/run", "weights.follow=/no/such/run"),
        ("weights.follow_every_s=0", "follow_every_s=0"),
        ("weights.finish_timeout_s=-1", "finish_timeout_s=-1"),
        ("optimize.evaluator_idle_s=-1", "evaluator_idle_s=-1"),
    ],
)
def test_serving_config_when_given_a_mistake_names_it(policy, override, named):
    with pytest.raises(UserError, match=named):
        load_serving_config([f"policy={policy}", override])


def test_metrics_pages_when_replicas_are_several_become_one_that_adds_up():
    pages = {}
    for replica, count in (("a", 2), ("b", 3)):
        registry = CollectorRegistry()
        requests, weights = RequestMetrics(registry), WeightMetrics(registry)
        for _ in range(count):
            requests.ended("/v1/completions", 200, 0.5)
        weights.serves(version=4, under_way=1)
        weights.updated(0.2)
        pages[replica] = requests.page()[0]
    families = {family.name: family for family in text_string_to_metric_families(merged(pages).decode())}
    totals = {s.labels["replica"]: s.value for s in families["cudal1_requests"].samples if s.name.endswith("_total")}
    assert totals == {"a": 2.0, "b": 3.0}
    assert {s.value for s in families["cudal1_policy_version"].samples} == {4.0}
    buckets = [s for s in families["cudal1_request_seconds"].samples if s.labels.get("le") == "1.0"]
    assert sum(sample.value for sample in buckets) == 5.0
