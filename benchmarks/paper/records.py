"""What is noted of the arms that a run's folder holds, and the rules and minutes of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudal1_ray.config import read_settings
from cudal1_ray.evaluation.rules import RulesConfig
from cudal1_ray.files import read_json_lines, write_atomically

# File in a run's folder with notes on it by arm; "at" is there once the run is assessed.
ARM_FILE = "arm.json"


def read_arms(run: Path) -> dict[str, dict[str, Any]]:
    """Return what is noted of the arms in a run's folder: seed, policy and minutes."""
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
    return dict(read_settings(run, "evaluation")["evaluation"].get("rules", {}))


def rule_settings(rules: Mapping[str, str]) -> list[str]:
    """Return the settings with which `cudal1 evaluate` holds candidates to these rules: those that are no defaults."""
    defaults = vars(RulesConfig())
    return [f"evaluation.rules.{name}={value}" for name, value in rules.items() if value != defaults.get(name)]


def stage_minutes(run: Path, stage: str) -> float:
    """Return the minutes that the run took from the end of the stage before to the last step of this one."""
    rows = list(read_json_lines(run / "metrics.jsonl"))
    own = [row["wall_s"] for row in rows if row["stage"] == stage] or [0.0]
    before = [row["wall_s"] for row in rows if row["stage"] != stage and row["wall_s"] < min(own)]
    return round((max(own) - max(before, default=0.0)) / 60, 2)
