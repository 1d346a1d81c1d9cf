"""Policies of a run, assessed at any time: its initial one, any checkpoint of it, or an adapter from elsewhere.

Rows go to assessments_asked.jsonl, one per sample, with the code of those that were accepted; verdicts to the run's
journal. What is there already is not sampled again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cudal1_ray.analysis.run_data import degenerate_problems
from cudal1_ray.checking import served_buffers
from cudal1_ray.config import Config, all_presets, check_config, composing, prepare_overrides, read_settings
from cudal1_ray.errors import UserError, first_line
from cudal1_ray.files import JsonLines, read_json_lines, read_json_object, write_atomically
from cudal1_ray.learning.adapter_files import is_adapter_folder
from cudal1_ray.problems import Problem
from cudal1_ray.training.assessment import figures_of_rows, keep_samples, problems_of_table, sample, sample_rows
from cudal1_ray.training.checkpoints import CheckpointStore, checkpoint_at, read_state
from cudal1_ray.training.in_flight import InFlight
from cudal1_ray.training.preparation import Beginning, beginning_from
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.session import Session

FILE = "assessments_asked.jsonl"
# In the run's `assessed`: problems whose prompts were too long when it was assessed last, and the settings of prompts.
LEFT_OUT = "left_out.json"
BASE, LATEST = "base", "latest"


@dataclass(frozen=True)
class Question:
    """What is sampled: a split of the problems, with or without exemplars in the prompts."""

    split: str
    exemplars: bool = False


def read_config(run: Path, overrides: list[str]) -> Config:
    """Return the configuration of a run, with other values for some keys.

    Raises:
        UserError: there is none, or a key or value is wrong.
    """
    recorded = read_settings(run, "problems", "policy")
    try:
        settings = OmegaConf.merge(OmegaConf.structured(Config), recorded)
    except OmegaConfBaseException as error:
        raise UserError(f"{run / 'config.yaml'}: {error.full_key}: {first_line(error)}") from None
    for override in overrides:
        group, _, value = override.partition("=")
        if group in all_presets() and not value.startswith("{"):
            raise UserError(
                f"{override}: the run's presets stay; give settings of the section, {group.replace('/', '.')}.KEY=VALUE"
            )
    with composing():
        for override in OverridesParser.create().parse_overrides(prepare_overrides(overrides)):
            OmegaConf.update(settings, override.key_or_group, override.value())
        config: Config = OmegaConf.to_object(settings)  # type: ignore[assignment]
    check_config(config)
    return config


def find_policy(config: Config, run: RunFolder, policy: str) -> tuple[str, Beginning]:
    """Return the name under which a policy's rows are kept, and where the learner finds it.

    Args:
        policy: `latest` (the last checkpoint), `base` (the one before any training), the name of a checkpoint such as
            `sft-final`, or the folder of a checkpoint or an adapter.

    Raises:
        UserError: there is no such policy, or its weights fit no learner of this configuration.
    """
    store = CheckpointStore(run.checkpoints, keep=1)
    if policy == BASE:
        return BASE, Beginning()
    if is_adapter_folder(folder := Path(policy).expanduser()):
        return str(folder), Beginning(adapter=folder)
    checkpoint = (
        store.latest() if policy == LATEST else checkpoint_at(run.checkpoints / policy) or checkpoint_at(folder)
    )
    if checkpoint is None:
        names = ", ".join(saved.path.name for saved in store.all()) or "none"
        raise UserError(f"--policy {policy}: {run.path} has no such checkpoint (it has {names}); or give {BASE}")
    name = checkpoint.path.name if checkpoint.path.parent == run.checkpoints else str(checkpoint.path)
    return name, beginning_from(config, checkpoint)


def take_policy(session: Session, beginning: Beginning) -> None:
    """Load the policy's weights into the learner and the engines. The run's metrics stay as they are."""
    if beginning.checkpoint is not None:
        session.state.policy_version = read_state(beginning.checkpoint).policy_version
        if beginning.whole:
            session.crew.learner.load(beginning.checkpoint.learner)
    session.engines_current = beginning.checkpoint is None and beginning.adapter is None
    session.ensure_published()


def identity_of(beginning: Beginning) -> dict[str, Any]:
    """Return what the rows of a policy hold beside its name, which other weights may have by now: a stage that was
    prolonged ends with another policy of the same name, and so does a folder that is written again.
    """
    return {"policy_version": beginning.policy_version, "weights": beginning.weights}


def ask(
    session: Session, policy: str, identity: dict[str, Any], questions: list[Question]
) -> Iterator[tuple[Question, list[dict[str, Any]]]]:
    """Sample `assessment.samples_per_problem` answers to each question, for `assessment.problems` of its split or all;
    yield the rows as they are kept.

    Args:
        identity: that of `identity_of`.
    """
    table = JsonLines(session.run.path / FILE)
    settings = asdict(session.config.prompting)
    left_out = {"prompting": settings, "problem_ids": sorted(session.left_out)}
    write_atomically(session.run.assessed / LEFT_OUT, json.dumps(left_out))
    # Completions of a killed step of training stay for the run, those of a killed assessment for the next one.
    session.batches.in_flight = InFlight(session.run.rollouts / "assessing")
    both = {"train": session.train_problems, "held_out": session.held_out_problems}
    splits = {split: problems_of_table(session, problems) for split, problems in both.items()}
    for question in questions:
        how = "with_exemplars" if question.exemplars else "without_exemplars"
        label = f"asked/{policy.replace('/', '-')}/{question.split}/{how}"
        session.progress.role("assessment", f"{policy}, {question.split} problems, {how.replace('_', ' ')}")
        # Completions that a killed assessment left are used again: they must be of these weights.
        label_of_weights = "/".join(filter(None, (label, identity["weights"][:8])))
        samples = sample(session, splits[question.split], question.exemplars, label_of_weights)
        keep_samples(session, label.replace("/", "-"), samples)
        fields = {"policy": policy, **identity, "exemplars": question.exemplars}
        rows = [{**fields, **row} for row in sample_rows(session, policy, samples)]
        table.keep([row for row in table if not _answers(row, policy, question)] + rows)
        session.batches.in_flight.keep([])
        yield question, rows


def questions_of(
    run: RunFolder, problems: list[Problem], splits: list[str], exemplars: Sequence[bool]
) -> list[Question]:
    """Return what can be asked: with exemplars where the run has an accepted one of the split's problems, measured on
    any hardware.
    """
    buffers = served_buffers(run.exemplars)
    with_exemplar = {exemplar.problem_id for _, buffer in buffers for exemplar in buffer if exemplar.speedup > 0}
    questions = [Question(split) for split in splits if False in exemplars]
    if True in exemplars:
        answerable = (
            split for split in splits if any(p.split == split and p.problem_id in with_exemplar for p in problems)
        )
        questions += [Question(split, exemplars=True) for split in answerable]
    return questions


def left_out_problems(run: RunFolder, config: Config) -> set[str]:
    """Return the ids of the problems that the run's last assessment left out with the same settings of prompts."""
    file = run.assessed / LEFT_OUT
    left_out = read_json_object(file) if file.is_file() else {}
    same = left_out.get("prompting") == json.loads(json.dumps(asdict(config.prompting)))
    return set(left_out.get("problem_ids", ())) if same else set()


def is_assessed(
    run: RunFolder,
    policy: str,
    identity: dict[str, Any],
    question: Question,
    problems: list[Problem],
    samples: int,
) -> bool:
    """Return whether all of the problems have as many samples of the policy as are wanted.

    Args:
        identity: that of `identity_of`. Rows without one of its fields are older than the field, and count.
    """
    counts = {problem.problem_id: 0 for problem in problems if problem.split == question.split}
    for row in read_json_lines(run.path / FILE):
        of_policy = _answers(row, policy, question) and all(
            row.get(key, value) == value for key, value in identity.items()
        )
        if of_policy and row["problem_id"] in counts:
            counts[row["problem_id"]] += 1
    return bool(counts) and min(counts.values()) >= samples


def tables(run: RunFolder) -> dict[tuple[str, str, bool], dict[str, float]]:
    """Return the figures of all that was assessed, by (policy, split, exemplars), in the order of the rows."""
    rows = read_json_lines(run.path / FILE)
    left_out = degenerate_problems(rows)  # of every policy alike
    groups: dict[tuple[str, str, bool], list[dict[str, Any]]] = {}
    for row in rows:
        group = groups.setdefault((row["policy"], row["split"], row["exemplars"]), [])
        if row["problem_id"] not in left_out:
            group.append(row)
    return {key: figures_of_rows(group) for key, group in groups.items()}


def _answers(row: dict[str, Any], policy: str, question: Question) -> bool:
    return (row["policy"], row["split"], row["exemplars"]) == (policy, question.split, question.exemplars)
