"""vLLM for real, on the CPU, in this process."""

from __future__ import annotations

import os
import threading

import pytest
import torch

pytest.importorskip("vllm")

from cudal1_ray.rollout import EngineUnusable, RolloutConfig, SamplingParameters, WeightUpdateError, build_engine
from tests.rollout.conftest import MAX_MODEL_LEN, make_tiny_model
from tests.rollout.engine_cases import (
    GREEDY,
    PROMPTS,
    REQUESTS,
    SAMPLED,
    EngineCases,
    assert_logprobs,
    by_key,
    weights_of,
)


def config(**fields) -> RolloutConfig:
    return RolloutConfig(max_model_len=MAX_MODEL_LEN, kv_cache_gib=0.05, threads=1, log_level="ERROR", **fields)


@pytest.fixture(scope="module")
def vllm_engine(first_model):
    from vllm.model_executor.models import registry

    def refuse(_):
        raise AssertionError("vLLM looks at the model's class in another process")

    before = dict(os.environ)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_run_in_subprocess", refuse)
        patch.setattr(registry._LazyRegisteredModel, "_load_modelinfo_from_cache", lambda *_: None)
        engine = build_engine(config(), first_model.path)
    assert dict(os.environ) == before  # nothing of what vLLM wants leaks into children of this process
    yield engine
    engine.close()


class TestVllmEngine(EngineCases):
    @pytest.fixture
    def engine(self, vllm_engine):
        return vllm_engine

    def test_engines_when_given_a_seed_draw_the_same(self, engine, first_model):
        other = build_engine(RolloutConfig(engine="transformers", max_model_len=MAX_MODEL_LEN), first_model.path)
        here, there = by_key(engine.generate(REQUESTS, SAMPLED)), by_key(other.generate(REQUESTS, SAMPLED))
        other.close()
        assert {key: (c.token_ids, c.text) for key, c in here.items()} == {
            key: (c.token_ids, c.text) for key, c in there.items()
        }

    def test_prompts_when_longer_than_a_step_keep_their_seeds(self, engine):
        """More prompt tokens than fit one step: a chunked prompt would make vLLM rewind a generator and fail."""
        requests = [type(REQUESTS[0])(f"p{i}", tuple((7 * i + j) % 300 + 3 for j in range(90))) for i in range(60)]
        sampling = SamplingParameters(max_tokens=3, seed=1)
        first, again = by_key(engine.generate(requests, sampling)), by_key(engine.generate(requests, sampling))
        assert {k: c.token_ids for k, c in first.items()} == {k: c.token_ids for k, c in again.items()}

    def test_vllm_cache_when_weights_change_between_two_tokens_is_recomputed(self, engine, first_model, second_model):
        stream = engine.generate(REQUESTS[:3], SamplingParameters(n=16, max_tokens=40, seed=2))
        first = next(stream)
        start, version = len(first.token_ids), engine.policy_version
        engine.load_weights(weights_of(second_model), version + 1)
        rest = list(stream)
        engine.load_weights(weights_of(first_model), version + 2)
        checked = 0
        for completion in rest:
            if len(completion.token_ids) > start:
                prompt = PROMPTS[int(completion.request_id[1:])]
                new = second_model.logprobs(prompt, completion.token_ids)[start:]
                torch.testing.assert_close(torch.tensor(completion.logprobs[start:]), new, atol=1e-4, rtol=0)
                checked += 1
            assert completion.policy_version == version
        assert checked

    def test_completions_when_finished_leave_at_once(self, engine):
        short = list(engine.generate(REQUESTS[:1], SamplingParameters(n=64, max_tokens=80, seed=4)))
        lengths = [len(c.token_ids) for c in short]
        assert lengths == sorted(lengths) and lengths[0] < lengths[-1]


# An engine that is poisoned cannot be shared, and vLLM wants one engine per process at a time: these come last.


def test_engines_when_poisoned_or_closed_refuse(vllm_engine, first_model, tmp_path):
    weights = weights_of(first_model)
    del weights["model.layers.1.mlp.down_proj.weight"]
    with pytest.raises(WeightUpdateError, match="down_proj"):
        vllm_engine.load_weights(weights, 1)
    calls = (
        lambda: vllm_engine.generate(REQUESTS, GREEDY),
        lambda: vllm_engine.score([(PROMPTS[0], (1,))]),
        lambda: vllm_engine.load_weights(weights_of(first_model), 2),
        vllm_engine.pause,
    )
    for call in calls:
        with pytest.raises(EngineUnusable, match="poisoned"):
            call()
    threads = threading.active_count()
    vllm_engine.close()
    vllm_engine.close()
    with pytest.raises(EngineUnusable, match="poisoned"):
        vllm_engine.generate(REQUESTS, GREEDY)
    assert threading.active_count() <= threads

    # The owner builds another one, in the same process; this one with an output matrix of its own.
    first, second = (make_tiny_model(tmp_path / str(i), seed=i, tied=False) for i in range(2))
    engine = build_engine(config(enable_prefix_caching=False, block_size=64), first.path)
    assert_logprobs(first, engine.generate(REQUESTS, GREEDY))
    engine.load_weights(weights_of(second), 1)
    assert_logprobs(second, engine.generate(REQUESTS, GREEDY))
    engine.close()
