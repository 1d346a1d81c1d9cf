"""Learner actors: one per rank around DeepSpeed, and the group that speaks to all ranks as to one."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from cudal1_ray.actors.causes import cause_of
from cudal1_ray.actors.config import RoleConfig
from cudal1_ray.actors.member import ActorsLost, FleetMember
from cudal1_ray.actors.placement import actor_options
from cudal1_ray.errors import UserError
from cudal1_ray.learning.config import AlgorithmConfig, LearnerConfig, PolicyConfig
from cudal1_ray.learning.types import TrainingSequence
from cudal1_ray.rollout import RolloutConfig
from cudal1_ray.uncollected import imported_to_stay

if TYPE_CHECKING:
    from cudal1_ray.learning import Learner
    from cudal1_ray.rollout.config import WeightSyncConfig
    from cudal1_ray.rollout.transports import WeightOffer, WeightPublisher

# What Ray raises when a process is gone or silent; an error of the learner's own code is none of these.
RAY_FAILURES = (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError, ray.exceptions.GetTimeoutError)
# Printed where a GPU's memory was too small for an update.
_LESS_MEMORY = "if this comes again, lower learner.tokens_per_micro_batch, or evaluation.slots where they share its GPU"

# Rounds for which a thread of OpenMP spins before it sleeps; libgomp's default is 300,000. Milliseconds of a step of
# policy=tiny on four sequences, two threads on two cores: on idle cores 116 with 1,000, 114 with 2,000, 104 to 139 by
# default, 172 and 196 without spinning; beside one busy process 261 with 1,000, 368 with 3,000, 460 by default; beside
# several 155 to 269 with 1,000, 521 with 3,000, 802 with 10,000, 1,660 to 2,480 by default.
SPINS = 1000


class LearnerLost(ActorsLost):
    """A rank died, hung, or ran out of its GPU's memory in the middle of an update. The others wait for it in a
    collective: the group is started again from a checkpoint.
    """


class LearnerActor(FleetMember):
    """One rank. All ranks get every call with the same arguments and take their own share of the sequences."""

    def __init__(self, rank: int):
        self._rank = rank
        self._learner: Learner | None = None
        self._publisher: WeightPublisher | None = None
        self._sync: WeightSyncConfig | None = None  # what it was built for

    def address(self) -> tuple[str, int]:
        """Return host and free port at which rank 0 will gather the others."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), probe.getsockname()[1]

    def start(
        self,
        config: LearnerConfig,
        policy: PolicyConfig,
        model_path: str,
        world_size: int,
        rendezvous: tuple[str, int],
        seed: int,
    ) -> None:
        with imported_to_stay():
            from cudal1_ray.learning import Learner  # seconds of imports that the driver need not wait for

        self._learner = Learner(
            config, policy, model_path, rank=self._rank, world_size=world_size, rendezvous=rendezvous, seed=seed
        )

    def call(self, method: str, *args: Any) -> Any:
        return getattr(self._learner, method)(*args)

    def weights(self, adapters: bool = False) -> list[ray.ObjectRef] | None:
        """Gather all weights, or the adapters alone (a collective), into the object store, from rank 0."""
        weights = dict(self._learner.adapter_weights() if adapters else self._learner.named_weights())
        return [ray.put(weights)] if self._rank == 0 else None

    def publish(self, rollout: RolloutConfig, adapters: bool = False) -> int:
        """Gather all weights, or the adapters alone (a collective), and pack them where the transport wants them, on
        rank 0; return the bytes.
        """
        from cudal1_ray.rollout.transports import build_publisher

        gather = self._learner.adapter_weights if adapters else self._learner.named_weights
        weights = gather(on_device=True)
        if self._rank:
            return sum(0 for _ in weights)
        if self._sync != rollout.weight_sync:  # the first time, or a transport that another measurement wants
            if self._publisher is not None:
                self._publisher.close()
            self._sync = rollout.weight_sync
            self._publisher = build_publisher(rollout.weight_sync, rollout.dtype, ray.util.get_node_ip_address())
        return self._publisher.publish(weights)

    def offer(self, channel: str, workers: int) -> WeightOffer:
        """Return what was published last, for one engine; rank 0 only."""
        return self._publisher.offer(channel, workers)

    def free_cached_memory(self) -> None:
        """Hand back GPU memory that torch keeps for later, to the other processes on the GPU."""
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def waiting_environment(config: LearnerConfig) -> dict[str, str]:
    """Return the variables that limit how long OpenMP's threads spin while they wait for one another; none where a GPU
    computes. Without a limit a thread spins until the scheduler takes its core, though the other waits for that core.
    """
    return {"GOMP_SPINCOUNT": str(SPINS)} if config.device == "cpu" else {}


class LearnerGroup:
    """All ranks of the learner as one.

    Args:
        rollout: settings of the engines that the weights are for: how they travel, and how far the log-probabilities
            of engine and learner may be apart.
        shares_gpu: hands cached GPU memory back after every update.

    Raises, from every method:
        LearnerLost: a rank died, ran out of its GPU's memory, or did not answer in `call_timeout_s`.
    """

    def __init__(
        self,
        config: LearnerConfig,
        policy: PolicyConfig,
        model_path: str,
        role: RoleConfig,
        seed: int,
        rollout: RolloutConfig | None = None,
        shares_gpu: bool = False,
    ):
        self._role, self._rollout, self._shares_gpu = role, rollout or RolloutConfig(), shares_gpu
        start = ray.remote(LearnerActor).options(**actor_options(role, waiting_environment(config)))
        self._ranks = [start.remote(rank) for rank in range(role.count)]
        rendezvous = self._ranks[0].address.remote()  # Ray hands every rank its value: nothing waits here
        self._starting = [
            rank.start.remote(config, policy, model_path, role.count, rendezvous, seed) for rank in self._ranks
        ]

    def wait_until_ready(self) -> None:
        self._get(self._starting, self._role.start_timeout_s)

    def start_stage(
        self,
        learning_rate: float,
        total_steps: int = 0,
        warmup_steps: int = 0,
        temperature: float = 1.0,
        resumed: bool = False,
        schedule: str | None = None,
    ) -> None:
        """Begin a stage with its learning rate and schedule; a resumed one keeps the optimiser it was loaded with."""
        self._all("start_stage", learning_rate, total_steps, warmup_steps, temperature, resumed, schedule)

    def train_sft(self, sequences: Sequence[TrainingSequence], batch_sequences: int | None = None) -> dict[str, float]:
        """Make one pass over the sequences; return the metrics of rank 0, which are global.

        Args:
            batch_sequences: sequences per optimiser step; None makes one step of all.
        """
        metrics = self._all("train_sft", list(sequences), batch_sequences)[0]
        self._free_cached_memory()
        return metrics

    def train_policy_gradient(
        self, sequences: Sequence[TrainingSequence], algorithm: AlgorithmConfig
    ) -> dict[str, float]:
        """Make one update on the sequences; return the metrics of rank 0, which are global.

        `drift_alarm` among them is 1 when the engines' log-probabilities left the configured band, else 0.
        """
        metrics = self._all("train_policy_gradient", list(sequences), algorithm)[0]
        self._free_cached_memory()
        if "drift_mean_abs" in metrics:
            metrics["drift_alarm"] = float(metrics["drift_mean_abs"] > self._rollout.drift_band)
        return metrics

    def has_reference_policy(self) -> bool:
        return all(self._all("has_reference_policy"))

    def set_reference_policy(self) -> None:
        self._all("set_reference_policy")

    def score(self, sequences: Sequence[TrainingSequence]) -> list[tuple[float, ...]]:
        """Return log-probabilities of the completions' tokens, one tuple per sequence."""
        return self._all("score", list(sequences))[0]

    def publish(
        self, rollout: RolloutConfig | None = None, adapters: bool = False
    ) -> ray.ObjectRef | Callable[[str, int], WeightOffer]:
        """Return the current weights for the engines, by Hugging Face name.

        One object in Ray's store, or, where the configured transport is another, what makes an offer for one engine out
        of (channel, tensor-parallel workers). Offers are of these weights until the next call.

        Args:
            rollout: engines other than those that the group was made for.
            adapters: the adapters alone, by PEFT's names, for engines that serve them beside the weights they have.
        """
        rollout = rollout or self._rollout
        if rollout.weight_sync.transport == "in_process":
            return self._get([rank.weights.remote(adapters) for rank in self._ranks])[0][0]
        self._get([rank.publish.remote(rollout, adapters) for rank in self._ranks])
        return self.offer

    def save(self, folder: Path) -> None:
        self._all("save_checkpoint", str(folder.resolve()))

    def load(self, folder: Path, weights: bool = True) -> None:
        """Continue from a checkpoint; see `Learner.load_checkpoint`."""
        self._all("load_checkpoint", str(folder.resolve()), weights)

    def load_first_weights(self, adapter: Path | None) -> None:
        """Replace the weights by those of a start from an adapter, or from the base policy alone."""
        self._all("load_first_weights", "" if adapter is None else str(adapter.resolve()))

    def save_adapter(self, folder: Path) -> None:
        """Write the adapters in PEFT's format; nothing where all weights train."""
        self._all("save_adapter", str(folder.resolve()))

    def save_policy(self, folder: Path) -> None:
        """Write the policy as a Hugging Face folder, which vLLM and transformers load."""
        self._all("save_policy", str(folder.resolve()))

    def stop(self) -> None:
        for rank in self._ranks:
            ray.kill(rank)

    def offer(self, channel: str, workers: int) -> WeightOffer:
        """Return what was published last, for the engine behind `channel`."""
        return self._get(self._ranks[0].offer.remote(channel, workers))

    def _free_cached_memory(self) -> None:
        if self._shares_gpu:
            self._get([rank.free_cached_memory.remote() for rank in self._ranks])

    def _all(self, method: str, *args: Any) -> list[Any]:
        shared: Callable[[Any], Any] = ray.put if len(self._ranks) > 1 else (lambda value: value)
        args = tuple(shared(arg) for arg in args)  # one copy in the object store, not one per rank
        return self._get([rank.call.remote(method, *args) for rank in self._ranks])

    def _get(self, refs: Any, timeout_s: float | None = None) -> Any:
        try:
            return ray.get(refs, timeout=timeout_s or self._role.call_timeout_s)
        except RAY_FAILURES as error:
            raise LearnerLost(f"learner: {cause_of(error)}") from error
        except ray.exceptions.RayTaskError as error:
            import torch  # Ray has imported it to read the cause

            if isinstance(error.cause, UserError):
                raise error.cause from None  # one line, without the actor's stack
            if not isinstance(error.cause, torch.OutOfMemoryError):
                raise
            raise LearnerLost(f"learner: {str(error.cause).partition('. GPU')[0]}; {_LESS_MEMORY}") from error
