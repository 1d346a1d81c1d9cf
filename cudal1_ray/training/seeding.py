"""What a user gives a run to begin with: a corpus for stage 1, and candidates for the exemplar buffer."""

from __future__ import annotations

from pathlib import Path

from cudal1_ray.checking import served_buffers
from cudal1_ray.config import Config
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar
from cudal1_ray.exemplars.hardware_buffers import UNRECORDED, hardware_of, insert_measured
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


def seed_exemplars(source: str, run: RunFolder, problems: list[Problem], sizes: str) -> None:
    """Put what is known of the training problems into the run's buffers, before any candidate of its own: each
    candidate into that of all hardware that measured it. A run on other hardware measures the fastest again.

    Args:
        sizes: those of the problems. In other sizes than its own the corpus `kernelbench` is no hardware's.

    Raises:
        UserError: naming the source, when it holds no candidate with a speedup for them.
    """
    require_seeds(source)
    ids = {problem.problem_id for problem in problems if problem.split == "train"}
    folder = RunFolder(Path(source).expanduser()).exemplars
    if folder.is_dir():
        places = [(hardware_of(place), buffer) for place, buffer in served_buffers(folder)]
        measured = [(name, each.as_seed()) for name, buffer in places for each in buffer if each.problem_id in ids]
    else:
        in_other_sizes = sizes_measured_in(source, sizes)
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
