"""The transformers engine against plain forward passes."""

from __future__ import annotations

import threading

import pytest
import torch

from cudal1_ray.rollout import EngineUnusable, RolloutConfig, SamplingParameters, WeightUpdateError, build_engine
from cudal1_ray.rollout.config import WeightSyncConfig
from tests.rollout.conftest import MAX_MODEL_LEN, make_tiny_model
from tests.rollout.engine_cases import GREEDY, PROMPTS, REQUESTS, EngineCases, assert_logprobs, weights_of


def config(**fields) -> RolloutConfig:
    return RolloutConfig(engine="transformers", max_model_len=MAX_MODEL_LEN, threads=1, **fields)


class TestTransformersEngine(EngineCases):
    @pytest.fixture(scope="class")
    def engine(self, first_model):
        engine = build_engine(config(max_num_seqs=512), first_model.path)
        yield engine
        engine.close()


def test_completions_when_batches_are_small_are_the_same(first_model):
    engine = build_engine(config(max_num_seqs=3), first_model.path)
    completions = list(engine.generate(REQUESTS, SamplingParameters(n=4, max_tokens=24, seed=5)))
    assert len(completions) == 4 * len(REQUESTS)
    assert_logprobs(first_model, completions)
    engine.close()


def test_weights_when_they_lack_a_parameter_poison_the_engine(first_model):
    engine = build_engine(config(), first_model.path)
    weights = weights_of(first_model)
    del weights["model.layers.1.mlp.down_proj.weight"]
    with pytest.raises(WeightUpdateError, match="down_proj"):
        engine.load_weights(weights, 1)
    for call in (lambda: engine.generate(REQUESTS, GREEDY), lambda: engine.score([]), engine.pause):
        with pytest.raises(EngineUnusable, match="poisoned"):
            call()
    engine.close()


def test_cache_when_weights_change_between_two_tokens_is_recomputed(first_model, second_model):
    """The first completion ends under the old weights; what the others draw next is the new model's."""
    engine = build_engine(config(), first_model.path)
    stream = engine.generate(REQUESTS[:3], SamplingParameters(n=16, max_tokens=40, seed=2))
    first = next(stream)
    assert_logprobs(first_model, [first])
    engine.load_weights(weights_of(second_model), 1)
    rest = list(stream)
    start = len(first.token_ids)
    for completion in rest:
        prompt = PROMPTS[int(completion.request_id[1:])]
        new = second_model.logprobs(prompt, completion.token_ids)[start:]
        torch.testing.assert_close(torch.tensor(completion.logprobs[start:]), new, atol=1e-4, rtol=0)
        assert completion.policy_version == 0  # the oldest weights that had a part in it
    assert any(len(c.token_ids) > start for c in rest)
    engine.close()


def test_output_matrix_when_it_is_its_own_is_replaced(tmp_path):
    first, second = (make_tiny_model(tmp_path / str(i), seed=i, tied=False) for i in range(2))
    engine = build_engine(config(), first.path)
    engine.load_weights(weights_of(second), 1)
    assert_logprobs(second, engine.generate(REQUESTS, GREEDY))
    engine.close()


def test_pause_when_a_step_never_ends_times_out_and_poisons_the_engine(first_model):
    """Another thread is inside a step, as one that hangs on its device would be for good."""
    engine = build_engine(config(weight_sync=WeightSyncConfig(pause_timeout_s=0.2)), first_model.path)
    stepping, over = threading.Event(), threading.Event()

    def step() -> None:
        with engine._step_allowed():
            stepping.set()
            over.wait(60)

    thread = threading.Thread(target=step)
    thread.start()
    stepping.wait(60)
    with pytest.raises(WeightUpdateError, match="'pause' was not done after 0.2 s"):
        engine.load_weights(weights_of(first_model), 1)
    over.set()
    thread.join()
    with pytest.raises(EngineUnusable, match="poisoned"):
        engine.score([])
    assert engine.policy_version == 0
    engine.close()
