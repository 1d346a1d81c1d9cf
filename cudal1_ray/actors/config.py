"""Configuration of the cluster: how many actors of each role, and what each of them holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudal1_ray.settings import bounded, one_of


@dataclass
class RoleConfig:
    """Resources of one role. Several members are identical and replace each other."""

    count: int = bounded(1, least=1)  # members of the fleet (for the learner: ranks)
    num_cpus: float = 1.0  # logical CPUs that Ray sets aside for each member
    num_gpus: float = 0.0  # GPUs that Ray sets aside for each member; an evaluator wants a whole one
    accelerator_type: str | None = None  # A100, H100, H200 ...: only GPUs of this type; null takes any
    # Over nodes: DEFAULT fills one before the next | SPREAD takes them in turn.
    scheduling: str = one_of("DEFAULT", "SPREAD")
    threads: int = bounded(1, least=1)  # OpenMP threads of each member
    call_timeout_s: float = bounded(
        600.0, above=0
    )  # seconds after which a member that answers no call is killed and replaced
    start_timeout_s: float = bounded(600.0, above=0)  # seconds after which a member that is not ready failed to start


@dataclass
class ClusterConfig:
    """Where the actors live. `address: null` starts Ray inside this process and stops it at the end."""

    address: str | None = None  # address of a running Ray cluster ("auto", "ray://..."); null: start one here
    num_cpus: int = 8  # logical CPUs of the Ray that is started here; roles below share them
    num_gpus: int | None = None  # GPUs of the Ray that is started here; null: all it finds
    object_store_mib: int = 512  # shared memory of the Ray that is started here, MiB
    max_replacements: int = 20  # a fleet that lost more members than this stops the run and reports why
    evaluate_during_generation: bool = True  # false where engine and evaluator share one device
    shared_gpu: bool = False  # engine, learner and evaluator on one GPU, in turn; each hands back what it can
    rollout: RoleConfig = field(default_factory=RoleConfig)
    evaluator: RoleConfig = field(default_factory=RoleConfig)
    compiler: RoleConfig = field(default_factory=lambda: RoleConfig(num_cpus=0.5))
    exemplars: RoleConfig = field(default_factory=lambda: RoleConfig(num_cpus=0.5))
    learner: RoleConfig = field(default_factory=RoleConfig)
