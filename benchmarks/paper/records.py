"""The arms that a run's folder holds: those trained here, and those of a run that was trained before the table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.paper.arms import Arm, run_name
from cudal1_ray.config import STAGES, Config, load_config, to_dict
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.rules import RulesConfig
from cudal1_ray.files import read_json_lines, replacing_folder, write_atomically
from cudal1_ray.training.checkpoints import CheckpointStore
from cudal1_ray.training.continuation import changes

# File in a run's folder with what is known of it by arm; "at" is there once the run is assessed.
ARM_FILE = "arm.json"


def read_arms(run: Path) -> dict[str, dict[str, Any]]:
    """Return what is known of the arms in a run's folder: seed, policy, minutes, and differences from the table."""
    file = run / ARM_FILE
    return json.loads(file.read_text()) if file.is_file() else {}


def note_arm(run: Path, arm: str, figures: dict[str, Any]) -> None:
    """Replace what is known of an arm."""
    write_atomically(run / ARM_FILE, json.dumps(read_arms(run) | {arm: figures}, indent=1))


def is_done(run: Path, arm: str) -> bool:
    """Return whether the arm's policy is trained and assessed."""
    return "at" in read_arms(run).get(arm, {})


def recorded_rules(run: Path) -> dict[str, str]:
    """Return the rules that a run's candidates were evaluated under, by name; empty for a run older than rules."""
    return dict(yaml.safe_load((run / "config.yaml").read_text())["evaluation"].get("rules", {}))


def rule_settings(rules: Mapping[str, str]) -> list[str]:
    """Return the settings with which `cudal1 evaluate` holds candidates to these rules: those that are no defaults."""
    defaults = vars(RulesConfig())
    return [f"evaluation.rules.{name}={value}" for name, value in rules.items() if value != defaults.get(name)]


def take_runs(have: Sequence[str], runs: Path, overrides: list[str], arms: Mapping[str, Arm]) -> Iterator[str]:
    """Make trained runs arms of the table, and yield a line on each.

    The first arm of a run gets a copy of its folder, the others a link to that. Its seed is that of the arm. An arm
    whose folder is there already stays as it is.

    Args:
        have: texts ARM=FOLDER.
        overrides: settings of the table's runs.

    Raises:
        UserError: there is no such arm or run, or the run has no checkpoint of the arm's stage, or not the stage before
            that the arm starts from.
    """
    copies: dict[Path, str] = {}
    for text in have:
        name, _, folder = text.partition("=")
        run = Path(folder).expanduser()
        if not folder or name not in arms or not arms[name].stage:
            trained = ", ".join(arm.name for arm in arms.values() if arm.stage)
            raise UserError(f"--have {text}: give ARM=FOLDER, ARM one of {trained}")
        if not (run / "config.yaml").is_file():
            raise UserError(f"--have {text}: no run is there (no config.yaml)")
        theirs = yaml.safe_load((run / "config.yaml").read_text())
        target = runs / run_name(name, theirs["seed"])
        if name in read_arms(target):
            copies.setdefault(run, target.name)
            continue
        if target.exists():
            raise UserError(
                f"--have {text}: {target} is there already, a run of the table; delete it, or leave this out"
            )
        policy = _policy(run, text, arms[name].stage)
        stages = _stages_to(run, text, arms[name], arms)
        theirs["contrastive"]["steps"] = _steps(run) or theirs["contrastive"]["steps"]  # those that it took
        ours = to_dict(load_config([*overrides, *arms[name].settings]))
        figures = {"seed": theirs["seed"], "policy": policy, "start": arms[name].start}
        figures["training_minutes"] = stage_minutes(run, arms[name].stage)
        figures["differences"] = differences(theirs, ours, stages)
        if run in copies:
            target.symlink_to(copies[run], target_is_directory=True)
        else:
            left_out = shutil.ignore_patterns("extensions", "tb", ARM_FILE)
            with replacing_folder(target) as partial:
                shutil.copytree(run, partial, symlinks=True, ignore=left_out, dirs_exist_ok=True)
            copies[run] = target.name
        note_arm(target, name, figures)
        yield f"{target.name}: {run}, policy {policy}"
        yield from (f"    {difference}" for difference in figures["differences"])


def differences(theirs: dict[str, Any], ours: dict[str, Any], stages: Sequence[str]) -> list[str]:
    """Return what a run computed otherwise than the table's runs do, a sentence for each setting.

    Args:
        stages: that made the policy; settings of others have no part in it.
    """
    others = tuple(f"{stage}." for stage in STAGES if stage not in stages)
    return [
        str(change)
        for change in changes(theirs, ours, to_dict(Config()))
        if change.key != "seed" and not (change.allowed and change.key != "contrastive.steps")
        if not change.key.startswith(others)
    ]


def _stages_to(run: Path, text: str, arm: Arm, arms: Mapping[str, Arm]) -> list[str]:
    """Return the stages that led to the arm's policy, its own last."""
    stages = {row["stage"] for row in read_json_lines(run / "metrics.jsonl")}
    before = [stage for stage in STAGES[: STAGES.index(arm.stage)] if stage in stages]
    expected_origin = arms[arm.start].stage if arm.start else ""
    started_elsewhere = not before and yaml.safe_load((run / "config.yaml").read_text())["init_from"]
    if not started_elsewhere and (before[-1] if before else "") != expected_origin:
        origin = before[-1] if before else "the base model"
        raise UserError(
            f"--have {text}: the run went to {arm.stage} from {origin}, the table's arm goes there from "
            f"{expected_origin or 'the base model'}; --start names the stage that the arms of stage 3 start from"
        )
    return [*before, arm.stage]


def _policy(run: Path, text: str, stage: str) -> str:
    """Return the name of the stage's last checkpoint."""
    store = CheckpointStore(run / "checkpoints", keep=1)
    last = store.final(stage) or next((saved for saved in store.all()[::-1] if saved.stage == stage), None)
    if last is None:
        names = ", ".join(saved.path.name for saved in store.all()) or "none"
        raise UserError(f"--have {text}: the run has no checkpoint of {stage} (it has {names})")
    return last.path.name


def _steps(run: Path) -> int:
    """Return the last step of stage 3; 0 where none was finished."""
    rows = read_json_lines(run / "metrics.jsonl")
    return max((row["step"] for row in rows if row["stage"] == "contrastive"), default=0)


def stage_minutes(run: Path, stage: str) -> float:
    """Return the minutes that the run took from the end of the stage before to the last step of this one."""
    rows = list(read_json_lines(run / "metrics.jsonl"))
    own = [row["wall_s"] for row in rows if row["stage"] == stage] or [0.0]
    before = [row["wall_s"] for row in rows if row["stage"] != stage and row["wall_s"] < min(own)]
    return round((max(own) - max(before, default=0.0)) / 60, 2)
