"""Before the actors start: the policy a run begins with, and what it takes over from another run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from cudal1_ray.config import STAGES, Config
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer
from cudal1_ray.learning import build_policy, save_policy
from cudal1_ray.problems import Problem, load_corpus, read_corpus
from cudal1_ray.prompting import render_answer
from cudal1_ray.rewards.withheld import FILE as WITHHELD
from cudal1_ray.training.checkpoints import Checkpoint, CheckpointStore, TrainingState
from cudal1_ray.training.run_folder import RunFolder, replace_folder


def prepare_run(config: Config, run: RunFolder, problems: list[Problem], first_stage: str) -> None:
    """Puts the initial policy (weights and tokenizer) at `run.policy`, once.

    A run that starts from another takes over its policy's tokenizer and shape, and the exemplars that it had when the
    stage before the first one ended: what the other found later, this one must find for itself.

    Raises:
        UserError: when a stage is asked for whose predecessor was never finished, or the policy is not there.
    """
    origin = origin_checkpoint(config, run, first_stage)
    if run.policy.is_dir():
        return
    if first_stage == STAGES[0]:
        _check_corpus(config, problems)
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # its bars would be drawn across ours
    # transformers imports DeepSpeed when it saves, which would warn of a missing GPU: this process needs none.
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    partial = run.policy.with_name(".policy.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if config.init_from:
        source = RunFolder(Path(config.init_from))
        if source.exemplars.is_dir() and not run.exemplars.is_dir():
            _take_over_exemplars(source.exemplars, run.exemplars, origin, config)
        shutil.copytree(source.policy, partial)
    else:
        model, tokenizer = build_policy(config.policy, _tokenizer_texts(problems), config.seed)
        save_policy(model, tokenizer, str(partial))
    if config.exemplars.seed_from:
        _seed_exemplars(config.exemplars.seed_from, run, problems)
    replace_folder(partial, run.policy)


def _check_corpus(config: Config, problems: list[Problem]) -> None:
    """Reads the corpus of stage 1. Raises UserError when it cannot be read or has nothing for the training problems."""
    ids = {problem.problem_id for problem in problems if problem.split == "train"}
    entries = read_corpus(config.sft.corpus)
    if ids.isdisjoint(entry.problem_id for entry in entries):
        some = ", ".join(sorted({entry.problem_id for entry in entries})[:3])
        raise UserError(
            f"sft.corpus={config.sft.corpus}: no candidate for any of the {len(ids)} training problems of "
            f"problems.source={config.problems.source} (it is for problems such as {some}); give another corpus, or "
            "start from a pretrained policy with stage=self_supervised or stage=contrastive"
        )


def _seed_exemplars(source: str, run: RunFolder, problems: list[Problem]) -> None:
    """Puts what is known of the training problems into the run's buffer, before any candidate of its own.

    Raises:
        UserError: naming the source, when it holds no candidate with a speedup for them.
    """
    ids = {problem.problem_id for problem in problems if problem.split == "train"}
    folder = RunFolder(Path(source)).exemplars
    if folder.is_dir():
        found = [exemplar for exemplar in ExemplarBuffer.open(folder) if exemplar.problem_id in ids]
    else:
        entries = [e for e in read_corpus(source, "exemplars.seed_from") if e.problem_id in ids and e.speedup > 0]
        found = [Exemplar.new(entry.problem_id, entry.code, entry.speedup) for entry in entries]
    if not found:
        raise UserError(
            f"exemplars.seed_from={source}: holds no candidate with a speedup for any of the {len(ids)} training "
            "problems; give a Parquet file with the columns problem, code and speedup, or the folder of a run"
        )
    buffer = ExemplarBuffer.open(run.exemplars)
    buffer.insert(found)
    buffer.save()


def _take_over_exemplars(source: Path, target: Path, origin: Checkpoint | None, config: Config) -> None:
    """Those found before the policy of `origin` was there; all of them where no checkpoint is the origin."""
    partial = target.with_name(".exemplars.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if origin is None:
        shutil.copytree(source, partial)
    else:
        before = TrainingState(config.seed, config.rewards)
        before.restore_from_path(str(origin.state.resolve()))
        buffer = ExemplarBuffer.open(partial)
        buffer.insert(one for one in ExemplarBuffer.open(source) if one.policy_version < before.policy_version)
        buffer.save()
        if (source / WITHHELD).exists():
            shutil.copy(source / WITHHELD, partial)
    replace_folder(partial, target)


def origin_checkpoint(config: Config, run: RunFolder, first_stage: str) -> Checkpoint | None:
    """The checkpoint of the stage before, for a run that has none of its own: in this run or in `init_from`.

    A pretrained policy may start at any stage without one.

    Raises:
        UserError: when there is none and the policy is made from scratch.
    """
    if CheckpointStore(run.checkpoints, keep=1).latest() is not None:
        return None
    if config.init_from and not (Path(config.init_from) / "policy").is_dir():
        raise UserError(f"init_from={config.init_from}: no run is there")
    if first_stage == STAGES[0]:
        return None
    before = STAGES[STAGES.index(first_stage) - 1]
    if config.init_from:
        checkpoint = CheckpointStore(RunFolder(Path(config.init_from)).checkpoints, keep=1).final(before)
        if checkpoint is None:
            raise UserError(f"init_from={config.init_from}: no finished {before} stage there")
        return checkpoint
    if config.policy.kind == "scratch":
        raise UserError(
            f"stage={first_stage}: {run.path} has no finished {before} stage to start from; "
            f"run stage={before} first, or give init_from=<folder of a run that has it>"
        )
    return None


def _tokenizer_texts(problems: list[Problem]) -> list[str]:
    """What a tokenizer made from scratch is trained on: the training problems and their corpus, no held-out text."""
    texts = [problem.source for problem in problems if problem.split == "train"]
    return texts + [render_answer(e.analysis, e.design, e.code) for e in load_corpus()]
