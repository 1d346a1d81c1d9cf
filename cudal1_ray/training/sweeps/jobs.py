"""The jobs of a sweep, and its folder: which jobs there are and how each of them ended."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from cudal1_ray.analysis.sweep_files import DESCRIPTION, JOBS, read_description, read_jobs
from cudal1_ray.config import Config, check_config, config_dir
from cudal1_ray.errors import UserError
from cudal1_ray.files import JsonLines, write_atomically
from cudal1_ray.settings.composition import compose_settings
from cudal1_ray.training.continuation import is_how_it_is_run
from cudal1_ray.training.preflight import check_run

# They are the place of a run, so the sweep sets them.
PLACES = ("name", "runs_dir")
LONGEST_NAME = 120


@dataclass(frozen=True)
class SweepJob:
    """One run of a sweep.

    Attributes:
        name: its folder in the sweep's.
        settings: the keys that the sweep varies, with this job's values, as given on the command line.
        overrides: those and the ones all jobs share.
        config: what `train` gets.
    """

    name: str
    settings: dict[str, str]
    overrides: tuple[str, ...]
    config: Config


@dataclass(frozen=True)
class JobEnding:
    """How a job ended, and in one line why where it is not finished.

    Attributes:
        folder: the sweep's.
        state: `finished`, `failed`, `stopped` (by SIGTERM, with a checkpoint or before it began) or `interrupted`.
    """

    job: str
    folder: str
    state: str
    cause: str = ""


def make_jobs(
    loader: ConfigLoader, sweep: DictConfig, job_overrides: Sequence[Sequence[str]]
) -> tuple[SweepFolder, list[SweepJob]]:
    """Return the sweep's folder, claimed for this sweep, and the jobs of one batch, as `compose_jobs` does.

    Raises:
        UserError: naming the setting or the folder at fault.
    """
    jobs = compose_jobs(loader, sweep, job_overrides)
    varied = varied_keys(loader, sweep)
    folder = SweepFolder(Path(sweep.hydra.sweep.dir))
    folder.claim(varied, [o for o in jobs[0].overrides if o.partition("=")[0] not in varied])
    return folder, jobs


def compose_jobs(loader: ConfigLoader, sweep: DictConfig, job_overrides: Sequence[Sequence[str]]) -> list[SweepJob]:
    """Return the jobs of one batch, every configuration composed and checked; nothing is written.

    Args:
        job_overrides: for each job every override in Hydra's grammar.

    Raises:
        UserError: naming the setting at fault.
    """
    if not job_overrides:
        raise UserError(f"no job: one of {', '.join(sweep.hydra.overrides.task)} has no value")
    path = Path(sweep.hydra.sweep.dir)
    of_hydra = OmegaConf.to_container(sweep.hydra.overrides.hydra)  # as given: a resolved value is not in its grammar
    varied = varied_keys(loader, sweep)
    for key in PLACES:
        if key in varied:
            raise UserError(f"{key}: is the place of the sweep, it cannot take several values")
    jobs = []
    for overrides in job_overrides:
        values = dict(override.partition("=")[::2] for override in overrides)
        settings = {key: values[key] for key in varied}
        name = _folder_name(settings)
        composed = compose_settings("config", [*of_hydra, *overrides], config_dir())
        config: Config = dataclasses.replace(OmegaConf.to_object(composed), name=name, runs_dir=str(path))
        check_config(config)
        check_run(config)
        shared = tuple(o for o in overrides if o.partition("=")[0] not in PLACES)
        jobs.append(SweepJob(name, settings, shared, config))
    return jobs


def varied_keys(loader: ConfigLoader, sweep: DictConfig) -> list[str]:
    """Return the keys with several values: on the command line, or in hydra.sweeper.params."""
    return list(dict.fromkeys(o.get_key_element() for o in _overrides(loader, sweep) if o.is_sweep_override()))


def combinations(loader: ConfigLoader, sweep: DictConfig) -> list[list[str]]:
    """Return the overrides of every job of a sweep over all combinations, as Hydra's own sweeper makes them.

    Raises:
        UserError: for `interval(a,b)`, which has no list of values.
    """
    choices: dict[str, list[str]] = {}
    for override in _overrides(loader, sweep):
        key = override.get_key_element()
        if not override.is_sweep_override():
            choices[key] = [f"{key}={override.get_value_element_as_str()}"]
        elif override.is_discrete_sweep():
            choices[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            raise UserError(f"{override.input_line}: its values are not a list; give them as {key}=a,b or range(...)")
    return [list(job) for job in itertools.product(*choices.values())]


def _overrides(loader: ConfigLoader, sweep: DictConfig) -> list[Override]:
    """Return the sweep's overrides, parsed: those of hydra.sweeper.params, then those of the command line."""
    parameters = [f"{key}={values}" for key, values in (sweep.hydra.sweeper.get("params") or {}).items()]
    parser = OverridesParser.create(config_loader=loader)
    return parser.parse_overrides([*parameters, *OmegaConf.to_container(sweep.hydra.overrides.task)])


def _folder_name(settings: dict[str, str]) -> str:
    """Return Hydra's name of a job, `exemplars=bucket,seed=1`, made fit for a folder."""
    text = ",".join(f"{key}={value}" for key, value in settings.items()) or "only"
    name = re.sub(r"[^A-Za-z0-9=.,_@+-]", "_", text).lstrip(".")[:LONGEST_NAME]
    return name if name == text else f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class SweepFolder:
    """`sweep.json` (what varies), `jobs.jsonl` (what became of each job), and a log and a run for each."""

    def __init__(self, path: Path):
        self.path = path
        self.logs = path / "logs"
        self._description = path / DESCRIPTION
        self._jobs = path / JOBS
        self._journal: JsonLines | None = None

    def claim(self, varied: list[str], shared: list[str]) -> None:
        """Take the folder for this sweep, or continue in it; more values of what varies may be added at any time.

        Raises:
            UserError: when the folder holds a run, a sweep that varies or shares something else, or an unreadable one.
        """
        if (self.path / "config.yaml").exists():
            raise UserError(f"{self.path} holds a run, not a sweep; give the sweep another name=...")
        shared = sorted(o for o in shared if not _is_free(o))
        mine = {"varied": sorted(varied), "shared": shared}
        if self._description.exists():
            theirs = read_description(self.path)
            for key in mine:
                if theirs[key] != mine[key]:
                    was, now = (" ".join(side[key]) or "nothing" for side in (theirs, mine))
                    raise UserError(
                        f"{self.path} holds another sweep: {key} was {was}, is {now}; "
                        "give this one another name=..., or delete that folder"
                    )
            return
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            write_atomically(self._description, json.dumps(mine, indent=1) + "\n")
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written ({error.strerror}); choose another runs_dir=") from None

    def note(self, job: SweepJob, state: str, cause: str = "") -> None:
        """Record what became of a job: started, or the state of its ending."""
        row = {"job": job.name, "settings": job.settings, "overrides": list(job.overrides), "state": state}
        if self._journal is None:
            self._journal = JsonLines(self._jobs)
        self._journal.append({**row, "cause": cause, "at": time.time()})

    def finished(self) -> dict[str, list[str]]:
        """Return the overrides of the jobs whose run is finished, by name."""
        jobs = read_jobs(self.path)
        return {name: row["overrides"] for name, row in jobs.items() if row["state"] == "finished"}

    def is_finished(self, job: SweepJob) -> bool:
        """Return whether this job's run, as it is asked for now, is done: another stage= is another matter."""
        done = self.finished().get(job.name)
        return done is not None and _fixed_overrides(done) == _fixed_overrides(job.overrides)


def _is_free(override: str) -> bool:
    """Return whether a run may be continued with another value of this key."""
    return is_how_it_is_run(override.lstrip("+").partition("=")[0])


def _fixed_overrides(overrides: Sequence[str]) -> set[str]:
    return {o for o in overrides if not _is_free(o) or o.startswith("stage=")}
