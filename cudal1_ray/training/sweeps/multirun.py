"""From the command line to a sweep: Hydra's sweeper makes the combinations, our launcher runs them."""

from __future__ import annotations

from pathlib import Path

from hydra.types import RunMode
from rich.console import Console

from cudal1_ray.analysis.sweep_page import present_sweep
from cudal1_ray.config import composing, prepare_overrides, to_yaml
from cudal1_ray.errors import UserError
from cudal1_ray.training.sweeps.jobs import JobEnding, SweepFolder, combinations, compose_jobs

# Given unless the user gives them. The sweep's folder is runs_dir/name, each job's run a folder in it.
DEFAULTS = {"name": "sweep", "hydra/launcher": "ray", "hydra.sweep.dir": "${runs_dir}/${name}"}


def run_sweep(overrides: list[str]) -> int:
    """Run the sweep, print its table, and return the exit code: 0 finished, or ended by SIGTERM; 1 some failed; 130
    interrupted.

    Args:
        overrides: as on the command line; Hydra's sweep syntax (`a,b`, `range(1,4)`, `glob(*)`) in any of them.

    Raises:
        UserError: naming the key, the preset or the folder at fault.
    """
    overrides = _sweep_overrides(overrides)
    with composing() as hydra:
        batches = hydra.multirun(
            config_name="config", task_function=_never, overrides=overrides, with_log_configuration=False
        )
    endings: list[JobEnding] = [job.return_value for batch in batches for job in batch]
    folder = Path(endings[0].folder)
    console, states = Console(), {ending.state for ending in endings}
    if SweepFolder(folder).finished():
        try:
            present_sweep(folder, console)
        except UserError as error:  # runs without an assessment have no table; that is no mistake
            console.print(str(error), highlight=False, markup=False, soft_wrap=True)
    if "interrupted" in states:
        return 130
    if "stopped" in states:
        console.print("ended early (SIGTERM); all that is finished is kept. To continue: the same command")
    return 0 if states <= {"finished", "stopped"} else 1


def preview_sweep(overrides: list[str]) -> str:
    """Return the configuration of every run of a sweep, each a YAML document; nothing is started or written.

    Args:
        overrides: as `run_sweep` takes them.

    Raises:
        UserError: naming the key or the preset at fault, or a sweeper that finds the next runs from the last ones.
    """
    if any(o.startswith("hydra/sweeper=") and o != "hydra/sweeper=basic" for o in overrides):
        raise UserError("hydra/sweeper: --cfg lists the runs of the default sweeper only; leave out one of the two")
    with composing() as hydra:
        sweep = hydra.compose_config(
            "config", _sweep_overrides(overrides), run_mode=RunMode.MULTIRUN, with_log_configuration=False
        )
        jobs = compose_jobs(hydra.config_loader, sweep, combinations(hydra.config_loader, sweep))
    return "".join(f"---\n# {job.config.runs_dir}/{job.name}\n{to_yaml(job.config)}" for job in jobs)


def _sweep_overrides(overrides: list[str]) -> list[str]:
    """Return the overrides of a sweep in Hydra's grammar, with `DEFAULTS` where the user gives none.

    Raises:
        UserError: naming the key or the preset at fault.
    """
    keys = {override.lstrip("+").partition("=")[0] for override in overrides}
    if any(o.startswith("hydra/launcher=") and o != "hydra/launcher=ray" for o in overrides):
        raise UserError("hydra/launcher: a sweep of runs needs hydra/launcher=ray, which is the default")
    added = [f"{key}={value}" for key, value in DEFAULTS.items() if key not in keys]
    return [*prepare_overrides(overrides, sweep=True), *added]


def _never(_: object) -> None:
    raise AssertionError("our launcher calls no task function: it hands whole configurations to Ray")
