"""Packed rows: the same numbers as one sequence at a time, whatever DeepSpeed does around them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from learning_samples import some_sequences

from cudal1_ray.errors import UserError
from cudal1_ray.learning import AlgorithmConfig, LearnerConfig, TrainingSequence
from cudal1_ray.learning import attention as attention_module
from cudal1_ray.learning.attention import choose_attention, segment_attention, varlen_attention
from cudal1_ray.learning.batching import Share, collate
from cudal1_ray.learning.induction import ROTARY_BASE


def tiny_qwen(attention: str, **fields):
    """Return a Qwen2 with shared key/value heads, the same weights every time."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    torch.manual_seed(0)
    shape = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=300)
    config = Qwen2Config(**shape, num_key_value_heads=2, max_position_embeddings=128, use_cache=False, **fields)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


def packed_logits(model, sequences: list[TrainingSequence]) -> list[torch.Tensor]:
    """Return logits of each sequence out of one packed row."""
    batch = collate(sequences, Share(tuple(range(len(sequences)))), packing=True, pad_token_id=0)
    where = {"cu_seq_lens_q": batch.bounds, "cu_seq_lens_k": batch.bounds, "max_length_q": batch.longest}
    logits = model(input_ids=batch.input_ids, position_ids=batch.position_ids, **where).logits[0]
    return list(logits.split([len(s) for s in sequences] + [len(logits) - sum(map(len, sequences))]))[:-1]


@pytest.mark.parametrize("name", ["cudal1_segments", "cudal1_varlen"])
@pytest.mark.parametrize("window", [None, 7])
def test_attention_when_rows_are_packed_is_attention_over_each_sequence(name, window):
    fields = {} if window is None else {"use_sliding_window": True, "sliding_window": window, "max_window_layers": 1}
    ours, theirs = tiny_qwen(name, **fields), tiny_qwen("eager", **fields)
    sequences = some_sequences(6)
    with torch.no_grad():
        for sequence, logits in zip(sequences, packed_logits(ours, sequences), strict=True):
            ids = torch.tensor([sequence.prompt_token_ids + sequence.completion_token_ids])
            torch.testing.assert_close(logits, theirs(ids).logits[0], rtol=0, atol=1e-5)
            torch.testing.assert_close(ours(ids).logits[0], theirs(ids).logits[0], rtol=0, atol=1e-5)


def test_sequence_when_packed_beside_others_sees_none_of_them():
    model, sequences = tiny_qwen("cudal1_segments"), some_sequences(5)
    changed = [replace(s, prompt_token_ids=tuple(t + 1 for t in s.prompt_token_ids)) for s in sequences]
    changed[2] = sequences[2]
    with torch.no_grad():
        before, after = packed_logits(model, sequences), packed_logits(model, changed)
    assert torch.equal(before[2], after[2])
    assert all(not torch.equal(before[i], after[i]) for i in (0, 1, 3, 4))


def test_attention_when_auto_is_chosen_by_device_and_precision():
    assert choose_attention("auto", "cuda", half=True, packing=True) == "varlen"
    assert choose_attention("auto", "cuda", half=False, packing=True) == "segments"
    assert choose_attention("auto", "cpu", half=True, packing=True) == "segments"
    assert choose_attention("auto", "cuda", half=True, packing=False) == "sdpa"
    assert choose_attention("eager", "cuda", half=True, packing=True) == "eager"


def test_attention_when_neither_kernel_computes_a_term_is_refused():
    query = torch.zeros(1, 2, 8, 4)
    for function in (varlen_attention, segment_attention):
        with pytest.raises(UserError, match="softcap"):
            function(torch.nn.Module(), query, query, query, None, softcap=30.0)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (("is_causal",), {"is_causal": True}),
        (("window_size", "scale"), {"window_size": (-1, 0), "scale": 0.5}),
        (("window_size", "scale", "enable_gqa"), {"window_size": (-1, 0), "scale": 0.5, "enable_gqa": True}),
    ],
)
def test_flash_options_when_a_release_has_other_parameters_use_its_names(monkeypatch, parameters, expected):
    monkeypatch.setattr(attention_module, "_FLASH_PARAMETERS", frozenset(parameters))
    assert attention_module._flash_options(-1, 0.5, size=4, grouped=True) == expected
    if "window_size" not in parameters:
        with pytest.raises(UserError, match="segments"):
            attention_module._flash_options(3, 0.5, size=4, grouped=True)
        with pytest.raises(UserError, match="segments"):
            attention_module._flash_options(-1, 0.7, size=4, grouped=True)


def test_flash_options_when_torch_is_the_installed_one_are_its_parameters():
    import inspect

    from torch.nn.attention.varlen import varlen_attn

    options = attention_module._flash_options(-1, 0.5, size=4, grouped=True)
    inspect.signature(varlen_attn).bind(*[None] * 7, **options)


def test_flash_attention_when_compiled_is_one_graph_with_its_gradient(monkeypatch):
    """Traced on shapes alone: what a compiled block asks of the kernel is what the installed torch offers."""
    monkeypatch.setattr(attention_module, "_flash_takes", lambda value: True)
    module, compiled = (
        torch.nn.Module(),
        torch.compile(varlen_attention, fullgraph=True, dynamic=True, backend="aot_eager"),
    )
    for tokens, spans in ((40, 4), (48, 7)):
        rows = [torch.empty(1, heads, tokens, 64, device="meta", dtype=torch.bfloat16) for heads in (4, 2, 2)]
        query, key, value = (row.requires_grad_() for row in rows)
        bounds = torch.empty(spans, device="meta", dtype=torch.int32)
        out, _ = compiled(module, query, key, value, None, cu_seq_lens_q=bounds, max_length_q=tokens - 9, scaling=0.125)
        assert out.shape == (1, tokens, 4, 64)
        out.sum().backward()
        assert query.grad.shape == query.shape and key.grad.shape == key.shape


WAYS = {
    "zero 1": {"zero_stage": 1},
    "zero 2, offload": {"zero_stage": 2, "offload_optimizer": "cpu"},
    "zero 2, adapters": {"zero_stage": 2, "policy_lora_rank": 4},
    "zero 3, recomputing": {"zero_stage": 3, "policy_gradient_checkpointing": True},
}
MORE_WAYS = {
    "zero 0": {"zero_stage": 0},
    "zero 0, adapters, recomputing": {"policy_lora_rank": 4, "policy_gradient_checkpointing": True},
    "zero 3, offload": {"zero_stage": 3, "offload_optimizer": "cpu", "offload_parameters": "cpu"},
    "zero 3, adapters": {"zero_stage": 3, "policy_lora_rank": 4, "policy_gradient_checkpointing": True},
}
LONG = pytest.mark.long


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, id=name) for name, way in WAYS.items()]
    + [pytest.param(way, id=name, marks=LONG) for name, way in MORE_WAYS.items()],
)
def test_training_when_packed_is_plain_training(make_learner, way):
    """Against one padded row per sequence, without ZeRO; losses, gradients and what they make of the weights."""
    sequences = some_sequences(7, sampled=True)
    algorithm = AlgorithmConfig(kl_coef=0.1, entropy_coef=0.01)
    results = []
    plain = {"tokens_per_micro_batch": 1, "policy_lora_rank": way.get("policy_lora_rank", 0)}
    packed = {"packing": True, "tokens_per_micro_batch": 96, "logit_chunk_tokens": 16, **way}
    for fields in (plain, packed):
        learner = make_learner(epsilon=1e-3, **fields)
        learner.start_stage(1e-2)
        learner.set_reference_policy()
        learner.train_sft(sequences, 4)
        metrics = learner.train_policy_gradient(sequences, algorithm)
        results.append((metrics, learner.score(sequences), dict(learner.named_weights())))
    assert learner.attention == "segments"
    for key in ("loss", "kl", "entropy", "grad_norm", "drift_mean_abs", "ratio_mean"):
        assert results[1][0][key] == pytest.approx(results[0][0][key], rel=1e-4, abs=1e-6), key
    for row, expected in zip(results[1][1], results[0][1], strict=True):
        assert row == pytest.approx(expected, rel=2e-5, abs=2e-5)
    for name, weight in results[0][2].items():
        torch.testing.assert_close(results[1][2][name], weight, rtol=0, atol=1e-5, msg=name)


@pytest.mark.parametrize("zero_stage", [0, pytest.param(1, marks=LONG), 2, 3])
def test_bfloat16_weights_when_trained_packed_resume_exactly(make_learner, tmp_path, zero_stage):
    fields = {"policy_dtype": "bfloat16", "packing": True, "tokens_per_micro_batch": 96, "zero_stage": zero_stage}
    sequences, learner = some_sequences(6), make_learner(**fields)
    learner.start_stage(1e-2)
    first = learner.train_sft(sequences)
    for _ in range(15):
        learner.train_sft(sequences)
    learner.save_checkpoint(tmp_path)
    last = learner.train_sft(sequences)
    assert last["loss"] < first["loss"] - 0.5 and first["grad_norm"] > 0
    weights = dict(learner.named_weights())
    assert all(w.dtype == torch.bfloat16 for w in weights.values())
    resumed = make_learner(seed=9, **fields)
    resumed.load_checkpoint(tmp_path)
    resumed.start_stage(1e-2, resumed=True)
    assert resumed.train_sft(sequences)["loss"] == last["loss"]
    assert all(torch.equal(w, weights[name]) for name, w in resumed.named_weights())


@pytest.mark.parametrize(
    ("dtype", "zero_stage"), [("float32", 0), ("bfloat16", 0), ("bfloat16", 1), pytest.param("float32", 3, marks=LONG)]
)
def test_gradients_when_clipped_are_bounded_in_every_stage_and_type(make_learner, dtype, zero_stage):
    def moved(max_grad_norm):
        fields = {"policy_dtype": dtype, "zero_stage": zero_stage, "packing": True, "epsilon": 1e-3}
        learner = make_learner(max_grad_norm=max_grad_norm, weight_decay=0.0, **fields)
        learner.start_stage(1e-2)
        before = {name: weight.clone() for name, weight in learner.named_weights()}
        assert learner.train_sft(some_sequences(4))["grad_norm"] > 1e-3  # as it was before
        return sum(float((weight - before[name]).abs().sum()) for name, weight in learner.named_weights())

    assert moved(1e-8) < 1e-3 * moved(0.0)


@pytest.mark.parametrize("zero_stage", [pytest.param(1, marks=LONG), 2, 3])
def test_gradients_when_micro_batches_are_many_are_added_in_fp32(make_learner, zero_stage):
    """256 micro-batches of one sequence: in bfloat16 the later ones would hardly count."""
    sequence = TrainingSequence((5, 6, 7), (8, 9, 10, 11))
    norms = []
    for copies in (1, 256):
        learner = make_learner(policy_dtype="bfloat16", zero_stage=zero_stage, tokens_per_micro_batch=1, packing=True)
        learner.start_stage(0.0)
        norms.append(learner.train_sft([sequence] * copies)["grad_norm"])
    assert norms[1] == pytest.approx(norms[0], rel=0.005)


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_positions_when_weights_are_bfloat16_are_not_rounded(make_learner, zero_stage):
    """In bfloat16 a rotary frequency is off by up to 0.2%: nothing near the start, a radian at 1,000 tokens."""
    rotary = make_learner(policy_dtype="bfloat16", zero_stage=zero_stage).model.model.rotary_emb
    expected = ROTARY_BASE ** -(torch.arange(0, 32, 2) / 32)
    torch.testing.assert_close(rotary.inv_freq, expected, rtol=1e-6, atol=0)


def test_learner_settings_when_they_exclude_each_other_are_named():
    with pytest.raises(UserError, match="learner.compile"):
        LearnerConfig(compile=True, zero_stage=3).validate()


@LONG
def test_blocks_when_compiled_compute_the_same(make_learner):
    results = []
    for compiled in (False, True):
        learner = make_learner(compile=compiled, packing=True, tokens_per_micro_batch=96)
        learner.start_stage(1e-2)
        metrics = [learner.train_sft(some_sequences(6, seed=i)) for i in range(3)]
        results.append(([m["loss"] for m in metrics], learner.score(some_sequences(4))))
    assert results[1][0] == pytest.approx(results[0][0], abs=1e-5)
    for row, expected in zip(results[1][1], results[0][1], strict=True):
        assert row == pytest.approx(expected, abs=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_flash_attention_when_on_a_gpu_equals_attention_over_each_sequence():
    """Forward and gradients, against fp32 attention over each sequence alone."""
    from torch.nn.functional import scaled_dot_product_attention

    lengths, module = [5, 700, 64, 1, 255], torch.nn.Module()
    bounds = torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)
    shapes = [(1, heads, sum(lengths), 64) for heads in (4, 2, 2)]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device="cuda").bfloat16().requires_grad_() for shape in shapes]
    exact = [x.detach().float().requires_grad_() for x in inputs]
    out, _ = varlen_attention(module, *inputs, None, cu_seq_lens_q=bounds, max_length_q=max(lengths))
    alone = [
        scaled_dot_product_attention(*[x[:, :, a:b] for x in exact], is_causal=True, enable_gqa=True)
        for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]
    expected = torch.cat(alone, dim=2).transpose(1, 2)
    slope = torch.randn_like(expected)
    out.backward(slope.bfloat16())
    expected.backward(slope)
    torch.testing.assert_close(out.float(), expected, rtol=0.02, atol=0.02)
    for ours, theirs in zip(inputs, exact, strict=True):
        torch.testing.assert_close(ours.grad.float(), theirs.grad, rtol=0.05, atol=0.1)


def test_learner_when_described_names_how_it_computes(make_learner):
    description = make_learner(packing=True, autocast=True, zero_stage=0).describe()
    assert "segments" in description["attention"] and description["rows"].startswith("packed")
    assert description["precision"] == "fp32 weights, products in bfloat16"
