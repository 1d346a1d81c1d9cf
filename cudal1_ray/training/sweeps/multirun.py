"""From the command line to a sweep: Hydra's sweeper makes the combinations, our launcher runs them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from cudal1_ray.analysis.sweep_page import present_sweep
from cudal1_ray.config import composing, prepare_overrides
from cudal1_ray.errors import UserError
from cudal1_ray.training.sweeps.jobs import Ending, SweepFolder

# Given unless the user gives them. The sweep's folder is runs_dir/name, each job's run a folder in it.
DEFAULTS = {"name": "sweep", "hydra/launcher": "ray", "hydra.sweep.dir": "${runs_dir}/${name}"}


def run_sweep(overrides: list[str]) -> int:
    """Runs the sweep, shows its table, and returns the exit code: 0 all finished, 1 some failed, 130 interrupted.

    Args:
        overrides: as on the command line; Hydra's sweep syntax (`a,b`, `range(1,4)`, `glob(*)`) in any of them.

    Raises:
        UserError: naming the key, the preset or the folder at fault.
    """
    keys = {override.lstrip("+").partition("=")[0] for override in overrides}
    if any(o.startswith("hydra/launcher=") and o != "hydra/launcher=ray" for o in overrides):
        raise UserError("hydra/launcher: a sweep of runs needs hydra/launcher=ray, which is the default")
    overrides = prepare_overrides(overrides, sweep=True)
    added = [f"{key}={value}" for key, value in DEFAULTS.items() if key not in keys]
    with composing() as hydra:
        batches = hydra.multirun(
            config_name="config", task_function=_never, overrides=[*overrides, *added], with_log_configuration=False
        )
    endings: list[Ending] = [job.return_value for batch in batches for job in batch]
    folder = Path(endings[0].folder)
    if SweepFolder(folder).finished():
        console = Console()
        try:
            present_sweep(folder, console)
        except UserError as error:  # runs without an assessment have no table; that is no mistake
            console.print(str(error), highlight=False, markup=False, soft_wrap=True)
    if any(ending.state == "interrupted" for ending in endings):
        return 130
    return 0 if all(ending.state == "finished" for ending in endings) else 1


def _never(_: object) -> None:
    raise AssertionError("our launcher calls no task function: it hands whole configurations to Ray")
