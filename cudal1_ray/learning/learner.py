"""The learner: a policy, DeepSpeed around it, and the updates of all three stages.

One learner is one rank. All ranks get every call, with the same arguments; each takes its own share of the sequences,
and what is returned is the same everywhere. How sequences are cut into micro-batches and spread over ranks has no
influence on a gradient beyond rounding: denominators are those of the whole batch.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor

from cudal1_ray.errors import UserError
from cudal1_ray.learning import learner_state
from cudal1_ray.learning.adapter_files import save_adapter
from cudal1_ray.learning.attention import choose_attention, describe_attention
from cudal1_ray.learning.batching import (
    MicroBatch,
    Share,
    check_sequences,
    collate,
    group_parts,
    minibatches,
    plan_rank,
)
from cudal1_ray.learning.config import AlgorithmConfig, LearnerConfig, PolicyConfig
from cudal1_ray.learning.deepspeed_setup import (
    choose_device,
    deepspeed_config,
    gather_rows,
    start_engine,
    start_process_group,
    step_if_finite,
)
from cudal1_ray.learning.losses import aggregate, loss_denominator, sft_loss
from cudal1_ray.learning.metrics import MetricSums
from cudal1_ray.learning.policy import load_tokenizer, save_policy
from cudal1_ray.learning.policy_loss import TokenBatch, policy_loss
from cudal1_ray.learning.reference import ReferencePolicy
from cudal1_ray.learning.schedule import LearningRateSchedule
from cudal1_ray.learning.types import TrainingSequence
from cudal1_ray.learning.weights import build_module, gather_adapter, gather_weights, put_first_weights
from cudal1_ray.rollout.types import AdapterShape

_log = logging.getLogger("cudal1.learner")

# Steps in a row that may be left out because their gradient is not finite. One is an outlier; more mean that the
# weights themselves are worthless.
MOST_SKIPPED = 4

# (micro-batch, its share) -> loss of the micro-batch (its part of the whole batch's), sums for the metrics
LossFunction = Callable[[MicroBatch, Share], tuple[Tensor, dict[str, Tensor]]]


class Learner:
    """Trains the policy found at `model_path`.

    Args:
        config: the learner's.
        policy: how the policy computes (precision, attention, adapters); its `path` is not used.
        model_path: Hugging Face folder or hub name, or GGUF file, of the policy to start from.
        rank, world_size: which of how many learners this is; each has a process of its own.
        rendezvous: host and free port of rank 0; not needed when there is one rank.
        seed: decides the order of minibatches and fresh adapters.

    Attributes:
        attention: what the policy computes attention with; "auto" never, but what was chosen for it.
        adapter: rank and alpha of the adapters that train; None where all weights do.

    Raises:
        UserError: when the configuration or the path does not work.
    """

    def __init__(
        self,
        config: LearnerConfig,
        policy: PolicyConfig,
        model_path: str,
        rank: int = 0,
        world_size: int = 1,
        rendezvous: tuple[str, int] | None = None,
        seed: int = 0,
    ):
        config.validate()
        self.config, self.rank, self.world_size = config, rank, world_size
        self.adapter = AdapterShape(policy.lora_rank, policy.lora_alpha) if policy.lora_rank else None
        self._policy, self._model_path = policy, model_path
        self.device = torch.device(choose_device(config))
        start_process_group(self.device.type, rank, world_size, rendezvous, config.collective_timeout_s)
        bfloat16 = policy.dtype == "bfloat16"
        settings = deepspeed_config(config, bfloat16, self.device.type)
        half = bfloat16 or config.autocast
        self.attention = choose_attention(policy.attention, self.device.type, half=half, packing=config.packing)
        torch.manual_seed(seed)
        self.tokenizer = load_tokenizer(model_path)
        module = build_module(config, policy, model_path, settings, seed, self.attention)
        self.model = module.model
        self._engine = start_engine(module, config, settings, self.device.type)
        self._pad = self.tokenizer.pad_token_id or 0
        self._max_position = getattr(self.model.config, "max_position_embeddings", None)
        self._generator = torch.Generator().manual_seed(seed)
        self._reference: ReferencePolicy | None = None
        self._schedule = LearningRateSchedule(peak=0.0)
        self._temperature = 1.0
        self._step = 0  # optimiser steps of this stage
        self._skipped_in_a_row = 0
        _log.info("rank %d of %d: %s", rank, world_size, ", ".join(self.describe().values()))

    def describe(self) -> dict[str, str]:
        """Return how this learner computes, for a log: device, precision, shards, rows, attention, optimiser."""
        config = self.config
        fp32 = "fp32 weights" + (", products in bfloat16" if config.autocast else "")
        return {
            "device": self.device.type,
            "precision": "bfloat16 weights beside fp32 ones" if self._policy.dtype == "bfloat16" else fp32,
            "shards": f"ZeRO {config.zero_stage}",
            "rows": f"{'packed' if config.packing else 'padded'} rows of {config.tokens_per_micro_batch} tokens",
            "attention": f"attention {describe_attention(self.attention)}",
            "optimizer": config.optimizer,
        }

    def start_stage(
        self,
        learning_rate: float,
        total_steps: int = 0,
        warmup_steps: int = 0,
        temperature: float = 1.0,
        resumed: bool = False,
        schedule: str | None = None,
    ) -> None:
        """Begin a stage: set the learning rate, and the temperature that its completions are sampled at.

        Args:
            learning_rate: after warm-up.
            total_steps: optimiser steps of the stage, if known; linear and cosine schedules need it.
            schedule: the learning rate's; None takes `config.schedule`.
            resumed: the stage was under way when the checkpoint just loaded was made; else the optimiser's memory is
                cleared and the schedule starts at its first step.
            temperature: log-probabilities of policy-gradient updates are those at this sampling temperature.

        Raises:
            UserError: when the configured schedule needs `total_steps`.
        """
        self._schedule = LearningRateSchedule(
            learning_rate, schedule or self.config.schedule, warmup_steps, total_steps, self.config.final_rate_share
        )
        self._temperature = temperature
        if not resumed:
            self._step = 0
            learner_state.clear_optimiser(self._engine)

    def train_sft(self, sequences: Sequence[TrainingSequence], batch_sequences: int | None = None) -> dict[str, float]:
        """Make one pass of supervised fine-tuning over the sequences, in their order.

        Args:
            batch_sequences: sequences per optimiser step; None makes one step of all.

        Returns:
            loss (nats per completion token), grad_norm, learning_rate (of the last step), optimiser_steps,
            learner_tokens (prompts included), learner_tokens_per_s.

        Raises:
            FloatingPointError: when more than `MOST_SKIPPED` gradients in a row are not finite. A step with such a
                gradient is left out, and counted in `skipped_steps`.
        """
        started, sums = time.perf_counter(), MetricSums(self.device)
        size = batch_sequences or max(1, len(sequences))
        for first in range(0, len(sequences), size):
            batch = sequences[first : first + size]
            denominator = loss_denominator(
                [len(s.completion_token_ids) for s in batch], [s.weight for s in batch], "tokens"
            )

            def loss_of(micro: MicroBatch, share: Share, denominator: float = denominator):
                logprobs, _ = self._engine(micro)
                losses, count = sft_loss(logprobs), len(share.indices)
                weights = micro.weights[micro.segments]
                totals = {"loss": (losses.detach() * weights).sum(), "tokens": weights.sum()}
                return aggregate(losses, micro.weights, micro.segments, count, "tokens", denominator), totals

            self._update(batch, loss_of, sums)
        values = sums.reduce()
        per_token = 1 / max(values.pop("tokens", 0.0), 1e-9)
        return self._finish({"loss": values.pop("loss", 0.0) * per_token, **values}, sequences, started)

    def train_policy_gradient(
        self, sequences: Sequence[TrainingSequence], algorithm: AlgorithmConfig
    ) -> dict[str, float]:
        """Make one policy-gradient update on a batch of sampled completions.

        Returns:
            loss, grad_norm, kl, entropy, clip_fraction, ratio_mean (importance ratio to the policy at the start of the
            batch), drift_mean_abs and drift_max_abs (engine against learner, nats), and the last four of `train_sft`.
            Without sequences no step is made, and only the counts are there. A prompt's completions stay together.

        Raises:
            UserError: on an unknown algorithm, or one with a KL term before `set_reference_policy`.
            ValueError: when a sequence has no sampling log-probabilities.
            FloatingPointError: when more than `MOST_SKIPPED` gradients in a row are not finite. A step with such a
                gradient is left out, and counted in `skipped_steps`.
        """
        algorithm.validate()
        started, sums, sequences = time.perf_counter(), MetricSums(self.device), list(sequences)
        if any(not s.sampling_logprobs for s in sequences):
            raise ValueError("a sequence without sampling log-probabilities: only train_sft takes those")
        if not sequences:
            return self._finish({}, sequences, started)
        groups, epochs = [s.group for s in sequences], range(algorithm.epochs_per_batch)
        steps = len(epochs) * group_parts(groups, algorithm.minibatches)
        old = self._score(sequences, precise=False) if steps > 1 else None
        reference = None
        if algorithm.kl_coef > 0:
            if self._reference is None:
                raise UserError("algorithm.kl_coef is above 0, but there is no reference: call set_reference_policy")
            with self._reference.in_place():
                reference = self._score(sequences, precise=False)
        for batch in (part for _ in epochs for part in minibatches(groups, algorithm.minibatches, self._generator)):
            chosen = [sequences[i] for i in batch]
            loss_of = self._policy_loss_of(batch, chosen, algorithm, old, reference)
            self._update(chosen, loss_of, sums)
        values = sums.reduce()
        tokens = max(values["tokens"], 1.0)
        means = {"clipped": "clip_fraction", "ratio": "ratio_mean", "drift": "drift_mean_abs"}
        metrics = {means.get(k, k): v / tokens for k, v in values.items() if k in (*means, "kl", "entropy")}
        metrics |= {k: values[k] for k in ("grad_norm", "learning_rate", "optimiser_steps", "skipped_steps")}
        metrics |= {"loss": values["loss"] / max(1.0, values["optimiser_steps"]), "drift_max_abs": values["drift_max"]}
        return self._finish(metrics, sequences, started)

    def score(self, sequences: Sequence[TrainingSequence], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Return log-probabilities of the completions' tokens, without autocast, one tuple per sequence."""
        return [tuple(row.tolist()) for row in self._score(sequences, precise=True, temperature=temperature)]

    def has_reference_policy(self) -> bool:
        return self._reference is not None

    def set_reference_policy(self) -> None:
        """Make the policy as it is now the reference of the KL term."""
        self._reference = ReferencePolicy(self._engine)

    def named_weights(self, on_device: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Yield (Hugging Face name, tensor), adapters merged, to rank 0; all ranks must exhaust it.

        Args:
            on_device: tensors on the learner's device, for a publisher that packs a copy there anyway: they change
                when the learner makes a step. Else copies on the CPU.
        """
        return gather_weights(self._engine, self.model, self.rank, to_cpu=not on_device)

    def adapter_weights(self, on_device: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Yield (PEFT's name, tensor) of the adapters alone, nothing where all weights train; see `named_weights`."""
        return gather_adapter(self._engine, self.model, self.rank, to_cpu=not on_device)

    def save_adapter(self, folder: str | Path) -> None:
        """Write the adapters in PEFT's format, from rank 0. Does nothing where all weights train."""
        if self.adapter is None:
            return
        weights = dict(self.adapter_weights())
        if self.rank == 0:
            save_adapter(folder, weights, self.adapter, self._policy.path or self._model_path)

    def save_policy(self, folder: str | Path) -> None:
        """Write the policy as a Hugging Face folder, adapters merged, from rank 0."""
        weights = dict(self.named_weights())
        if self.rank == 0:
            save_policy(self.model, self.tokenizer, folder, weights)

    def save_checkpoint(self, folder: str | Path) -> None:
        """Write all that a learner of the same shape needs to go on as if nothing had happened."""
        stage = {"schedule": asdict(self._schedule), "temperature": self._temperature, "step": self._step}
        reference = self._reference.state() if self._reference else None
        state = {"stage": stage, "reference": reference}
        learner_state.save(self._engine, Path(folder), self.rank, self.world_size, state, self._generator)

    def load_checkpoint(self, folder: str | Path, weights: bool = True) -> None:
        """Continue from a checkpoint.

        Args:
            weights: and optimiser, from DeepSpeed's files; False leaves both as they are, for a learner that was
                started with the checkpoint's adapter.

        Raises:
            UserError: when `weights` are to be loaded and there is no checkpoint, or one of another number of ranks or
                another ZeRO stage.
        """
        if weights:
            state = learner_state.load(self._engine, Path(folder), self.rank, self.world_size, self._generator)
        elif not (state := learner_state.load_own(Path(folder), self.rank, self._generator)):
            return
        stage = state["stage"]
        self._schedule, self._temperature = LearningRateSchedule(**stage["schedule"]), stage["temperature"]
        self._step = stage["step"]
        saved, shape = state["reference"], state["shape"]
        sharded = self.config.zero_stage == 3  # a rank then holds its shards alone, of the reference too
        same_share = shape["world_size"] == self.world_size and (shape["zero_stage"] == 3) == sharded
        fits = saved is not None and same_share
        self._reference = ReferencePolicy(self._engine, saved) if fits else None

    def load_first_weights(self, adapter: str = "") -> None:
        """Replace the weights by those that a learner starts with, from the adapter in this folder or without one."""
        policy = replace(self._policy, adapter=adapter)
        put_first_weights(self._engine, self.model, policy, self._model_path, self.rank)

    def _policy_loss_of(
        self,
        batch: list[int],
        chosen: list[TrainingSequence],
        algorithm: AlgorithmConfig,
        old: list[Tensor] | None,
        reference: list[Tensor] | None,
    ) -> LossFunction:
        lengths, weights = [len(s.completion_token_ids) for s in chosen], [s.weight for s in chosen]
        denominator = loss_denominator(lengths, weights, algorithm.loss_normalisation, algorithm.loss_constant_tokens)
        entropies = "gradient" if algorithm.entropy_coef > 0 else "value" if self.config.log_entropy else "none"

        def loss_of(micro: MicroBatch, share: Share) -> tuple[Tensor, dict[str, Tensor]]:
            logprobs, entropy = self._engine(micro, self._temperature, entropies)

            def at_tokens(rows: list[Tensor]) -> Tensor:
                return torch.cat([rows[batch[i]] for i in share.indices]).to(self.device)

            tokens = TokenBatch(
                logprobs=logprobs,
                old_logprobs=logprobs.detach() if old is None else at_tokens(old),
                sampling_logprobs=micro.sampling_logprobs,
                reference_logprobs=None if reference is None else at_tokens(reference),
                entropies=entropy,
                advantages=micro.advantages,
                weights=micro.weights,
                segments=micro.segments,
            )
            loss, sums = policy_loss(tokens, algorithm, denominator)
            return loss, {"loss": loss.detach(), **sums}

        return loss_of

    def _update(self, sequences: Sequence[TrainingSequence], loss_of: LossFunction, sums: MetricSums) -> None:
        """Make one optimiser step on a whole batch; add to `sums` what `loss_of` reports."""
        shares = self._shares(sequences)
        self._engine.train()
        for i, share in enumerate(shares):
            self._engine.set_gradient_accumulation_boundary(i == len(shares) - 1)
            loss, values = loss_of(self._collate(sequences, share), share)
            sums.add(values)
            # DeepSpeed averages gradients over ranks; the loss has its denominator already, so they are to be added.
            self._engine.backward(loss * self.world_size, scale_wrt_gas=False)
        rate = self._schedule.rate(self._step)
        norm = step_if_finite(self._engine, self.config, rate)
        if not math.isfinite(norm):
            self._skipped_in_a_row += 1
            sums.skip()
            if self._skipped_in_a_row > MOST_SKIPPED:
                raise FloatingPointError(
                    f"{self._skipped_in_a_row} gradients in a row are not finite, at step {self._step}: lower the "
                    "learning rate, then the same command continues from the last checkpoint"
                )
            return
        self._skipped_in_a_row = 0
        self._step += 1
        sums.step(norm, rate)

    def _score(
        self, sequences: Sequence[TrainingSequence], precise: bool, temperature: float | None = None
    ) -> list[Tensor]:
        """Return log-probabilities per sequence, [tokens] fp32 on the CPU, the same on every rank."""
        if not sequences:
            return []
        self._engine.eval()
        temperature = self._temperature if temperature is None else temperature
        mine: dict[int, Tensor] = {}
        with torch.no_grad():
            for share in self._shares(sequences):
                micro = self._collate(sequences, share)
                logprobs, _ = self._engine(micro, temperature, "none", precise)
                if not share.spare:
                    lengths = [len(sequences[i].completion_token_ids) for i in share.indices]
                    mine |= dict(zip(share.indices, logprobs.cpu().split(lengths), strict=True))
        rows = gather_rows(mine, self.world_size)
        return [rows[i] for i in range(len(sequences))]

    def _shares(self, sequences: Sequence[TrainingSequence]) -> list[Share]:
        check_sequences(sequences, self._max_position)
        lengths, config = [len(s) for s in sequences], self.config
        return plan_rank(lengths, config.tokens_per_micro_batch, config.packing, self.rank, self.world_size)

    def _collate(self, sequences: Sequence[TrainingSequence], share: Share) -> MicroBatch:
        return collate(sequences, share, self.config.packing, self._pad).to(self.device)

    def _finish(
        self, metrics: dict[str, float], sequences: Sequence[TrainingSequence], started: float
    ) -> dict[str, float]:
        tokens = sum(len(s) for s in sequences) * 1.0
        rate = tokens / max(time.perf_counter() - started, 1e-9)
        return {"optimiser_steps": 0.0, **metrics, "learner_tokens": tokens, "learner_tokens_per_s": rate}
