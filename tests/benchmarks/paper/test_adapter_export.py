"""A run's adapter as a folder for others, with its model card."""

from __future__ import annotations

import json

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from benchmarks.common.results import write_result
from benchmarks.paper import adapter, arms, collect


@pytest.fixture
def run(runs):
    """Return the run of an arm whose last checkpoint has an adapter."""
    folder = runs / arms.run_name("bucket", 1)
    weights = folder / "checkpoints" / "contrastive-final" / "adapter"
    weights.mkdir(parents=True)
    (weights.parent / "state").mkdir()
    save_file({"a": torch.ones(2)}, weights / adapter.WEIGHTS)
    (weights / adapter.CONFIGURATION).write_text(json.dumps({"r": 4, "base_model_name_or_path": str(folder)}))
    return folder


def export(run, out, *options: str) -> None:
    adapter.main([str(run), "--base-model", "org/model", "--license", "apache-2.0", "--out", str(out), *options])


def test_adapter_when_exported_has_weights_configuration_and_a_card(run, runs, tmp_path, monkeypatch):
    monkeypatch.setattr(adapter, "LIMIT_MIB", 6 / adapter.MIB)  # two weights have 8 bytes in single precision
    write_result(result := tmp_path / "arms.json", collect.collect([runs]), {})
    out = tmp_path / "adapter"
    export(run, out, "--result", str(result), "--note", "Its base was quantised.")
    assert (weights := load_file(out / adapter.WEIGHTS)["a"]).tolist() == [1.0, 1.0] and weights.dtype == torch.bfloat16
    assert json.loads((out / adapter.CONFIGURATION).read_text()) == {"r": 4, "base_model_name_or_path": "org/model"}
    _, front, text = (out / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(front)["base_model"] == "org/model" and yaml.safe_load(front)["library_name"] == "peft"
    assert "checkpoint `contrastive-final` of the arm *contrastive, bucket*" in text
    assert "| + contrastive, bucket | 1 | " in text and "base model, zero-shot" not in text
    assert "6 samples and 3 evaluations in this stage, in 1.0 minutes, on NVIDIA H100 80GB HBM3." in text
    assert str(tmp_path) not in text and "other prompts were not tried. Its base was quantised.\n" in text
    content = collect.collect([runs])
    del content["arms"]["bucket"]["seeds"]["1"]
    write_result(result, content, {})
    export(run, out, "--result", str(result))  # in the place of the former; the result has only another seed
    assert "Not yet assessed." in (out / "README.md").read_text()
    export(run, out)
    assert "Not yet assessed." in (out / "README.md").read_text()


@pytest.mark.parametrize(("arm", "options", "message"), [
    ("bucket", ["--policy", "sft-final"], "no checkpoint sft-final .it has contrastive-final"),
    ("stage1", [], "no checkpoint sft-final .it has none"),
    ("nothing", [], "no run is there"),
])  # fmt: skip
def test_adapter_when_a_run_has_none_is_refused(run, runs, tmp_path, arm, options, message):
    with pytest.raises(adapter.UserError, match=message):
        export(runs / f"seed-1-{arm}", tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


def test_adapter_when_the_folder_names_no_arm_is_exported_with_the_arm_given(run, tmp_path):
    other = run.rename(run.with_name("kb"))
    with pytest.raises(adapter.UserError, match="give --arm, one of evolution, stage1"):
        export(other, tmp_path / "out")
    export(other, tmp_path / "out", "--arm", "bucket")
    assert "of the arm *contrastive, bucket*" in (tmp_path / "out" / "README.md").read_text()


def test_adapter_when_the_folder_holds_something_else_leaves_it_alone(run, tmp_path):
    (tmp_path / "kept.txt").write_text("kept")
    with pytest.raises(adapter.UserError, match="holds no adapter"):
        export(run, tmp_path)
    assert (tmp_path / "kept.txt").exists()


def test_adapter_when_larger_than_the_limit_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr(adapter, "LIMIT_MIB", 1e-6)
    with pytest.raises(adapter.UserError, match="train with a lower rank"):
        export(run, tmp_path / "out")
