"""A policy in an engine of this process: what is wrong with its folder comes in one line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.rollout import RolloutConfig
from cudal1_ray.serving.optimize.text_policy import LocalPolicy
from tests.rollout.conftest import make_tiny_model


def cut_weights(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 1000)


def rename_architecture(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "nosuch"}))


@pytest.mark.parametrize(
    ("spoil", "named"),
    [(cut_weights, "model.safetensors: damaged"), (rename_architecture, "the engine cannot take it .*`nosuch`")],
)
def test_local_policy_when_its_folder_is_spoilt_names_the_fault_in_one_line(tmp_path, spoil, named):
    pytest.importorskip("vllm")
    make_tiny_model(tmp_path / "model", seed=0)
    spoil(tmp_path / "model")
    with pytest.raises(UserError, match=named) as fault:
        LocalPolicy(RolloutConfig(engine="vllm", device="cpu", dtype="float32"), str(tmp_path / "model"), False, 16)
    assert "\n" not in str(fault.value)
