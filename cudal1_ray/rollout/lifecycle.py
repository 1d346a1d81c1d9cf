"""What all engines share: pausing between steps, weight updates as one critical section, and refusing once unusable."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cudal1_ray.errors import UserError
from cudal1_ray.rollout.config import RolloutConfig
from cudal1_ray.rollout.engine import EngineUnusable, ScoredSequence, WeightUpdateError
from cudal1_ray.rollout.types import AdapterShape, Completion, GenerationRequest, SamplingParameters

if TYPE_CHECKING:
    import torch

    from cudal1_ray.rollout.transports import WeightOffer


class PausableEngine(ABC):
    """The part of `RolloutEngine` that does not depend on what computes the tokens.

    Methods may be called from several threads. Steps and weight updates exclude each other.
    """

    def __init__(self, config: RolloutConfig, adapter: AdapterShape | None = None):
        self.policy_version = 0
        self.adapter, self.no_adapter_reason = adapter, ""
        self.last_sync_s: dict[str, float] = {}
        self._config = config
        self._unusable = ""  # why, once it is
        self._lock = threading.RLock()  # held during a step and a weight update
        self._door = threading.Lock()  # held while waiting for it: a loop of steps would hardly let another caller in
        self._running = threading.Event()
        self._running.set()

    def generate(self, requests: Sequence[GenerationRequest], sampling: SamplingParameters) -> Iterator[Completion]:
        self._check_usable()
        for request in requests:
            self._check_length(request.request_id, len(request.prompt_token_ids), 1)
        self.wake()
        return self._generate(tuple(requests), sampling)

    def score(self, sequences: Sequence[ScoredSequence]) -> list[tuple[float, ...]]:
        self._check_usable()
        self.wake()
        if not self._running.is_set():
            raise RuntimeError("the engine is paused: resume it before score")
        for i, (prompt, completion) in enumerate(sequences):
            self._check_length(f"sequence {i}", len(prompt), len(completion))
        return self._score(sequences)

    def abort(self, request_ids: Collection[str]) -> None:
        self._check_usable()
        with self._exclusive():
            self._abort(frozenset(request_ids))

    def load_weights(self, weights: Mapping[str, torch.Tensor] | WeightOffer, policy_version: int) -> None:
        self._check_usable()
        if isinstance(weights, Mapping) and not weights:
            raise ValueError("no weights were given")
        was_running = self._running.is_set()
        self.last_sync_s = {}
        try:
            self.wake()
            started = time.perf_counter()
            self._running.clear()
            # A step that hangs would hold the lock for good.
            if not self._lock.acquire(timeout=self._config.weight_sync.pause_timeout_s):
                seconds = self._config.weight_sync.pause_timeout_s
                raise WeightUpdateError(f"weight update: phase 'pause' was not done after {seconds:g} s")
            try:
                self.last_sync_s["pause"] = time.perf_counter() - started
                self._replace_weights(weights)
                self.policy_version = policy_version
                self._cut_completions()
                self._drop_caches()
            finally:
                self._lock.release()
            self.last_sync_s["total"] = time.perf_counter() - started
        except BaseException as error:
            self._poison("weight update", error)
            if isinstance(error, WeightUpdateError) or not isinstance(error, Exception):
                raise
            raise WeightUpdateError(f"weight update failed: {error}") from error
        finally:
            if was_running:
                self.resume()

    def pause(self) -> None:
        self._check_usable()
        self._running.clear()
        with self._lock:  # a step under way ends first
            pass

    def resume(self) -> None:
        self._running.set()

    def sleep(self) -> None:
        """Do nothing: an engine that can hand memory back overrides it."""
        self._check_usable()

    def wake(self) -> None:
        """Do nothing."""
        self._check_usable()

    @abstractmethod
    def _generate(
        self, requests: tuple[GenerationRequest, ...], sampling: SamplingParameters
    ) -> Iterator[Completion]: ...

    @abstractmethod
    def _score(self, sequences: Sequence[ScoredSequence]) -> list[tuple[float, ...]]: ...

    @abstractmethod
    def _abort(self, request_ids: frozenset[str]) -> None:
        """Forget what is under way of these requests. No step is running."""

    @abstractmethod
    def _cut_completions(self) -> None:
        """Note how many tokens each completion under way has: the next are of another version. No step is running."""

    @abstractmethod
    def _replace_weights(self, weights: Mapping[str, torch.Tensor] | WeightOffer) -> None:
        """Replace all weights. No step is running."""

    @abstractmethod
    def _drop_caches(self) -> None:
        """Drop everything computed from the weights before. No step is running."""

    @contextmanager
    def _step_allowed(self) -> Iterator[bool]:
        """Wait while paused, then exclude weight updates; return False where a pause came in between: wait again."""
        while not self._running.wait(timeout=1.0):
            self._check_usable()
        with self._exclusive():
            self._check_usable()
            yield self._running.is_set()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the engine between two steps, whichever thread takes them. In turn with others that want the same."""
        with self._door:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def _room(self, request: GenerationRequest) -> int:
        """Return the most tokens of a completion, one fewer than the model allows, so that it can be scored."""
        return self._config.max_model_len - 1 - len(request.prompt_token_ids)

    def _poison(self, what: str, error: BaseException) -> None:
        self._unusable = f"poisoned by a failed {what} ({error}); build another engine"

    def _close(self) -> None:
        """Make every later call refuse, and wake those that wait."""
        self._unusable = self._unusable or "closed"
        self._running.set()

    def _check_usable(self) -> None:
        if self._unusable:
            raise EngineUnusable(f"the rollout engine is {self._unusable}")

    def _check_length(self, what: str, prompt: int, completion: int) -> None:
        limit = self._config.max_model_len
        if not prompt:
            raise UserError(f"{what}: the prompt is empty")
        if prompt + completion >= limit:
            raise UserError(
                f"{what}: a prompt of {prompt} tokens and {completion} more do not stay below "
                f"rollout.max_model_len={limit}: raise it or shorten the prompt"
            )
