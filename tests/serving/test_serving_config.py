"""From the command line to a configuration: presets, a run's own settings, and mistakes that are named."""

from __future__ import annotations

import pytest
import torch
import yaml

from cudal1_ray.cli import main
from cudal1_ray.commands.serve import follows, start_line
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.serving import load_serving_config
from cudal1_ray.serving.config import ServedPolicyConfig, ServingConfig, check_gpus
from tests.policy_folder import make_policy_folder


@pytest.fixture
def run(tmp_path):
    """Return a run's folder with one finished stage, as far as serving looks into it."""
    make_policy_folder(tmp_path / "mine" / "checkpoints" / "sft-final" / "policy")
    settings = {"prompting": {"style": "full", "max_prompt_tokens": 300}, "policy": {"chat": True, "kind": "scratch"}}
    (tmp_path / "mine" / "config.yaml").write_text(yaml.safe_dump(settings | {"rollout": {"max_model_len": 600}}))
    return tmp_path / "mine"


def test_run_when_served_has_the_settings_it_was_trained_with(run):
    config = load_serving_config([f"policy={run}"])
    assert config.policy.path.endswith("sft-final/policy") and config.policy.name == "mine" and config.policy.chat
    assert (config.prompting.style, config.prompting.max_prompt_tokens) == ("full", 300)
    assert config.rollout.max_model_len == 600
    overridden = load_serving_config([f"policy={run}", "prompting.style=compact", "policy.name=other"])
    assert (overridden.prompting.style, overridden.policy.name) == ("compact", "other")


def test_setting_of_a_run_when_it_is_of_another_type_is_named(run):
    settings = yaml.safe_load((run / "config.yaml").read_text()) | {"rollout": {"max_model_len": "long"}}
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(UserError, match=r"mine: config.yaml of its run: rollout.max_model_len: .*'long'"):
        load_serving_config([f"policy={run}"])
    assert load_serving_config([f"policy={run}", "rollout.max_model_len=700"]).rollout.max_model_len == 700


@pytest.mark.parametrize(
    ("content", "followed"),
    [(b"\xff", "last policy of each"), (b"checkpoint: {export_policy: true}", "policy of every checkpoint")],
)
def test_run_when_followed_with_any_configuration_is_named_with_what_is_rolled_in(run, content, followed):
    (run / "config.yaml").write_bytes(content)
    assert f"follows {run}: the {followed}" in follows(run)


def test_gpu_when_a_preset_wants_one_and_none_is_here_is_named_before_anything_starts(run, tmp_path, capsys):
    if torch.cuda.device_count():
        pytest.skip("there is a GPU here")
    module = tmp_path / "net.py"
    module.write_text("import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n")
    for command in (["serve"], ["optimize", str(module), "--inputs", "randn(4)"]):
        assert main([*command, f"policy={run}", "serving=gpu"]) == 2
        error = capsys.readouterr().err
        assert "rollout.device=cuda, evaluation.device=cuda: PyTorch sees no GPU here; take serving=cpu" in error
    check_gpus(load_serving_config([f"policy={run}"]))


def test_run_when_served_is_served_from_its_latest_stage_or_a_given_folder(run):
    make_policy_folder(run / "checkpoints" / "contrastive-final" / "policy")
    assert "contrastive-final" in load_serving_config([f"policy={run}"]).policy.path
    earlier = load_serving_config([f"policy={run / 'checkpoints' / 'sft-final'}", "serving=gpu"])
    assert "sft-final" in earlier.policy.path and earlier.policy.chat and earlier.replicas.max > earlier.replicas.min


@pytest.mark.parametrize("rules", ["kernelbench", "strict"])
def test_rules_when_a_preset_is_chosen_are_those_that_training_and_evaluate_have(run, rules):
    served = load_serving_config([f"policy={run}", f"evaluation/rules={rules}", "evaluation.rules.mode=eval"])
    assert (
        served.evaluation.rules
        == load_config([f"evaluation/rules={rules}", "evaluation.rules.mode=eval"]).evaluation.rules
    )
    assert (served.evaluation.required_sandbox, served.evaluation.timing.budget_s) == ("namespaces", 2.0)


@pytest.mark.parametrize(
    "overrides, named",
    [
        (["serving=tpu"], "cpu, gpu"),
        (["host=0.0.0.0"], "keys_file"),
        (["port=0"], "port=0"),
        (["prot=1"], "did you mean port"),
        (["replicas.min=3"], "replicas.min=3"),
        (["security.max_concurrent=0"], "security.max_concurrent=0"),
        (["security.request_timeout_s=0"], "request_timeout_s"),
        (["rollout.engine=transformers"], "vllm"),
        (["optimize.rounds=many"], "optimize.rounds"),
        (["evaluation/rules=strikt"], "did you mean evaluation/rules=strict"),
        (["evaluation.timing.contestants=100000"], "evaluation.timing.contestants=100000: 3 batches in each"),
        (["replicas.max=10000000000"], "replicas.max=10000000000: must be at least 1 and at most 16777216"),
        (["replicas.max_ongoing_requests=10000000000"], "replicas.max_ongoing_requests=10000000000: must be at least"),
        (["optimize.evaluators=10000000000"], "optimize.evaluators=10000000000: must be at least 1 and at most"),
        (["evaluation.device=quantum"], "evaluation.device=quantum: must be cpu, cuda"),
        (["evaluation.against=none"], "evaluation.against: "),
    ],
)
def test_serving_settings_when_wrong_are_named(run, overrides, named):
    with pytest.raises(UserError, match=named):
        load_serving_config([f"policy={run}", *overrides])


def test_policy_when_it_is_none_is_named(tmp_path, run):
    for folder, named in ((tmp_path / "no", "no such folder"), (tmp_path, "holds no model"), ("", "policy is empty")):
        with pytest.raises(UserError, match=named):
            load_serving_config([f"policy={folder}"])
    (run / "checkpoints" / "sft-final" / "policy" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="finished stage"):
        load_serving_config([f"policy={run}"])


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("127.0.0.1", "http://127.0.0.1:9000"),
        ("0.0.0.0", "http://127.0.0.1:9000"),
        ("::1", "http://[::1]:9000"),
        ("gpu-host.example", "http://gpu-host.example:9000"),
    ],
)
def test_start_line_when_up_names_the_api_and_the_page(host, site):
    line = start_line(ServingConfig(ServedPolicyConfig(name="demo"), host=host, port=9000))
    assert line.startswith(f"demo answers at {site}/v1,") and f"its page is {site}/ " in line


def test_keys_file_when_below_the_home_folder_is_that_of_the_server(tmp_path, monkeypatch):
    from cudal1_ray.commands.serve import serve

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert serve(["security.keys_file=~/keys.json"], add_key="alice") == 0
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["keys.json"]
