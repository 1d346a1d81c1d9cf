"""The pure parts: seeds, draws, stop strings, configuration, timeouts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch
from omegaconf import OmegaConf

from cudal1_ray.errors import UserError
from cudal1_ray.rollout import RolloutConfig, SamplingParameters, WeightUpdateError, build_engine, derive_seed
from cudal1_ray.rollout.config import check_rollout_config
from cudal1_ray.rollout.decoding import cut_at_stop
from cudal1_ray.rollout.sampling import draw, mask_top_p, uniforms
from cudal1_ray.rollout.vllm_environment import applied
from cudal1_ray.rollout.weight_transfer import run_phase


def test_seeds_when_any_part_differs_differ():
    seeds = {derive_seed(s, r, i) for s in (0, 1) for r in ("a", "b", "a\x1f0") for i in (0, 1)}
    assert len(seeds) == 12 and all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(1, "r", 2) == derive_seed(1, "r", 2)


def test_draw_when_numbers_are_given_inverts_the_cumulative_distribution():
    p = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]]).repeat(5, 1)
    numbers = torch.tensor([0.0, 0.2499, 0.25, 0.7499, 1 - 2**-53], dtype=torch.float64)
    assert draw(p, numbers).tolist() == [1, 1, 3, 3, 4]


def test_rows_when_drawn_use_their_own_generators():
    def generators():
        return {i: torch.Generator().manual_seed(i) for i in range(4)}

    full = uniforms(4, generators())
    part = uniforms(5, {2: torch.Generator().manual_seed(2)})
    assert torch.equal(full, uniforms(4, generators())) and part[2] == full[2]
    assert len(set(full.tolist())) == 4


def test_top_p_when_applied_keeps_the_smallest_sufficient_set():
    logits = torch.tensor([[0.1, 0.6, 0.3], [0.4, 0.2, 0.4]]).log()
    kept = mask_top_p(logits, 0.7).isfinite()
    assert kept.tolist() == [[False, True, True], [True, False, True]]
    assert mask_top_p(logits, 0.01).isfinite().sum(-1).tolist() == [1, 1]
    assert mask_top_p(logits, 1.0) is logits


def test_stop_strings_when_several_match_cut_at_the_first():
    assert cut_at_stop("a ``` b END", ("END", "```")) == "a "
    assert cut_at_stop("abc", ("END",)) is None


@pytest.mark.parametrize("fields", [{"n": 0}, {"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.1}, {"max_tokens": 0}])
def test_sampling_parameters_when_senseless_are_refused(fields):
    with pytest.raises(UserError, match=f"sampling.{next(iter(fields))}="):
        SamplingParameters(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"engine": "sglang"},
        {"dtype": "fp32"},
        {"block_size": 48},
        {"kv_cache_gib": None},
        {"max_num_seqs": 0},
        {"engine": "transformers", "tensor_parallel": 2},
    ],
)
def test_rollout_config_when_senseless_is_refused(fields):
    with pytest.raises(UserError, match="rollout\\."):
        build_engine(RolloutConfig(**fields), "nowhere")


@pytest.mark.parametrize("preset", ["vllm_cpu", "vllm_gpu", "vllm_shared_gpu", "transformers"])
def test_rollout_presets_when_merged_fit_the_schema(repository, preset):
    merged = OmegaConf.merge(
        OmegaConf.structured(RolloutConfig), OmegaConf.load(repository / "conf" / "rollout" / f"{preset}.yaml")
    )
    check_rollout_config(OmegaConf.to_object(merged))


def test_environment_when_left_is_put_back(monkeypatch):
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("CHANGED", "1")
    with applied({"KEPT": None, "CHANGED": "2", "NEW": "3"}):
        assert "KEPT" not in os.environ and os.environ["CHANGED"] == "2"
        os.environ["LEFT_BEHIND"] = "4"
    assert os.environ["KEPT"] == "1" and os.environ["CHANGED"] == "1"
    assert "NEW" not in os.environ and "LEFT_BEHIND" not in os.environ


def test_phase_when_it_hangs_is_given_up():
    released, ended = threading.Event(), threading.Event()

    def hang() -> None:
        released.wait(60)
        ended.set()

    with pytest.raises(WeightUpdateError, match="'transfer' was not done after 0.05 s"):
        run_phase("transfer", hang, 0.05)
    assert not ended.is_set()
    released.set()


def test_rollout_package_when_imported_stays_light():
    code = "import sys, cudal1_ray.rollout; print([m for m in ('torch', 'vllm', 'transformers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
