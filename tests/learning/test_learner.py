"""A real learner, DeepSpeed included, in one process on the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from learning_samples import some_sequences

from cudal1_ray.errors import UserError
from cudal1_ray.learning import AlgorithmConfig, TrainingSequence
from cudal1_ray.learning.policy import load_policy, load_tokenizer

ON_POLICY = AlgorithmConfig()


def scored(learner, sequences: list[TrainingSequence], temperature: float = 1.0) -> list[TrainingSequence]:
    """Return the sequences as if the learner itself had sampled them."""
    logprobs = learner.score(sequences, temperature)
    return [replace(s, sampling_logprobs=row) for s, row in zip(sequences, logprobs, strict=True)]


def weights(learner) -> dict[str, torch.Tensor]:
    return dict(learner.named_weights())


def assert_weights_close(a, b, atol: float) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=atol, msg=name)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_sft_when_sequences_are_few_learns_them_by_heart(make_learner, optimizer):
    learner, sequences = make_learner(optimizer=optimizer), some_sequences(4)
    passes = 140
    # A rate that falls: at a constant one Muon's last step may undo what one before it has learned.
    learner.start_stage({"adamw": 1e-2, "muon": 3e-3}[optimizer], 2 * passes, schedule="cosine")
    first = learner.train_sft(sequences, 2)
    for _ in range(passes - 1):
        last = learner.train_sft(sequences, 2)
    assert first["loss"] > 4 and last["loss"] < 0.2
    assert last["optimiser_steps"] == 2 and last["learner_tokens"] == sum(map(len, sequences))
    assert all(sum(row) > -0.3 * len(row) for row in learner.score(sequences))


def test_score_when_computed_equals_transformers(make_learner, policy_folder, policy_config):
    sequences, model = some_sequences(5), load_policy(policy_config, policy_folder)
    for temperature in (1.0, 0.7):
        for sequence, row in zip(sequences, make_learner().score(sequences, temperature), strict=True):
            ids = torch.tensor([sequence.prompt_token_ids + sequence.completion_token_ids])
            logprobs = torch.log_softmax(model(ids).logits[0] / temperature, -1)[len(sequence.prompt_token_ids) - 1 :]
            expected = [logprobs[i, token].item() for i, token in enumerate(sequence.completion_token_ids)]
            assert row == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "gspo", "reinforce", "grpo_leave_one_out"])
def test_policy_gradient_when_advantages_differ_raises_the_good_and_lowers_the_bad(make_learner, name):
    learner = make_learner()
    sequences = scored(learner, [replace(s, advantage=1.0 if i % 2 else -1.0) for i, s in enumerate(some_sequences(6))])
    learner.start_stage(1e-3)
    metrics = learner.train_policy_gradient(sequences, AlgorithmConfig(name=name))
    after = learner.score(sequences)
    for sequence, row in zip(sequences, after, strict=True):
        moved = sum(row) - sum(sequence.sampling_logprobs)
        assert moved * sequence.advantage > 0
    assert metrics["drift_max_abs"] < 1e-5 and metrics["ratio_mean"] == pytest.approx(1) and metrics["grad_norm"] > 0
    assert 0 < metrics["entropy"] < 6 and metrics["clip_fraction"] == 0


@pytest.mark.parametrize("normalisation", ["tokens", "sequences", "constant"])
def test_gradients_when_a_batch_is_cut_differently_are_the_same(make_learner, normalisation):
    sequences = some_sequences(9, sampled=True)
    sequences[2] = replace(sequences[2], weight=0.25)
    algorithm = AlgorithmConfig(loss_normalisation=normalisation)
    results = []
    for budget, chunk, packing in ((4096, 4096, False), (60, 4096, False), (1, 7, False), (100, 4096, True)):
        learner = make_learner(
            tokens_per_micro_batch=budget, logit_chunk_tokens=chunk, packing=packing, max_grad_norm=0.0, epsilon=1e-3
        )
        learner.start_stage(1e-2)
        metrics = learner.train_policy_gradient(sequences, algorithm)
        results.append((metrics, weights(learner)))
    for metrics, after in results[1:]:
        for key in ("loss", "grad_norm", "entropy", "drift_mean_abs", "drift_max_abs", "ratio_mean"):
            assert metrics[key] == pytest.approx(results[0][0][key], rel=1e-4, abs=1e-6), key
        assert_weights_close(after, results[0][1], atol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_scores_when_packed_padded_or_alone_are_the_same(make_learner, attention):
    sequences = some_sequences(8)
    alone = [row for s in sequences for row in make_learner().score([s])]
    for packing in (False, True):
        together = make_learner(packing=packing, policy_attention=attention).score(sequences)
        for row, expected in zip(together, alone, strict=True):
            assert row == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("zero_stage", "optimizer"), [(0, "adamw"), (0, "muon"), (1, "adamw"), (2, "adamw"), (3, "adamw")]
)
def test_learner_when_resumed_is_the_same_to_the_bit(make_learner, tmp_path, zero_stage, optimizer):
    sequences = some_sequences(8, sampled=True)
    algorithm = AlgorithmConfig(kl_coef=0.1, minibatches=3, epochs_per_batch=2)

    def work(learner, rounds: int) -> dict[str, float]:
        for _ in range(rounds):
            learner.train_sft(sequences, 3)
            metrics = learner.train_policy_gradient(sequences, algorithm)
        return metrics

    learner = make_learner(zero_stage=zero_stage, optimizer=optimizer, schedule="cosine")
    learner.start_stage(1e-2, total_steps=100, warmup_steps=3)
    learner.train_sft(sequences, 4)
    learner.set_reference_policy()
    work(learner, 1)
    learner.save_checkpoint(tmp_path)
    expected, before = work(learner, 2), weights(learner)
    resumed = make_learner(zero_stage=zero_stage, optimizer=optimizer, schedule="cosine", seed=99)
    resumed.load_checkpoint(tmp_path)
    resumed.start_stage(1e-2, total_steps=100, warmup_steps=3, resumed=True)
    metrics, after = work(resumed, 2), weights(resumed)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert expected["kl"] > 0
    assert {k: v for k, v in metrics.items() if "per_s" not in k} == {
        k: v for k, v in expected.items() if "per_s" not in k
    }


def test_checkpoint_when_of_another_kind_is_refused(make_learner, tmp_path):
    make_learner().save_checkpoint(tmp_path / "zero0")
    with pytest.raises(UserError, match="learner.zero_stage=0"):
        make_learner(zero_stage=1).load_checkpoint(tmp_path / "zero0")
    with pytest.raises(UserError, match="no learner checkpoint"):
        make_learner().load_checkpoint(tmp_path / "nothing")


@pytest.mark.parametrize(("saved", "loaded", "taken"), [(0, 3, False), (3, 0, False), (0, 2, True), (3, 3, True)])
def test_reference_policy_when_adapters_change_the_zero_stage_is_taken_where_ranks_hold_the_same_share(
    make_learner, tmp_path, saved, loaded, taken
):
    learner = make_learner(zero_stage=saved, policy_lora_rank=2)
    learner.set_reference_policy()
    learner.save_checkpoint(tmp_path)
    resumed = make_learner(zero_stage=loaded, policy_lora_rank=2)
    resumed.load_checkpoint(tmp_path, weights=False)
    assert resumed.has_reference_policy() == taken


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_zero_stages_when_training_compute_what_plain_training_does(make_learner, zero_stage):
    sequences = some_sequences(6, sampled=True)
    results = []
    for stage in (0, zero_stage):
        learner = make_learner(zero_stage=stage, tokens_per_micro_batch=64, logit_chunk_tokens=16, epsilon=1e-3)
        learner.start_stage(1e-2)
        learner.set_reference_policy()
        for _ in range(2):
            metrics = learner.train_policy_gradient(sequences, AlgorithmConfig(kl_coef=0.1))
        results.append((metrics, learner.score(sequences), weights(learner)))
    for key in ("loss", "kl", "grad_norm", "drift_mean_abs"):
        assert results[1][0][key] == pytest.approx(results[0][0][key], rel=1e-3), key
    assert_weights_close(results[1][2], results[0][2], atol=1e-5)


def test_kl_when_its_coefficient_grows_holds_the_policy_back_and_needs_a_reference(make_learner):
    sequences = some_sequences(6, sampled=True)
    with pytest.raises(UserError, match="kl_coef"):
        make_learner().train_policy_gradient(sequences, AlgorithmConfig(kl_coef=0.1))
    distances = []
    for kl_coef in (1e-9, 10.0):
        learner = make_learner()
        learner.start_stage(3e-3)
        learner.set_reference_policy()
        start = learner.score(sequences)
        for _ in range(10):
            metrics = learner.train_policy_gradient(sequences, AlgorithmConfig(kl_coef=kl_coef, tis_cap=0))
        distances.append(metrics["kl"])
        with learner._reference.in_place():
            assert learner.score(sequences) == start  # the reference stood still, and the exchange is undone
        assert learner.score(sequences) != start
    assert distances[1] < distances[0] / 4


def test_clipping_sets_in_when_a_batch_is_used_several_times(make_learner):
    learner = make_learner()
    sequences = scored(learner, some_sequences(6, sampled=True))
    learner.start_stage(1e-2)
    metrics = learner.train_policy_gradient(sequences, AlgorithmConfig(epochs_per_batch=4))
    assert metrics["optimiser_steps"] == 4 and metrics["clip_fraction"] > 0.05 and metrics["drift_max_abs"] < 1e-5


def test_temperature_when_sampled_at_is_that_of_the_gradient(make_learner):
    learner = make_learner()
    sequences = scored(learner, some_sequences(6, sampled=True), temperature=0.6)
    learner.start_stage(1e-4, temperature=0.6)
    assert learner.train_policy_gradient(sequences, ON_POLICY)["drift_max_abs"] < 1e-5
    learner.start_stage(1e-4)
    assert learner.train_policy_gradient(sequences, ON_POLICY)["drift_mean_abs"] > 0.05


def test_training_when_there_is_nothing_to_learn_changes_nothing(make_learner):
    learner = make_learner()
    learner.start_stage(1e-2)
    before = weights(learner)
    assert learner.train_policy_gradient([], ON_POLICY)["optimiser_steps"] == 0
    assert learner.train_sft([])["optimiser_steps"] == 0
    assert learner.score([]) == []
    assert_weights_close(weights(learner), before, atol=0)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_stage_when_new_starts_a_new_optimiser(make_learner, optimizer):
    sequences, results = some_sequences(4), []
    for resumed in (True, False):
        learner = make_learner(optimizer=optimizer)
        learner.start_stage(1e-2)
        learner.train_sft(sequences, 2)
        before = weights(learner)
        learner.start_stage(0.0, resumed=resumed)
        learner.start_stage(1e-2, resumed=resumed)
        learner.train_sft(sequences)
        results.append({k: v - before[k] for k, v in weights(learner).items()})
    fresh = make_learner(optimizer=optimizer)
    fresh.start_stage(1e-2)
    fresh.train_sft(sequences, 2)
    fresh._engine.optimizer.state.clear()
    before = weights(fresh)
    fresh.train_sft(sequences)
    expected = {k: v - before[k] for k, v in weights(fresh).items()}
    assert_weights_close(results[1], expected, atol=1e-7)
    assert any(not torch.allclose(results[0][k], expected[k], atol=1e-5) for k in expected)


def test_adapters_when_training_train_alone_and_are_published_merged(
    make_learner, policy_folder, policy_config, tmp_path
):
    sequences = some_sequences(4)
    learner = make_learner(policy_lora_rank=4, optimizer="muon")  # which adapters are not given to
    assert learner.score(sequences) == make_learner().score(sequences)
    start = weights(learner)
    learner.start_stage(2e-2)
    losses = [learner.train_sft(sequences)["loss"] for _ in range(30)]
    changed = {name for name, w in weights(learner).items() if not torch.equal(w, start[name])}
    assert losses[-1] < losses[0] - 0.1 and changed and all("_proj" in name for name in changed)
    learner.save_policy(tmp_path / "merged")
    merged = make_learner(policy_folder=str(tmp_path / "merged"))
    for row, expected in zip(merged.score(sequences), learner.score(sequences), strict=True):
        assert row == pytest.approx(expected, abs=1e-4)
    learner.save_checkpoint(tmp_path / "checkpoint")
    resumed = make_learner(policy_lora_rank=4, optimizer="muon")
    resumed.load_checkpoint(tmp_path / "checkpoint")
    assert resumed.score(sequences) == learner.score(sequences)
    assert load_tokenizer(str(tmp_path / "merged")).eos_token_id == 2


def test_autocast_when_scoring_is_not_used(make_learner):
    sequences = some_sequences(4, sampled=True)
    plain, cast = make_learner(), make_learner(autocast=True)
    assert plain.score(sequences) == cast.score(sequences)
    for learner in (plain, cast):
        learner.start_stage(0.0)
    exact, rounded = (learner.train_policy_gradient(sequences, ON_POLICY) for learner in (plain, cast))
    assert exact["loss"] != rounded["loss"]
    assert rounded["grad_norm"] == pytest.approx(exact["grad_norm"], rel=0.05)
    assert all(w.dtype == torch.float32 for w in weights(cast).values())


def test_recomputed_activations_when_training_change_nothing(make_learner):
    sequences, after = some_sequences(4), []
    for recompute in (False, True):
        learner = make_learner(policy_gradient_checkpointing=recompute)
        learner.start_stage(1e-2)
        learner.train_sft(sequences)
        after.append(weights(learner))
    assert_weights_close(*after, atol=1e-6)


def test_sequences_when_they_cannot_be_trained_on_are_named(make_learner):
    learner = make_learner()
    learner.start_stage(1e-2)
    with pytest.raises(ValueError, match="longest input is 64"):
        learner.train_sft([TrainingSequence((1,) * 60, (2,) * 10)])
    with pytest.raises(ValueError, match="both have tokens"):
        learner.train_sft([TrainingSequence((1,), ())])
    with pytest.raises(ValueError, match="sampling log-probabilities"):
        learner.train_policy_gradient([TrainingSequence((1,), (2,))], ON_POLICY)
    with pytest.raises(UserError, match="algorithm.name"):
        learner.train_policy_gradient([TrainingSequence((1,), (2,), (-1.0,))], AlgorithmConfig(name="ppo"))
    learner.start_stage(float("nan"))
    learner.train_sft(some_sequences(2))
    for _ in range(4):
        learner.train_sft(some_sequences(2))
    with pytest.raises(FloatingPointError):
        learner.train_sft(some_sequences(2))


@pytest.mark.parametrize(("zero_stage", "dtype"), [(0, "float32"), (0, "bfloat16"), (1, "bfloat16"), (3, "float32")])
def test_gradient_when_not_finite_is_left_out_and_the_next_step_is_made(make_learner, zero_stage, dtype):
    learner = make_learner(zero_stage=zero_stage, policy_dtype=dtype)
    sequences = some_sequences(4, sampled=True)
    learner.start_stage(1e-2)
    before = weights(learner)
    metrics = learner.train_policy_gradient([replace(s, advantage=float("inf")) for s in sequences], ON_POLICY)
    assert metrics["skipped_steps"] == 1 and metrics["optimiser_steps"] == 0
    assert_weights_close(weights(learner), before, atol=0.0)
    metrics = learner.train_policy_gradient(sequences, ON_POLICY)
    assert metrics["skipped_steps"] == 0 and metrics["optimiser_steps"] == 1 and metrics["grad_norm"] > 0
    after = weights(learner)
    assert any(not torch.equal(after[name], before[name]) for name in before)
    assert all(tensor.isfinite().all() for tensor in after.values())


def test_gradients_when_they_stay_not_finite_end_the_run(make_learner):
    learner = make_learner()
    sequences = [replace(s, advantage=float("inf")) for s in some_sequences(2, sampled=True)]
    learner.start_stage(1e-2)
    for _ in range(4):
        learner.train_policy_gradient(sequences, ON_POLICY)
    with pytest.raises(FloatingPointError, match="5 gradients in a row"):
        learner.train_policy_gradient(sequences, ON_POLICY)


def test_learner_when_another_library_ended_the_process_group_starts_again(make_learner):
    make_learner()
    torch.distributed.destroy_process_group()
    learner = make_learner()
    learner.start_stage(1e-2)
    assert learner.train_sft(some_sequences(2))["optimiser_steps"] == 1
