"""Low-rank adapters as both engines serve them, against the same model with the adapters merged in fp32."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("vllm")

from cudal1_ray.rollout import AdapterShape, RolloutConfig, SamplingParameters, WeightUpdateError, build_engine
from cudal1_ray.rollout.transports.gloo import GlooPublisher
from tests.rollout.conftest import MAX_MODEL_LEN, make_adapter
from tests.rollout.engine_cases import GREEDY, PROMPTS, REQUESTS, SAMPLED, assert_logprobs, weights_of

SHAPE = AdapterShape(rank=4, alpha=12.0)  # a rank that vLLM serves in a slot of 8, and a scale that is no power of two


@pytest.fixture(scope="module", params=["vllm", "transformers"])
def engine(request, first_model):
    config = RolloutConfig(
        engine=request.param, max_model_len=MAX_MODEL_LEN, kv_cache_gib=0.05, threads=1, log_level="ERROR"
    )
    engine = build_engine(config, first_model.path, SHAPE)
    yield engine
    engine.close()


def test_engine_when_no_adapter_was_loaded_is_the_base_policy(engine, first_model):
    assert engine.adapter == SHAPE and not engine.no_adapter_reason
    assert_logprobs(first_model, engine.generate(REQUESTS, GREEDY))


def test_adapters_when_updated_equal_those_merged_in_fp32(engine, first_model):
    for version in (1, 2, 3):
        weights, oracle = make_adapter(first_model, SHAPE, seed=version)
        before = {name: tensor.clone() for name, tensor in weights.items()}
        engine.load_weights(weights, version)
        completions = list(engine.generate(REQUESTS, SAMPLED))
        assert_logprobs(oracle, completions)
        assert {c.policy_version for c in completions} == {version}
        prompts = (PROMPTS[0], PROMPTS[3][:20])
        (scores,) = engine.score([prompts])
        torch.testing.assert_close(torch.tensor(scores), oracle.logprobs(*prompts), atol=1e-4, rtol=0)
        assert all(torch.equal(before[name], weights[name]) for name in weights)  # the sender's tensors are its own


def test_adapter_when_updated_between_two_tokens_changes_under_way(engine, first_model):
    first, _ = make_adapter(first_model, SHAPE, seed=4)
    second, oracle = make_adapter(first_model, SHAPE, seed=5)
    engine.load_weights(first, 4)
    stream = engine.generate(REQUESTS[:3], SamplingParameters(n=8, max_tokens=30, seed=2))
    begun = next(stream)
    engine.load_weights(second, 5)
    checked = 0
    for completion in stream:
        if len(completion.segments) == 2:
            start = completion.segments[0][0]
            expected = oracle.logprobs(PROMPTS[int(completion.request_id[1:])], completion.token_ids)[start:]
            torch.testing.assert_close(torch.tensor(completion.logprobs[start:]), expected, atol=1e-4, rtol=0)
            checked += 1
    assert begun.policy_version == 4 and checked


def test_adapters_when_sent_by_a_publisher_arrive_as_they_were_packed(engine, first_model):
    if engine._config.engine == "transformers":
        pytest.skip("the transformers engine takes weights in process only")
    weights, oracle = make_adapter(first_model, SHAPE, seed=6)
    publisher = GlooPublisher("127.0.0.1", 1 << 12, torch.float32, 30.0, 30.0)
    sent = publisher.publish(iter(weights.items()))
    engine.load_weights(publisher.offer("engine", 1), 6)
    publisher.close()
    assert sent < sum(w.numel() * w.element_size() for w in weights_of(first_model).values())
    assert_logprobs(oracle, engine.generate(REQUESTS, GREEDY))


def test_adapter_when_of_no_layer_is_refused_by_name(engine, first_model):
    weights, _ = make_adapter(first_model, SHAPE, seed=7)
    weights = {name.replace("layers.1.mlp.down_proj", "layers.9.mlp.down_proj"): w for name, w in weights.items()}
    with pytest.raises(WeightUpdateError, match=r"layers\.9\.mlp\.down_proj"):
        engine.load_weights(weights, 8)
