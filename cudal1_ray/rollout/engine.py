"""What an inference engine must be able to do, and how it fails."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cudal1_ray.rollout.types import AdapterShape, Completion, GenerationRequest, SamplingParameters

if TYPE_CHECKING:
    import torch

    from cudal1_ray.rollout.transports import WeightOffer

ScoredSequence = tuple[Sequence[int], Sequence[int]]  # (prompt token ids, completion token ids)


class EngineUnusable(RuntimeError):
    """The engine was closed, or poisoned by a failed weight update or step: build another one."""


class WeightUpdateError(EngineUnusable):
    """A phase of a weight update failed or ran past its timeout. The engine is poisoned: build another one."""


@runtime_checkable
class RolloutEngine(Protocol):
    """An inference engine whose weights can be replaced while it lives.

    `generate`, `score`, `abort`, `load_weights` and `pause` raise `EngineUnusable` once it is closed or poisoned.
    """

    policy_version: int
    last_sync_s: dict[str, float]  # seconds of each phase of the last weight update
    adapter: AdapterShape | None  # weight updates are adapters of this shape; None: they are whole weights
    no_adapter_reason: str  # why adapters that were asked for are not served; empty where they are, or were not

    def generate(self, requests: Sequence[GenerationRequest], sampling: SamplingParameters) -> Iterator[Completion]:
        """Yield each of the `len(requests) * sampling.n` completions as it finishes, in no fixed order.

        Work is done while the iterator is advanced; dropping the iterator aborts what is left. A paused engine keeps
        what it was given and the iterator blocks until `resume`, which must then come from another thread.

        Raises:
            UserError: a prompt is empty, or leaves no room within `max_model_len`.
        """
        ...

    def abort(self, request_ids: Collection[str]) -> None:
        """Give up completions under way: nothing more is yielded of these requests. Others are left alone.

        From another thread than the one that advances the iterator, or between two of its items.
        """
        ...

    def load_weights(self, weights: Mapping[str, torch.Tensor] | WeightOffer, policy_version: int) -> None:
        """Replace all weights: pause, transfer, new policy version, drop cached prefixes, resume.

        Completions under way go on with the new weights; they keep the older policy version, and their segments record
        which tokens are whose.

        Args:
            weights: by Hugging Face parameter name, any dtype or device; a tied output matrix may be left out. Of an
                engine with an `adapter` all adapters, by PEFT's names, and nothing else. Or an offer of a publisher,
                which vLLM engines fetch.
            policy_version: stamped on everything generated from now on.

        Raises:
            ValueError: `weights` is empty; the engine is untouched.
            WeightUpdateError: the engine is poisoned.
        """
        ...

    def pause(self) -> None:
        """Return when no step is running; none is started until `resume`. Requests are kept."""
        ...

    def resume(self) -> None: ...

    def sleep(self) -> None:
        """Hand device memory back until `wake`. Without effect where `sleep_mode` is off, or when asleep."""
        ...

    def wake(self) -> None: ...

    def score(self, sequences: Sequence[ScoredSequence]) -> list[tuple[float, ...]]:
        """Return log-probabilities of given completion tokens at temperature 1 and top-p 1, one tuple per sequence.

        Raises:
            UserError: prompt and completion together do not stay below `max_model_len`.
            RuntimeError: the engine is paused.
        """
        ...

    def close(self) -> None:
        """Free memory, threads and processes. Idempotent."""
        ...
