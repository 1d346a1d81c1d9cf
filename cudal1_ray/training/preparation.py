"""Before the actors start: the policy a run begins with, and what it takes over from another run."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cudal1_ray.checking import served_buffers
from cudal1_ray.config import STAGES, Config, stages_of
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar
from cudal1_ray.exemplars.hardware_buffers import UNRECORDED, buffers_of, copy_exemplars, insert_measured
from cudal1_ray.files import read_json_object, replacing_folder, settle_folder, write_atomically
from cudal1_ray.learning import build_policy, save_policy
from cudal1_ray.learning.adapter_files import is_adapter_folder, with_adapter_shape
from cudal1_ray.problems import MemberDraw, Problem, load_corpus
from cudal1_ray.prompting import render_answer
from cudal1_ray.settings.suggestions import nearest_folders, question
from cudal1_ray.training.checkpoints import Checkpoint, CheckpointStore, checkpoint_at, read_state
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.seeding import check_corpus, measured_otherwise, seed_exemplars

# Bytes of each file's beginning and end that go into a policy's fingerprint.
FINGERPRINT_BYTES = 1 << 20
# Members drawn of each bundled training problem: each number that one may hold is then in several.
MEMBERS_OF_A_TOKENIZER = 8


@dataclass(frozen=True)
class Beginning:
    """Where a run goes on, or starts.

    Attributes:
        checkpoint: one of this run, to go on from, or of another, to start from; None: the policy as it was prepared.
        own: the checkpoint is this run's.
        whole: the learner takes weights and optimiser from the checkpoint's own files.
        adapter: adapter that the learner starts with, where it does not.
    """

    checkpoint: Checkpoint | None = None
    own: bool = False
    whole: bool = False
    adapter: Path | None = None

    @property
    def policy_version(self) -> int:
        """Return the version of the policy that is taken from here: 0 where it is no checkpoint's."""
        return read_state(self.checkpoint).policy_version if self.checkpoint is not None else 0

    @property
    def weights(self) -> str:
        """Return a hash of the files that the weights are taken from; empty for the policy as it was prepared."""
        if self.adapter is not None:
            return policy_fingerprint(self.adapter)
        return policy_fingerprint(self.checkpoint.learner, "**/*.pt") if self.checkpoint is not None else ""


def settle_adapter(config: Config) -> None:
    """Set the policy's rank and alpha to those of the adapter that the run starts from, where it gives no rank.

    Raises:
        UserError: the rank given is another one, or there is no adapter.
    """
    run = RunFolder.of(config)
    latest = CheckpointStore(run.checkpoints, keep=1).latest()
    init_from = Path(config.init_from).expanduser() if config.init_from else None
    source = Path(config.policy.adapter).expanduser() if config.policy.adapter else init_from
    folder: Path | None = None
    if latest is not None:
        folder = latest.adapter if is_adapter_folder(latest.adapter) else None
    elif source is not None and is_adapter_folder(source):  # before the run's copy, which may be of a corrected setting
        folder = source
    elif run.adapter.is_dir():
        folder = run.adapter
    elif config.policy.adapter:
        folder = source
    elif init_from is not None:
        origin = origin_of(init_from, stages_of(config)[0])
        folder = origin.adapter if origin is not None and is_adapter_folder(origin.adapter) else None
    if folder is not None:
        config.policy = with_adapter_shape(config.policy, folder)


def prepare_run(config: Config, run: RunFolder, problems: list[Problem], first_stage: str) -> None:
    """Put the initial policy (weights and tokenizer) at `run.policy`, and its adapter, if any, at `run.adapter`, once.

    A Hugging Face folder is linked, not copied. A run that starts from another takes over its policy's tokenizer and
    shape, and the exemplars that it had when its checkpoint was made: what the other found later, this one must find
    for itself.

    Raises:
        UserError: when a stage is asked for whose predecessor was never finished, the policy is not there, or it is
            another one than the run began with.
    """
    origin = origin_checkpoint(config, run, first_stage)
    _take_adapter(config, run)
    source = _run_of(Path(config.init_from).expanduser()) if config.init_from else None
    settle_folder(run.exemplars)  # else a rewind that was killed would look like a run without exemplars
    if not (run.policy.is_dir() and buffers_of(run.exemplars)):  # after a killed switch all lie beside it
        if source is not None and source.exemplars.is_dir():
            _take_over_exemplars(source, run, origin, measured_otherwise(source, config, problems))
        if config.exemplars.seed_from:
            seed_exemplars(config, run, problems)
    if run.policy.is_dir():
        _check_path(config, run)
        return
    if first_stage == STAGES[0]:
        check_corpus(config, problems)
    if run.policy.is_symlink():  # what it pointed to is gone
        run.policy.unlink()
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # its bars would be drawn across ours
    # transformers imports DeepSpeed when it saves, which would warn of a missing GPU: this process needs none.
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    ready: Path | None = None  # a folder that can be used as it is
    if source is not None and source.policy.is_dir():
        ready = source.policy
        if config.policy.kind == "scratch" and not ready.is_symlink():  # small, and nothing could make it again
            with replacing_folder(run.policy) as partial:
                shutil.copytree(ready, partial, dirs_exist_ok=True)
    elif config.policy.kind == "huggingface" and any(Path(config.policy.path).expanduser().glob("*.safetensors")):
        ready = Path(config.policy.path).expanduser()
    if ready is not None and not run.policy.is_dir():
        run.policy.symlink_to(ready.resolve(), target_is_directory=True)
    elif ready is None:
        model, tokenizer = build_policy(config.policy, _tokenizer_texts(problems), config.seed)
        with replacing_folder(run.policy) as partial:
            save_policy(model, tokenizer, str(partial))
    _check_fingerprint(config, run)


def origin_checkpoint(config: Config, run: RunFolder, first_stage: str) -> Checkpoint | None:
    """Return the checkpoint that a run without one of its own starts from: in `init_from`, or none.

    Of a run that is the finished stage before the first one, or else its last checkpoint; `init_from` may also be the
    folder of one checkpoint, or that of an adapter. A pretrained policy may start at any stage without one.

    Raises:
        UserError: when there is none and the policy is made from scratch.
    """
    if CheckpointStore(run.checkpoints, keep=1).latest() is not None:
        return None
    return _origin(config, run, first_stage)


def _origin(config: Config, run: RunFolder, first_stage: str) -> Checkpoint | None:
    """Return the checkpoint of `origin_checkpoint`, whatever checkpoints the run has by now."""
    if run.adapter.is_dir() and not config.policy.adapter:  # taken from init_from, which may be elsewhere by now
        return None
    if config.init_from:
        return origin_of(Path(config.init_from).expanduser(), first_stage)
    if config.policy.kind == "scratch" and first_stage != STAGES[0]:
        before = STAGES[STAGES.index(first_stage) - 1]
        raise UserError(
            f"stage={first_stage}: {run.path} has no finished {before} stage to start from; "
            f"run stage={before} first, or give init_from=<folder of a run that has it>"
        )
    return None


def find_beginning(config: Config, run: RunFolder, first_stage: str) -> Beginning:
    """Return where the run continues or starts, once it is prepared.

    Raises:
        UserError: the checkpoint's weights fit no learner of this configuration, and it holds no adapter.
    """
    own = CheckpointStore(run.checkpoints, keep=1).latest()
    return first_beginning(config, run, first_stage) if own is None else beginning_from(config, own, own=True)


def first_beginning(config: Config, run: RunFolder, first_stage: str) -> Beginning:
    """Return where the run starts, or started before it had a checkpoint.

    Raises:
        UserError: its start is not there (any more), or fits no learner of this configuration.
    """
    if (checkpoint := _origin(config, run, first_stage)) is not None:
        return beginning_from(config, checkpoint)
    adapter = run.adapter if run.adapter.is_dir() else _given_adapter(config)
    if adapter is None and config.policy.adapter:
        raise UserError(f"policy.adapter={config.policy.adapter}: no adapter is there")
    return Beginning(adapter=adapter)


def beginning_from(config: Config, checkpoint: Checkpoint, own: bool = False) -> Beginning:
    """Return how the learner takes a checkpoint's weights: as its adapter where there is one, since another policy's
    optimiser is of no use; of the run's `own` last checkpoint with the optimiser, where that fits.

    Raises:
        UserError: the checkpoint's weights fit no learner of this configuration, and it holds no adapter.
    """
    from cudal1_ray.learning import learner_state

    adapter = checkpoint.adapter if is_adapter_folder(checkpoint.adapter) else None
    obstacle = learner_state.obstacle(checkpoint.learner, config.cluster.learner.count, config.learner.zero_stage)
    if adapter is not None and (obstacle or not own):
        return Beginning(checkpoint, own, False, adapter)
    if obstacle:
        raise UserError(f"{checkpoint.learner}: {obstacle}, and the checkpoint holds no adapter")
    return Beginning(checkpoint, own, True)


def origin_of(folder: Path, first_stage: str) -> Checkpoint | None:
    """Return the checkpoint that `init_from=folder` means; None for an adapter, and where the first of all stages is
    run.
    """
    if is_adapter_folder(folder):
        return None
    if (checkpoint := checkpoint_at(folder)) is not None:
        return checkpoint
    store = CheckpointStore(folder / "checkpoints", keep=1)
    if not (folder / "policy").is_dir() and store.latest() is None:
        meant = "" if folder.is_dir() else question(nearest_folders(folder))
        raise UserError(f"init_from={folder}: no run, checkpoint or adapter is there" + (f"; {meant}" if meant else ""))
    if first_stage == STAGES[0]:
        return None
    before = STAGES[STAGES.index(first_stage) - 1]
    if (checkpoint := store.final(before) or store.latest()) is None:
        raise UserError(f"init_from={folder}: no finished {before} stage there, nor any checkpoint")
    return checkpoint


def _run_of(folder: Path) -> RunFolder | None:
    """Return the run that `folder` is, or is a checkpoint of; None for an adapter."""
    if is_adapter_folder(folder):
        return None
    return RunFolder(folder.parent.parent if checkpoint_at(folder) is not None else folder)


def _take_adapter(config: Config, run: RunFolder) -> None:
    """Copy the adapter that the run starts from: the run continues where that folder is not."""
    folder = _given_adapter(config)
    if run.adapter.is_dir() or folder is None:
        return
    with replacing_folder(run.adapter) as partial:
        shutil.copytree(folder, partial, dirs_exist_ok=True)


def _given_adapter(config: Config) -> Path | None:
    """Return the folder of the adapter that the settings name, as far as it is there."""
    folder = config.policy.adapter or config.init_from
    return Path(folder).expanduser() if folder and is_adapter_folder(Path(folder).expanduser()) else None


def _take_over_exemplars(source: RunFolder, run: RunFolder, origin: Checkpoint | None, differing: set[str]) -> None:
    """Copy the exemplars that were there before the policy of `origin`; all of them, as seeds, where there is no
    checkpoint, since the versions of the policy begin anew then. Those of `differing` problems become seeds of no
    hardware.
    """
    version = math.inf if origin is None else read_state(origin).policy_version

    def is_copied(exemplar: Exemplar) -> bool:
        return exemplar.policy_version < version and exemplar.problem_id not in differing

    if not run.exemplars.is_dir():
        for place in reversed(buffers_of(source.exemplars)):  # the run's own last: it marks that all are there
            with replacing_folder(run.exemplars.with_name(place.name)) as partial:
                copy_exemplars(place, partial, is_copied, as_seeds=origin is None)
    if differing:
        served = (each for _, buffer in served_buffers(source.exemplars) for each in buffer)
        seeds = (each.as_seed() for each in served if each.problem_id in differing and each.policy_version < version)
        insert_measured(run.exemplars, UNRECORDED, seeds)


def _check_fingerprint(config: Config, run: RunFolder) -> None:
    """Record which policy the run began with; on a machine that prepares it again it must be the same.

    Raises:
        UserError: it is another one, or the record is damaged.
    """
    file, fingerprint = run.path / "policy.json", policy_fingerprint(run.policy)
    if not file.exists():
        write_atomically(file, json.dumps({"fingerprint": fingerprint}))
        return
    recorded = read_json_object(file).get("fingerprint")
    if not isinstance(recorded, str):
        raise UserError(f"{file}: fingerprint must be a text; restore it")
    if config.policy.kind != "scratch" and recorded != fingerprint:
        run.policy.unlink() if run.policy.is_symlink() else shutil.rmtree(run.policy)
        raise _another_policy(config, run)


def _check_path(config: Config, run: RunFolder) -> None:
    """Check that a model folder that is given is the one that the run has, or holds the same weights.

    Raises:
        UserError: it holds others.
    """
    folder = Path(config.policy.path).expanduser()
    if config.policy.kind != "huggingface" or config.init_from or not any(folder.glob("*.safetensors")):
        return
    if folder.resolve() != run.policy.resolve() and policy_fingerprint(folder) != policy_fingerprint(run.policy):
        raise _another_policy(config, run)


def _another_policy(config: Config, run: RunFolder) -> UserError:
    return UserError(
        f"policy.path={config.policy.path}: not the policy that {run.path} began with (its weights differ); "
        "give the same one, or another name=..."
    )


def policy_fingerprint(folder: Path, pattern: str = "*.safetensors") -> str:
    """Return a hash over sizes and both ends of the files that hold a policy's weights."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob(pattern)):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with open(path, "rb") as file:
            digest.update(file.read(FINGERPRINT_BYTES))
            file.seek(max(0, size - FINGERPRINT_BYTES))
            digest.update(file.read())
    return digest.hexdigest()[:32]


def _tokenizer_texts(problems: list[Problem]) -> list[str]:
    """Return what a tokenizer made from scratch is trained on: the training problems, further members of their
    families, whose numbers and functions are to be tokens too, and the corpus; no held-out text.
    """
    corpus, rng = load_corpus(), np.random.default_rng(0)
    train = [problem for problem in problems if problem.split == "train"]
    texts = [problem.source for problem in train] + [render_answer(e.analysis, e.design, e.code) for e in corpus]
    members = MemberDraw(train, corpus, [problem for problem in problems if problem.held_out])
    for problem_id in members.problem_ids * MEMBERS_OF_A_TOKENIZER:
        member, candidates = members.draw(problem_id, rng)
        texts += [member.source, *(candidate.code for candidate in candidates[:2])]
    return texts
