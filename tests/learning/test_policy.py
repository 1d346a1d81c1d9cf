"""Policies made from scratch, saved, loaded; and the errors when that cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from cudal1_ray.errors import UserError
from cudal1_ray.learning import AlgorithmConfig, LearnerConfig, PolicyConfig, build_policy, load_tokenizer
from cudal1_ray.learning.policy import load_policy

TINY = {"kind": "scratch", "hidden_size": 64, "layers": 2, "heads": 2, "intermediate_size": 64, "vocab_size": 300}
TINY |= {"max_position": 64}
TEXTS = ["def f(x):\n    return x\n"] * 4


def test_scratch_policy_when_made_depends_on_its_seed_only(policy_config):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, _ = build_policy(policy_config, TEXTS, seed=5)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    again, _ = build_policy(policy_config, TEXTS, seed=5)
    other, _ = build_policy(policy_config, TEXTS, seed=6)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_policy_when_saved_is_the_same_policy(policy_folder, policy_config):
    model, tokenizer = load_policy(policy_config, policy_folder), load_tokenizer(policy_folder)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.config.eos_token_id == tokenizer.eos_token_id
    again, _ = build_policy(PolicyConfig(kind="huggingface", path=policy_folder))
    ids = torch.tensor([[1, 5, 9, 200]])
    assert torch.equal(model(ids).logits, again(ids).logits)
    assert model.config.vocab_size >= len(tokenizer)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "magic"}, "policy.kind"),
        ({"kind": "huggingface"}, "policy.path is empty"),
        ({"kind": "gguf"}, "gguf file"),
        ({"kind": "huggingface", "path": "/nowhere/model"}, "/nowhere/model: no such folder"),
        ({"kind": "gguf", "path": "/nowhere/model.gguf"}, "/nowhere/model.gguf: no such file"),
        ({"kind": "gguf", "path": "/nowhere/model"}, "/nowhere/model: kind=gguf takes a .gguf file"),
        ({}, "policy.path is empty"),
        ({"kind": "scratch"}, "policy.hidden_size, policy.layers, .*: missing; .*policy=tiny"),
        ({**TINY, "layers": None}, "^policy.layers: missing"),
        ({**TINY, "hidden_size": 100, "heads": 3}, "size of a head"),
        ({"vocab_size": 100}, "policy.vocab_size"),
        ({"dtype": "float16"}, "policy.dtype"),
    ],
)
def test_policy_when_given_a_mistake_names_it_in_one_line(fields, message):
    with pytest.raises(UserError, match=message) as caught:
        build_policy(PolicyConfig(**fields), TEXTS)
    assert "\n" not in str(caught.value)


def test_policy_folder_when_its_weights_are_cut_short_is_named(tmp_path, policy_folder):
    shutil.copytree(policy_folder, tmp_path / "cut")
    os.truncate(tmp_path / "cut" / "model.safetensors", 1000)
    with pytest.raises(UserError, match=r"cut: its weights cannot be read \(.*\)$"):
        build_policy(PolicyConfig(kind="huggingface", path=str(tmp_path / "cut")))


def test_policy_folder_when_it_has_no_model_is_named(tmp_path):
    with pytest.raises(UserError, match="no config.json"):
        build_policy(PolicyConfig(kind="huggingface", path=str(tmp_path)))


@pytest.mark.parametrize(
    "fields",
    [
        {"zero_stage": 4},
        {"offload_optimizer": "cpu"},
        {"offload_parameters": "cpu", "zero_stage": 2},
        {"offload_optimizer": "nvme", "zero_stage": 2},
        {"schedule": "sine"},
        {"device": "tpu"},
        {"tokens_per_micro_batch": 0},
    ],
)
def test_learner_settings_when_they_cannot_work_are_named(fields):
    with pytest.raises(UserError, match="learner." + next(iter(fields))):
        LearnerConfig(**fields).validate()


@pytest.mark.parametrize(("group", "schema"), [("learner", LearnerConfig), ("algorithm", AlgorithmConfig)])
def test_learning_presets_when_merged_fit_their_schema(repository, group, schema):
    names = sorted(path.stem for path in (repository / "conf" / group).glob("*.yaml"))
    assert len(names) >= 3
    for name in names:
        with initialize_config_dir(str(repository / "conf" / group), version_base="1.3"):
            OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), compose(name))).validate()


def test_learning_configuration_when_imported_loads_no_torch():
    code = "import sys, cudal1_ray.learning.config, cudal1_ray.learning.types; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
