"""What a user gives a run to begin with: a corpus for stage 1, and candidates for the exemplar buffer."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from cudal1_ray.checking import served_buffers
from cudal1_ray.config import Config, read_settings
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar
from cudal1_ray.exemplars.hardware_buffers import UNRECORDED, hardware_of, insert_measured
from cudal1_ray.files import read_json_lines
from cudal1_ray.problems import Problem, read_corpus
from cudal1_ray.problems.corpus_sources import require_corpus, sizes_measured_in
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.wording import counted


def check_corpus(config: Config, problems: list[Problem]) -> None:
    """Read the corpus of stage 1. Raises UserError when it cannot be read or has nothing for the training problems."""
    ids = {problem.problem_id for problem in problems if problem.split == "train"}
    entries = read_corpus(config.sft.corpus)
    if ids.isdisjoint(entry.problem_id for entry in entries):
        some = ", ".join(sorted({entry.problem_id for entry in entries})[:3])
        raise UserError(
            f"sft.corpus={config.sft.corpus}: no candidate for any of {counted(len(ids), 'training problem')} of "
            f"problems.source={config.problems.source} (it is for problems such as {some}); give another corpus, or "
            "start from a pretrained policy with stage=self_supervised or stage=contrastive"
        )


def require_seeds(source: str) -> None:
    """Raise UserError where `exemplars.seed_from` names neither a corpus nor a run with exemplars; read neither."""
    run = RunFolder(Path(source).expanduser())
    if run.exemplars.is_dir():
        return
    if (run.path / "config.yaml").is_file():
        raise UserError(
            f"exemplars.seed_from={source}: this run has no exemplars yet (no folder {run.exemplars.name} in it); "
            "let it evaluate candidates first, or give another run or a corpus"
        )
    require_corpus(source, "exemplars.seed_from", "the folder of a run with exemplars")


def seed_exemplars(config: Config, run: RunFolder, problems: list[Problem]) -> None:
    """Put what `exemplars.seed_from` knows of the training problems into the run's buffers, before any candidate of its
    own: each candidate into that of all hardware that measured it. A run on other hardware measures the fastest again.

    What was measured otherwise is no hardware's: another run's of a problem with another text (of other sizes),
    all of a run with other rules or another baseline, and the corpus `kernelbench` in other sizes than its own.

    Raises:
        UserError: naming the source, when it holds no candidate with a speedup for them.
    """
    source = config.exemplars.seed_from
    require_seeds(source)
    ids = {problem.problem_id for problem in problems if problem.split == "train"}
    other = RunFolder(Path(source).expanduser())
    if other.exemplars.is_dir():
        differing = measured_otherwise(other, config, problems)
        measured = [
            (UNRECORDED if each.problem_id in differing else hardware_of(place), each.as_seed())
            for place, buffer in served_buffers(other.exemplars)
            for each in buffer
            if each.problem_id in ids
        ]
    else:
        in_other_sizes = sizes_measured_in(source, config.problems.sizes)
        measured = [
            (UNRECORDED if in_other_sizes else hardware, Exemplar.new(entry.problem_id, entry.code, speedup))
            for entry in read_corpus(source, "exemplars.seed_from")
            for hardware, speedup in {entry.hardware: entry.speedup, **entry.speedups}.items()
            if entry.problem_id in ids and speedup > 0
        ]
    if not measured:
        raise UserError(
            f"exemplars.seed_from={source}: holds no candidate with a speedup for any of "
            f"{counted(len(ids), 'training problem')}; give a Parquet file with the columns problem, code and speedup, "
            "or the folder of a run with exemplars of them"
        )
    for hardware in sorted({hardware for hardware, _ in measured}):
        ours = [exemplar for named, exemplar in measured if named == hardware]
        insert_measured(run.exemplars, hardware or UNRECORDED, ours)


def measured_otherwise(other: RunFolder, config: Config, problems: list[Problem]) -> set[str]:
    """Return the ids of problems whose speedups in another run are none here, whatever its hardware: all, where it
    records other rules or another baseline than the configuration's; those of which it records another text.
    """
    if (other.path / "config.yaml").is_file():
        recorded, ours = read_settings(other.path).get("evaluation", {}), config.evaluation
        theirs = {"against": recorded.get("against", ours.against), **recorded.get("rules", {})}
        settings = {"against": ours.against, **asdict(ours.rules)}
        if any(str(theirs[name]) != str(value) for name, value in settings.items() if name in theirs):
            return {each.problem_id for each in problems}
    texts = {row.get("problem_id"): row.get("source") for row in read_json_lines(other.problems)}
    return {each.problem_id for each in problems if texts.get(each.problem_id, each.source) != each.source}
