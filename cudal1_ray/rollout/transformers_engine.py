"""Rollout on plain transformers: for machines without vLLM, and the oracle that vLLM is tested against."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from cudal1_ray.rollout.adapter_hooks import AdapterHooks
from cudal1_ray.rollout.config import RolloutConfig
from cudal1_ray.rollout.decoding import cut_at_stop, end_token_ids
from cudal1_ray.rollout.engine import ScoredSequence, WeightUpdateError
from cudal1_ray.rollout.lifecycle import PausableEngine
from cudal1_ray.rollout.sampling import draw, mask_top_p, uniforms
from cudal1_ray.rollout.types import (
    AdapterShape,
    Completion,
    GenerationRequest,
    SamplingParameters,
    derive_seed,
    version_segments,
)

# Sequences scored together.
SCORE_BATCH = 16
ABORTED = "aborted"
# Share of living rows below which finished ones are dropped from the batch.
COMPACT_BELOW = 0.75


@dataclass
class _DecodingRow:
    """A completion under way."""

    request: GenerationRequest
    index: int
    cuts: list[tuple[int, int]]  # see `version_segments`
    max_tokens: int
    generator: torch.Generator | None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str | None = None  # set where a stop string ended it
    finish_reason: str = ""

    @property
    def all_ids(self) -> tuple[int, ...]:
        return (*self.request.prompt_token_ids, *self.token_ids)


@dataclass
class _DecodingBatch:
    """Rows decoded together, left-padded: `mask` [rows, width] over everything the cache holds."""

    rows: list[_DecodingRow]
    cache: DynamicCache
    mask: torch.Tensor
    logits: torch.Tensor  # [rows, vocabulary] of the next token
    updates: int  # how many weight updates the engine had seen when the cache was computed


class TransformersEngine(PausableEngine):
    """`RolloutEngine` on a transformers model. Each batch of `max_num_seqs` completions is decoded to its end."""

    def __init__(self, config: RolloutConfig, model_path: str, adapter: AdapterShape | None = None):
        super().__init__(config, adapter)
        self._updates = 0
        self._under_way: list[list[_DecodingRow]] = []  # of each call
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        self._tokenizer = AutoTokenizer.from_pretrained(model_path, trust_remote_code=config.trust_remote_code)
        self._model = (
            AutoModelForCausalLM.from_pretrained(
                model_path, dtype=config.dtype, trust_remote_code=config.trust_remote_code
            )
            .to(config.device)
            .eval()
        )
        self._adapters = None if adapter is None else AdapterHooks(self._model, adapter)
        self._end_ids = frozenset(end_token_ids(model_path, self._tokenizer))
        self._generator = torch.Generator().manual_seed(config.seed)

    def _score(self, sequences: Sequence[ScoredSequence]) -> list[tuple[float, ...]]:
        scores: list[tuple[float, ...]] = []
        for start in range(0, len(sequences), SCORE_BATCH):
            chunk = sequences[start : start + SCORE_BATCH]
            ids, mask = self._padded([(*prompt, *completion) for prompt, completion in chunk])
            with self._lock, torch.inference_mode():
                logits = self._model(input_ids=ids, attention_mask=mask, position_ids=_positions(mask)).logits
                logprobs = logits[:, :-1].float().log_softmax(dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
            for row, (_, completion) in zip(logprobs, chunk, strict=True):
                scores.append(tuple(row[len(row) - len(completion) :].tolist()))
        return scores

    @torch.no_grad()
    def _replace_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        if self._adapters is not None:
            self._adapters.load(weights)
            return
        result = self._model.load_state_dict(dict(weights), strict=False)
        tied = set(self._model.all_tied_weights_keys or ())
        missing = [name for name in result.missing_keys if name not in tied]
        if missing or result.unexpected_keys:
            unexpected = list(result.unexpected_keys)
            raise WeightUpdateError(f"weight update failed: missing {missing[:3]}, unexpected {unexpected[:3]}")

    def _drop_caches(self) -> None:
        self._updates += 1

    def _abort(self, request_ids: frozenset[str]) -> None:
        for row in (row for rows in self._under_way for row in rows):
            if row.request.request_id in request_ids:
                row.finish_reason = ABORTED

    def _cut_completions(self) -> None:
        for row in (row for rows in self._under_way for row in rows):
            if not row.finish_reason:
                row.cuts.append((len(row.token_ids), self.policy_version))

    def close(self) -> None:
        self._close()
        with self._lock:
            self._model = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _generate(self, requests: tuple[GenerationRequest, ...], sampling: SamplingParameters) -> Iterator[Completion]:
        waiting = [self._row(request, index, sampling) for request in requests for index in range(sampling.n)]
        self._under_way.append(waiting)
        try:
            yield from self._decode_rows(waiting, sampling)
        finally:
            self._under_way = [rows for rows in self._under_way if rows is not waiting]

    def _decode_rows(self, waiting: list[_DecodingRow], sampling: SamplingParameters) -> Iterator[Completion]:
        size = self._config.max_num_seqs
        for start in range(0, len(waiting), size):
            rows, batch = waiting[start : start + size], None
            while rows:
                with self._step_allowed() as allowed, torch.inference_mode():
                    if not allowed:
                        continue
                    if not (rows := [row for row in rows if not row.finish_reason]):  # all given up
                        continue
                    if batch is None or batch.updates != self._updates:
                        batch = self._prefill(rows)
                    self._step(batch, sampling)
                    finished = [row for row in rows if row.finish_reason]
                    rows = [row for row in rows if not row.finish_reason]
                    if rows:
                        self._advance(batch, len(rows))
                for row in finished:
                    if row.finish_reason != ABORTED:
                        yield self._completion(row)

    def _row(self, request: GenerationRequest, index: int, sampling: SamplingParameters) -> _DecodingRow:
        generator = None
        if sampling.seed is not None:
            generator = torch.Generator().manual_seed(derive_seed(sampling.seed, request.request_id, index))
        cuts = [(0, self.policy_version)]
        return _DecodingRow(request, index, cuts, min(sampling.max_tokens, self._room(request)), generator)

    def _prefill(self, rows: list[_DecodingRow]) -> _DecodingBatch:
        """Compute the cache of everything the rows hold; equal prefixes once."""
        distinct = list(dict.fromkeys(row.all_ids for row in rows))
        place = {ids: i for i, ids in enumerate(distinct)}
        ids, mask = self._padded(distinct)
        output = self._model(
            input_ids=ids, attention_mask=mask, position_ids=_positions(mask), use_cache=True, logits_to_keep=1
        )
        order = torch.tensor([place[row.all_ids] for row in rows], device=ids.device)
        output.past_key_values.batch_select_indices(order)
        logits = output.logits[order, -1].float()
        return _DecodingBatch(list(rows), output.past_key_values, mask[order], logits, self._updates)

    def _step(self, batch: _DecodingBatch, sampling: SamplingParameters) -> None:
        """Draw the next token of every row that is alive."""
        if sampling.temperature == 0.0:
            logprobs = batch.logits.log_softmax(dim=-1)
            tokens = batch.logits.argmax(dim=-1)
        else:
            logprobs = mask_top_p(batch.logits / sampling.temperature, sampling.top_p).log_softmax(dim=-1)
            # Finished rows that are not yet compacted draw too, to no effect.
            generators = {i: row.generator for i, row in enumerate(batch.rows) if row.generator is not None}
            tokens = draw(logprobs.exp(), uniforms(len(batch.rows), generators, self._generator))
        chosen = logprobs.gather(-1, tokens[:, None]).squeeze(-1).tolist()
        for row, token, logprob in zip(batch.rows, tokens.tolist(), chosen, strict=True):
            if row.finish_reason:
                continue
            row.token_ids.append(token)
            row.logprobs.append(logprob)
            if sampling.stop:
                row.text = cut_at_stop(self._decode(row.token_ids), sampling.stop)
            if token in self._end_ids or row.text is not None:
                row.finish_reason = "stop"
            elif len(row.token_ids) >= row.max_tokens:
                row.finish_reason = "length"

    def _advance(self, batch: _DecodingBatch, alive: int) -> None:
        """Feed the drawn tokens; drop finished rows where that is worth a copy of the cache."""
        if alive < COMPACT_BELOW * len(batch.rows):
            unfinished = [i for i, row in enumerate(batch.rows) if not row.finish_reason]
            order = torch.tensor(unfinished, device=batch.mask.device)
            batch.rows = [batch.rows[i] for i in unfinished]
            batch.cache.batch_select_indices(order)
            batch.mask = batch.mask[order]
        ids = torch.tensor([[row.token_ids[-1]] for row in batch.rows], device=batch.mask.device)
        batch.mask = torch.cat((batch.mask, torch.ones_like(ids)), dim=1)
        output = self._model(
            input_ids=ids,
            attention_mask=batch.mask,
            position_ids=_positions(batch.mask)[:, -1:],
            past_key_values=batch.cache,
            use_cache=True,
        )
        batch.logits = output.logits[:, -1].float()

    def _completion(self, row: _DecodingRow) -> Completion:
        text = self._decode(row.token_ids) if row.text is None else row.text
        segments = version_segments(row.cuts, len(row.token_ids))
        return Completion(
            row.request.request_id,
            row.index,
            tuple(row.token_ids),
            tuple(row.logprobs),
            text,
            min(version for _, version in segments),
            row.finish_reason,
            segments if len(segments) > 1 else (),
        )

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=True)

    def _padded(self, sequences: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return token ids and mask, both int64 [rows, longest], padded on the left."""
        width = max(len(ids) for ids in sequences)
        ids = [[0] * (width - len(ids)) + list(ids) for ids in sequences]
        mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in sequences]
        return torch.tensor(ids, device=self._config.device), torch.tensor(mask, device=self._config.device)


def _positions(mask: torch.Tensor) -> torch.Tensor:
    """Return the position of every token, int64 [rows, width]; padding counts as position 0."""
    return (mask.cumsum(dim=-1) - 1).clamp_(min=0)
