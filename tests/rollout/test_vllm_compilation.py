"""What an engine on a GPU compiles and captures, from its configuration; vLLM itself takes the arguments."""

from __future__ import annotations

import pytest

from cudal1_ray.rollout import RolloutConfig
from cudal1_ray.rollout.vllm_compilation import capture_sizes, compilation_arguments


def test_capture_sizes_when_most_is_given_end_there_and_pad_by_a_quarter_at_most():
    assert capture_sizes(1) == [1] and capture_sizes(12) == [1, 2, 4, 8, 10, 12]
    sizes = capture_sizes(256)
    assert sizes[-1] == 256 and len(sizes) == 24
    assert all(after <= 1.25 * before for before, after in zip(sizes[3:], sizes[4:], strict=False))


def test_compilation_arguments_when_eager_or_on_a_cpu_are_none():
    assert compilation_arguments(RolloutConfig(device="cuda", enforce_eager=True)) == {}
    assert compilation_arguments(RolloutConfig(device="cpu", enforce_eager=False)) == {}


@pytest.mark.parametrize(("compiled", "mode"), [(True, None), (False, "FULL_DECODE_ONLY")])
def test_compilation_arguments_when_given_to_vllm_are_taken(compiled, mode):
    config = RolloutConfig(device="cuda", enforce_eager=False, compile=compiled, max_num_seqs=64)
    settings = compilation_arguments(config)["compilation_config"]
    taken = pytest.importorskip("vllm.config").CompilationConfig(**settings)
    assert taken.cudagraph_capture_sizes == capture_sizes(64) and not taken.cudagraph_specialize_lora
    assert (taken.cudagraph_mode.name if mode else taken.mode) == mode
    from cudal1_ray.rollout.vllm_arguments import engine_arguments

    assert engine_arguments(config, "policy")["compilation_config"] == settings  # of training and of serving
