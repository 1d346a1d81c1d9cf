"""The typed schema of `conf/`: every key a run can be given, with its type and its default.

Each package declares its own section; this file only puts them together. `cudal1 train --cfg` prints the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cudal1_ray.actors.config import ClusterConfig
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.learning.config import AlgorithmConfig, LearnerConfig, PolicyConfig
from cudal1_ray.problems.config import ProblemsConfig
from cudal1_ray.prompting.config import PromptingConfig
from cudal1_ray.rewards.config import RewardsConfig
from cudal1_ray.rollout.config import RolloutConfig, check_rollout_config
from cudal1_ray.training.config import (
    AssessmentConfig,
    CheckpointConfig,
    ContrastiveConfig,
    SelfSupervisedConfig,
    SftConfig,
)

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra


@dataclass
class Config:
    """One run of `cudal1 train`."""

    name: str = "demo"  # the run's folder is runs_dir/name; the same name continues it
    runs_dir: str = "runs"
    seed: int = 1
    stage: str = "all"  # all | sft | self_supervised | contrastive
    init_from: str | None = None  # folder of another run whose finished stages this one starts from
    problems: ProblemsConfig = field(default_factory=ProblemsConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    prompting: PromptingConfig = field(default_factory=PromptingConfig)
    exemplars: ExemplarsConfig = field(default_factory=ExemplarsConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    rewards: RewardsConfig = field(default_factory=RewardsConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    self_supervised: SelfSupervisedConfig = field(default_factory=SelfSupervisedConfig)
    contrastive: ContrastiveConfig = field(default_factory=ContrastiveConfig)
    assessment: AssessmentConfig = field(default_factory=AssessmentConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)


def config_dir() -> Path:
    """The folder of YAML presets: inside the package once installed, at the top of the tree in a checkout."""
    package = Path(__file__).resolve().parent
    return next(folder for folder in (package / "conf", package.parent / "conf") if folder.is_dir())


def load_config(overrides: list[str], config_name: str = "config") -> Config:
    """Composes `conf/` with command-line overrides and checks every key and type.

    Raises:
        UserError: naming the key (unknown, of the wrong type) or the preset (not there) at fault.
    """
    with composing():
        config: Config = OmegaConf.to_object(compose(config_name=config_name, overrides=overrides))
    check_config(config)
    return config


@contextmanager
def composing() -> Iterator[Hydra]:
    """Hydra over `conf/` and the schema; what it objects to becomes a UserError of one line.

    Raises:
        UserError: naming the key or the preset at fault.
    """
    GlobalHydra.instance().clear()
    ConfigStore.instance().store(name="schema", node=Config)  # first in conf/config.yaml: presets fill it in
    try:
        with initialize_config_dir(config_dir=str(config_dir()), version_base="1.3"):
            yield GlobalHydra.instance().hydra
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_one_line(error)) from None


STAGES = ("sft", "self_supervised", "contrastive")


def check_config(config: Config) -> None:
    """Checks what types cannot say.

    Raises:
        UserError: naming the key and the values it takes.
    """
    if config.stage not in ("all", *STAGES):
        raise UserError(f"stage={config.stage}: must be one of all, {', '.join(STAGES)}")
    if not config.name or "/" in config.name or config.name.startswith("."):
        raise UserError(f"name={config.name!r}: must be a plain folder name")
    for key, value in {
        "contrastive.group_size": config.contrastive.group_size,
        "contrastive.problems_per_step": config.contrastive.problems_per_step,
        "self_supervised.samples_per_problem": config.self_supervised.samples_per_problem,
        "assessment.samples_per_problem": config.assessment.samples_per_problem,
        "cluster.rollout.count": config.cluster.rollout.count,
        "cluster.evaluator.count": config.cluster.evaluator.count,
        "cluster.learner.count": config.cluster.learner.count,
    }.items():
        if value < 1:
            raise UserError(f"{key}={value}: must be at least 1")
    sections = [getattr(config, name) for name in config.__dataclass_fields__]
    nested = [config.self_supervised.algorithm, config.self_supervised.rewards]
    for section in sections + nested:
        if validate := getattr(section, "validate", None):
            validate()
    check_rollout_config(config.rollout)
    if config.contrastive.temperature <= 0:
        raise UserError(f"contrastive.temperature={config.contrastive.temperature}: must be above 0 to explore")


def to_yaml(config: Config) -> str:
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def to_dict(config: Config) -> dict[str, Any]:
    return OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)  # type: ignore[return-value]


def _one_line(error: BaseException) -> str:
    """Hydra and OmegaConf explain over several lines, and in the cause of an error; a reader needs key and reason."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = [line.strip() for line in str(error.__cause__ or "").splitlines() if line.strip()]
    key = next((line.split(":", 1)[1].strip() for line in cause + said if line.startswith("full_key:")), "")
    reason = cause[0] if cause else " ".join(said[:1])
    start = said[0] if said else type(error).__name__
    if key and key not in start:
        start = key
    text = start if reason in start else f"{start}: {reason}"
    return f"{text} (cudal1 train --cfg shows every key)"
