"""Configuration of the cluster: how many actors of each role, and what each of them holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cudal1_ray.errors import UserError
from cudal1_ray.settings import bounded, one_of

if TYPE_CHECKING:
    from cudal1_ray.evaluation import EvaluationConfig
    from cudal1_ray.rollout import RolloutConfig

ROLES = ("rollout", "evaluator", "compiler", "exemplars", "learner")
# Least share of a CPU or GPU that Ray sets aside for an actor; it counts in ten-thousandths.
_LEAST_SHARE = 1e-4


@dataclass
class RoleConfig:
    """Resources of one role. Its actors are identical and replace each other."""

    count: int = bounded(1, least=1)  # actors of this role (for the learner: ranks)
    num_cpus: float = 1.0  # logical CPUs that Ray reserves for each actor
    num_gpus: float = 0.0  # GPUs that Ray reserves for each actor; an evaluator needs a whole one
    accelerator_type: str | None = None  # A100, H100, H200 ...: only GPUs of this type; null takes any
    # Over nodes: DEFAULT fills one before the next | SPREAD takes them in turn.
    scheduling: str = one_of("DEFAULT", "SPREAD")
    threads: int = bounded(1, least=1)  # OpenMP threads of each actor
    call_timeout_s: float = bounded(
        600.0, above=0
    )  # seconds after which an actor that answers no call is killed and replaced
    start_timeout_s: float = bounded(600.0, above=0)  # seconds after which an actor that is not ready failed to start


@dataclass
class ClusterConfig:
    """Where the actors live. `address: null` starts Ray inside this process and stops it at the end."""

    address: str | None = None  # address of a running Ray cluster ("auto", "ray://..."); null: start one here
    num_cpus: int = 8  # logical CPUs of the Ray that is started here; roles below share them
    num_gpus: int | None = None  # GPUs of the Ray that is started here; null: all it finds
    object_store_mib: int = 512  # shared memory of the Ray that is started here, MiB
    max_replacements: int = 20  # more lost actors of one role than this stop the run, which reports why
    evaluate_during_generation: bool = True  # false where engine and evaluator share one device
    shared_gpu: bool = False  # engine, learner and evaluator on one GPU, in turn; each hands back what it can
    rollout: RoleConfig = field(default_factory=RoleConfig)
    evaluator: RoleConfig = field(default_factory=RoleConfig)
    compiler: RoleConfig = field(default_factory=lambda: RoleConfig(num_cpus=0.5))
    exemplars: RoleConfig = field(default_factory=lambda: RoleConfig(num_cpus=0.5))
    learner: RoleConfig = field(default_factory=RoleConfig)


def check_placement(cluster: ClusterConfig, rollout: RolloutConfig, evaluation: EvaluationConfig) -> None:
    """Check that the roles' GPUs fit what they do with them.

    Raises:
        UserError: naming the field and what it takes.
    """
    for name in ROLES:
        role: RoleConfig = getattr(cluster, name)
        for key in ("num_cpus", "num_gpus"):
            if 0 < (amount := getattr(role, key)) < _LEAST_SHARE:
                raise UserError(f"cluster.{name}.{key}={amount:g}: must be 0, or at least {_LEAST_SHARE:g}")
        if role.num_gpus > 1 and role.num_gpus % 1:
            raise UserError(f"cluster.{name}.num_gpus={role.num_gpus:g}: above 1 it must be a whole number")
    engine, evaluator = cluster.rollout, cluster.evaluator
    if rollout.device == "cuda" and rollout.tensor_parallel > max(1, engine.num_gpus):
        raise UserError(
            f"cluster.rollout.num_gpus={engine.num_gpus:g}: an engine with rollout.tensor_parallel="
            f"{rollout.tensor_parallel} needs as many GPUs"
        )
    if evaluation.device == "cuda" and cluster.evaluate_during_generation and evaluator.num_gpus < 1:
        raise UserError(
            f"cluster.evaluator.num_gpus={evaluator.num_gpus:g}: an evaluator must own its GPU, or it measures others' "
            "work; set it to 1, or cluster.evaluate_during_generation=false where there is only one GPU"
        )
    if cluster.shared_gpu and cluster.evaluate_during_generation:
        raise UserError("cluster.shared_gpu=true: set cluster.evaluate_during_generation=false, the GPU is one")
