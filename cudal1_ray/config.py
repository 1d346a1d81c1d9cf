"""The typed schema of `conf/`: every key a run can be given, with its type and its default.

Each package declares its own section; this file only puts them together. `cudal1 train --cfg` prints the result.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cudal1_ray.actors.config import ClusterConfig
from cudal1_ray.errors import UserError, first_line
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.learning.config import AlgorithmConfig, LearnerConfig, PolicyConfig
from cudal1_ray.plugins import load_plugins
from cudal1_ray.problems.config import ProblemsConfig
from cudal1_ray.prompting.config import PromptingConfig
from cudal1_ray.rewards.config import RewardsConfig
from cudal1_ray.rollout.config import RolloutConfig, check_rollout_config
from cudal1_ray.settings import Key, Section, bounded, check_values, find_keys
from cudal1_ray.settings.composition import compose_settings, find_files
from cudal1_ray.settings.origins import find_origins
from cudal1_ray.settings.overrides import SWEEP_ADVICE, Overrides, grammar_advice
from cudal1_ray.settings.presets import Preset, find_presets
from cudal1_ray.settings.suggestions import nearest_keys, question
from cudal1_ray.training.config import (
    AssessmentConfig,
    CheckpointConfig,
    CollectConfig,
    ContrastiveConfig,
    SelfSupervisedConfig,
    SftConfig,
    TrackingConfig,
)

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra

T = TypeVar("T")


@dataclass
class Config:
    """One run of `cudal1 train`."""

    # The run's folder is runs_dir/name; the same name continues the run.
    name: str = "run"
    # Folder of all runs.
    runs_dir: str = "runs"
    # Seed of everything that is drawn: initial weights, prompts, exemplars, completions.
    seed: int = 1
    # all | sft | self_supervised | contrastive: the stage to run; or several, as in sft+contrastive.
    stage: str = "all"
    # Folder of another run whose finished stages this one starts from; null: none.
    init_from: str | None = None
    # Minutes after which the run ends with a checkpoint, before a step that would not fit any more; null: no limit.
    max_minutes: float | None = bounded(None, above=0)
    # The file of conf/recipe/ that chose presets and settings.
    recipe: str = "none"
    # Python modules that add rewards, exemplar strategies, algorithms or sources of problems (register_reward,
    # register_strategy, register_algorithm, register_source); imported here and in every actor, from the current
    # folder too.
    plugins: list[str] = field(default_factory=list)
    problems: ProblemsConfig = field(default_factory=ProblemsConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    prompting: PromptingConfig = field(default_factory=PromptingConfig)
    exemplars: ExemplarsConfig = field(default_factory=ExemplarsConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    rewards: RewardsConfig = field(default_factory=RewardsConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    self_supervised: SelfSupervisedConfig = field(default_factory=SelfSupervisedConfig)
    contrastive: ContrastiveConfig = field(default_factory=ContrastiveConfig)
    assessment: AssessmentConfig = field(default_factory=AssessmentConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)


def config_dir() -> Path:
    """Return the folder of YAML presets: inside the package once installed, at the top of the tree in a checkout."""
    package = Path(__file__).resolve().parent
    return next(folder for folder in (package / "conf", package.parent / "conf") if folder.is_dir())


def load_config(overrides: list[str], config_name: str = "config") -> Config:
    """Compose `conf/` with command-line overrides and check every key, type and bound.

    Raises:
        UserError: naming the key (unknown, of the wrong type, out of bounds) or the preset (not there) at fault.
    """
    config = compose_config(config_name, prepare_overrides(overrides))
    check_config(config)
    return config


def compose_config(config_name: str, overrides: list[str], schema: type = Config) -> Any:
    """Compose a file of `conf/` with overrides in Hydra's grammar; keys and types are checked, values are not.

    Raises:
        UserError: naming the key or the preset at fault.
    """
    with composing(schema):
        return OmegaConf.to_object(compose_settings(config_name, overrides, config_dir()))


def compose_with_origins(overrides: list[str]) -> tuple[Config, dict[str, str]]:
    """Return the configuration that overrides compose to, and what set its settings, see `find_origins`.

    Keys and types are checked, values are not: a preset that wants more settings is explained without them.

    Raises:
        UserError: naming the key or the preset at fault.
    """
    prepared = prepare_overrides(overrides)
    config: Config = compose_config("config", prepared)
    files = composed_files("config", prepared)
    return config, find_origins(files, find_presets(config_dir()), all_presets(), prepared)


def composed_files(config_name: str, overrides: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the files of conf/ that a configuration is composed of, in their order: path without suffix, section."""
    with composing():
        return find_files(config_name, overrides, config_dir())


def prepare_overrides(overrides: list[str], sweep: bool = False) -> list[str]:
    """Return overrides of `cudal1 train` in Hydra's grammar; see `cudal1_ray.settings.overrides.Overrides`."""
    return Overrides(find_keys(Config), all_presets(), "cudal1 train").prepare(overrides, sweep)


@cache
def all_presets() -> dict[str, list[Preset]]:
    """Return the presets of `conf/` by group, without those of other commands."""
    return {group: presets for group, presets in find_presets(config_dir()).items() if group not in _OTHER_GROUPS}


_OTHER_GROUPS = ("serving", "hydra/launcher", "recipe/shared")


@contextmanager
def composing(schema: type = Config) -> Iterator[Hydra]:
    """Run Hydra over `conf/` and the schema; what Hydra objects to becomes a UserError of one line.

    Raises:
        UserError: naming the key or the preset at fault.
    """
    GlobalHydra.instance().clear()
    _store_schema()
    try:
        with initialize_config_dir(config_dir=str(config_dir()), version_base="1.3"):
            yield GlobalHydra.instance().hydra
    except OverrideParseException as error:
        raise UserError(grammar_advice(error.override, find_keys(schema))) from None
    except (HydraException, OmegaConfBaseException, OverflowError) as error:  # of a whole number beyond a float's range
        raise UserError(_one_line(error, schema)) from None


@cache
def _store_schema() -> None:
    """Give Hydra the schema, once in a process: reading the dataclasses takes a fifth of a composition.

    It comes first in conf/config.yaml, and presets fill it in.
    """
    ConfigStore.instance().store(name="schema", node=Config)


STAGES = ("sft", "self_supervised", "contrastive")
# Bytes of a run's name: a file system takes 255, and a folder that is being written has a suffix.
_LONGEST_NAME = 200
_FOLDER_NAME = re.compile(r"(?![.\s])[^/\x00-\x1f\x7f\ud800-\udfff]+(?<!\s)")


def stages_of(config: Config) -> list[str]:
    """Return the stages that a configuration asks for, in their order.

    Raises:
        UserError: when `stage` is neither all, nor a stage, nor several of them in their order with + between.
    """
    stages = list(STAGES) if config.stage == "all" else config.stage.split("+")
    if stages != [stage for stage in STAGES if stage in stages]:
        raise UserError(
            f"stage={config.stage}: must be one of all, {', '.join(STAGES)}, or several in this order, "
            "as in sft+contrastive"
        )
    return stages


def started_cluster(config: Config) -> ClusterConfig:
    """Return `config.cluster` with the actors that a run starts: no rollout engine where nothing samples the policy,
    stage 1 being all of its stages and none of them assessed.
    """
    if stages_of(config) != ["sft"] or config.assessment.enabled:
        return config.cluster
    return dataclasses.replace(config.cluster, rollout=dataclasses.replace(config.cluster.rollout, count=0))


def check_config(config: Config) -> None:
    """Import the plugins, whose names the configuration may use, and check what types cannot.

    Raises:
        UserError: naming the key and the values it takes.
    """
    load_plugins(config.plugins)
    stages_of(config)
    if not is_run_name(config.name):
        raise UserError(f"name={config.name!r:.80}: must be a plain folder name, of at most {_LONGEST_NAME} bytes")
    check_values(config)
    sections = [getattr(config, name) for name in config.__dataclass_fields__]
    nested = [config.self_supervised.algorithm, config.self_supervised.rewards]
    for section in sections + nested:
        if validate := getattr(section, "validate", None):
            validate()
    check_rollout_config(config.rollout)
    config.evaluation.timing.require_time()
    if config.contrastive.temperature <= 0:
        raise UserError(f"contrastive.temperature={config.contrastive.temperature}: must be above 0 to explore")


def is_run_name(name: str) -> bool:
    """Return whether a run may have this name: that of a folder, not hidden, with room for a suffix."""
    return bool(_FOLDER_NAME.fullmatch(name)) and len(name.encode()) <= _LONGEST_NAME


def to_yaml(config: Any) -> str:
    """Return a configuration, of a run or of a server, as YAML, keys in the order of their declaration."""
    return OmegaConf.to_yaml(to_dict(config))


def to_dict(config: Any) -> dict[str, Any]:
    """Return a configuration as plain values, an enumeration's member as its name."""
    return dataclasses.asdict(config, dict_factory=_with_enum_names)


def read_settings(run: Path, *needed: str) -> dict[str, Any]:
    """Return the settings in a run's config.yaml. An older run lacks what is newer, and may have what is gone by now.

    Args:
        needed: sections, and keys outside of sections, that the caller does not do without.

    Raises:
        UserError: naming the file that is missing or holds no settings, or what of it is missing or no section.
    """
    file = run / "config.yaml"
    if not file.is_file():
        raise UserError(f"{run}: no run is there (no config.yaml)")
    try:
        settings = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{file}: cannot be read as YAML ({first_line(error)}); {_RESTORE}") from None
    if not settings or not isinstance(settings, dict):
        raise UserError(f"{file}: holds no settings; {_RESTORE}")
    for path in (path for path, entry in find_keys(Config).items() if isinstance(entry, Section)):
        values: Any = settings
        for name in filter(None, path.split(".")):
            values = values.get(name, {})
        if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
            raise UserError(f"{file}: {path or 'its top level'}: must hold settings, `key: value`; {_RESTORE}")
    for name in needed:
        if name not in settings:
            raise UserError(f"{file}: {name}: missing; {_RESTORE}")
    return settings


_RESTORE = "restore it, the run's own command with --cfg prints the whole file"


def with_settings(section: T, values: dict[str, Any], place: str) -> T:
    """Return a section with those of `values` whose keys it has.

    Args:
        place: where the values are from, for the message.

    Raises:
        UserError: naming the place and the key whose value is of another type.
    """
    names = {field.name for field in dataclasses.fields(section)}  # type: ignore[arg-type]
    try:
        merged = OmegaConf.merge(
            OmegaConf.structured(section), {key: value for key, value in values.items() if key in names}
        )
        return OmegaConf.to_object(merged)
    except (OmegaConfBaseException, OverflowError) as error:
        key = getattr(error, "full_key", "")
        raise UserError(f"{'.'.join(filter(None, (place, key)))}: {first_line(error)}; restore it") from None


def _with_enum_names(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value.name if isinstance(value, enum.Enum) else value for key, value in items}


# Hydra's words for several values outside a sweep, and the override between them.
_SEVERAL_VALUES = re.compile(r"(?:Sweep parameters|Ambiguous value for argument) '(.*)'")


def _one_line(error: BaseException, schema: type) -> str:
    """Return the key and the reason; Hydra and OmegaConf explain over several lines, and in the cause of an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if several := _SEVERAL_VALUES.match(lines[0] if lines else ""):
        return f"{several[1]}: {SWEEP_ADVICE}"
    cause = [line.strip() for line in str(error.__cause__ or "").splitlines() if line.strip()]
    key = next((line.split(":", 1)[1].strip() for line in cause + lines if line.startswith("full_key:")), "")
    keys = find_keys(schema)
    entry = keys.get(re.sub(r"\[\d+\]$", "", key))  # of an item of a list: the list's
    if isinstance(entry, Key):
        key = entry.path
        setting = next((word for word in lines[0].split() if word.startswith(f"{key}=")), key).rstrip(":")
        return f"{setting}: must be {entry.noun} (`cudal1 train --help {key}` explains it)"
    if key and key not in keys:
        meant = question(nearest_keys(key, keys))
        return f"{key}: there is no such setting" + (f"; {meant}" if meant else "")
    reason = cause[0] if cause else " ".join(lines[:1])
    start = lines[0] if lines else type(error).__name__
    if key and key not in start:
        start = key
    text = start if reason in start else f"{start}: {reason}"
    return f"{text} (cudal1 train --cfg shows every key)"
