"""launch/kuberay-service.yaml: its CRD, Ray's own schema of what it serves, and the application that it builds."""

from __future__ import annotations

import copy
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pydantic
import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from ray._common.utils import import_attr  # these three: what `serve deploy` does with a file, without a cluster
from ray.serve._private.api import call_user_app_builder_with_args_if_necessary
from ray.serve._private.build_app import build_app
from ray.serve.schema import ServeDeploySchema

from cudal1_ray.errors import UserError
from cudal1_ray.serving import ServingConfig
from cudal1_ray.serving.access.keys import KeyFile
from cudal1_ray.serving.application import MARGIN_S
from cudal1_ray.serving.service import build, overrides_of
from tests.launch.kuberay import check_cluster, crd_errors, load
from tests.policy_folder import make_policy_folder
from tests.ports import free_port

DEPLOYMENTS = {"endpoint", "coordinator", "job_queue", "evaluator"}


@pytest.fixture(scope="module")
def service(repository: Path) -> dict:
    return load(repository / "launch" / "kuberay-service.yaml")


@pytest.fixture(scope="module")
def served(service) -> dict:
    return yaml.safe_load(service["spec"]["serveConfigV2"])


@pytest.fixture
def policy(tmp_path) -> Path:
    """Return a model's folder, as far as its place is looked at before an engine reads it."""
    return make_policy_folder(tmp_path / "model")


# The file


def test_service_when_checked_has_the_fields_of_its_crd(service):
    assert crd_errors(service) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d["spec"].update(serveConfig="x"), "serveConfig"),
        (lambda d: d["spec"].pop("rayClusterConfig"), "rayClusterConfig"),
        (lambda d: d["spec"].update(serveConfigV2={"applications": []}), "serveConfigV2"),
        (lambda d: d["spec"]["upgradeStrategy"].update(type="Rolling"), "upgradeStrategy"),
        (lambda d: d["spec"]["rayClusterConfig"]["workerGroupSpecs"][0].pop("maxReplicas"), "maxReplicas"),
    ],
)
def test_service_schema_when_a_field_is_wrong_names_it(service, change, named):
    document = copy.deepcopy(service)
    change(document)
    assert any(named in error for error in crd_errors(document))


def test_service_when_read_by_ray_serve_passes_its_schema(served):
    deployed = ServeDeploySchema.model_validate(served)
    (application,) = deployed.applications
    assert application.name == ServingConfig().name, "the job queue finds the endpoint by it"
    assert application.route_prefix == "/" and not application.deployments
    for section, schema in (
        (served, ServeDeploySchema),
        (served["applications"][0], type(application)),
        (served["http_options"], type(deployed.http_options)),
    ):
        assert not set(section) - set(schema.model_fields), "Ray would leave it out without a word"
    broken = copy.deepcopy(served)
    del broken["applications"][0]["import_path"]
    with pytest.raises(pydantic.ValidationError, match="import_path"):
        ServeDeploySchema.model_validate(broken)


def test_time_limit_when_of_ray_serve_comes_after_ours(served):
    security = ServingConfig().security
    ours = security.request_timeout_s + security.body_timeout_s + MARGIN_S
    assert served["http_options"]["request_timeout_s"] >= ours


def test_service_cluster_when_read_has_every_path_on_its_volume(service, served):
    cluster = service["spec"]["rayClusterConfig"]
    (mount,) = cluster["headGroupSpec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    check_cluster(cluster, mount["mountPath"])
    args = served["applications"][0]["args"]
    paths = [args[key] for key in ("policy", "security.keys_file", "optimize.jobs_dir", "weights.store_dir")]
    assert all(path.startswith(f"{mount['mountPath']}/") for path in paths)


# What it builds


def test_builder_when_named_builds_the_application_of_cudal1_serve(served, policy, tmp_path):
    """As Ray Serve does it on the cluster, up to starting the deployments; with this machine's paths."""
    settings = served["applications"][0]
    here = {"policy": str(policy), "security.keys_file": f"{tmp_path}/k.json"}
    here |= {"optimize.jobs_dir": f"{tmp_path}/jobs", "weights.store_dir": f"{tmp_path}/weights"}
    assert set(here) < set(settings["args"])
    builder = import_attr(settings["import_path"])
    application = call_user_app_builder_with_args_if_necessary(builder, settings["args"] | here)
    built = build_app(application, name=settings["name"], route_prefix=settings["route_prefix"])
    assert built.ingress_deployment_name == "endpoint"
    deployments = {deployment.name: deployment for deployment in built.deployments}
    assert set(deployments) == DEPLOYMENTS
    config = deployments["endpoint"].init_args[0]
    assert (config.policy.path, config.security.keys_file) == (str(policy), f"{tmp_path}/k.json")
    bounds = settings["args"]["replicas"]
    scaling = deployments["endpoint"]._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (bounds["min"], bounds["max"])


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({"port": 9000}, "http_options.port"),
        ({"host": "127.0.0.1"}, "http_options.host"),
        ({"num_cpus": 4}, "args: num_cpus=4"),
        ({"front": "replica"}, "proxies listen"),
        ({"security": {"keys_file": ""}}, "security.keys_file is empty"),
        ({"replicas": {"min": 3}}, "replicas.min=3"),
        ({"replicas.most": 3}, "replicas.most"),
    ],
)
def test_builder_when_its_args_are_wrong_names_them(policy, tmp_path, args, named):
    with pytest.raises(UserError, match=re.escape(named)):
        build({"policy": str(policy), "security.keys_file": f"{tmp_path}/k.json"} | args)


def test_args_when_turned_into_settings_keep_their_text():
    args = {
        "a": {"b": 3, "c": {"d": None}},
        "e.f": "it's \\here\\",
        "g": ["x y", 1, True],
        "h": "1e5",
        "i": "null",
        "j": "",
        "k": "a,b=c",
    }
    parsed = [OverridesParser.create().parse_override(override) for override in overrides_of(args)]
    values = {override.key_or_group: override.value() for override in parsed}
    assert values == {
        "a.b": 3, "a.c.d": None, "e.f": "it's \\here\\", "g": ["x y", 1, True], "h": "1e5", "i": "null", "j": "",
        "k": "a,b=c",
    }  # fmt: skip
    assert list(overrides_of({"policy": "runs/it's"})) == ["policy=runs/it's"]  # load_serving_config quotes it


@pytest.mark.long
@pytest.mark.timeout(900)
def test_service_when_deployed_answers_callers_with_a_key(repository, served, tmp_path):
    """What the operator hands to Ray, handed over by Ray's own `serve run`; of one node, since proxies share a port."""
    pytest.importorskip("vllm")
    from tests.rollout.conftest import make_tiny_model

    make_tiny_model(tmp_path / "model", seed=0)
    key = KeyFile(tmp_path / "keys.json").add("alice")
    ports = [free_port() for _ in range(2)]
    config = copy.deepcopy(served)
    config["http_options"] |= {"host": "127.0.0.1", "port": ports[0]}
    config["applications"][0]["args"] |= {
        "policy": str(tmp_path / "model"),
        "security.keys_file": str(tmp_path / "keys.json"),
        "optimize.jobs_dir": str(tmp_path / "jobs"),
        "weights.store_dir": str(tmp_path / "weights"),
        "replicas": {"min": 1, "max": 1},
        "rollout": {"max_model_len": 128, "kv_cache_gib": 0.05},
        "evaluation.required_sandbox": "process",
    }
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(config))
    command = [str(repository / "launch" / "local.sh"), "-p", str(ports[1]), "-n", "cpus=4", "--"]
    command += ["serve", "run", str(tmp_path / "serve.yaml")]
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=repository)
    try:
        url, bearer = f"http://127.0.0.1:{ports[0]}", {"authorization": f"Bearer {key}"}
        deadline = time.monotonic() + 600
        while not _healthy(url):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(1.0)
        assert httpx.get(f"{url}/v1/models", timeout=100).status_code == 401
        models = httpx.get(f"{url}/v1/models", headers=bearer, timeout=100).json()
        body = {"model": models["data"][0]["id"], "prompt": "import torch", "max_tokens": 4}
        answer = httpx.post(f"{url}/v1/completions", headers=bearer, json=body, timeout=300)
        assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] <= 4, answer.text
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=200)


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=20).status_code == 200
    except httpx.HTTPError:
        return False
