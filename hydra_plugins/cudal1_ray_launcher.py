"""Hydra takes launchers from the namespace `hydra_plugins` only: this is the door to `cudal1_ray.training.sweeps`.

Hydra imports every module of that namespace whenever it starts, so nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

if TYPE_CHECKING:
    from cudal1_ray.training.sweeps.launching import SweepRunner


class RayLauncher(Launcher):
    """Runs the jobs of `cudal1 train -m ... hydra/launcher=ray`; conf/hydra/launcher/ray.yaml explains the arguments.

    A job's return value is its `JobEnding`: a job that fails reports it there and stops no other.
    """

    def __init__(self, max_jobs: int | None, driver_cpus: float, room_timeout_s: float):
        self.max_jobs, self.driver_cpus, self.room_timeout_s = max_jobs, driver_cpus, room_timeout_s
        self._runner: SweepRunner | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._loader, self._config = hydra_context.config_loader, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run one batch of jobs; none where an earlier batch was ended.

        Raises:
            UserError: naming the setting at fault; nothing has been started then.
        """
        from cudal1_ray.training.sweeps.jobs import make_jobs
        from cudal1_ray.training.sweeps.launching import JobLimits, SweepRunner

        limits = JobLimits(self.max_jobs, self.driver_cpus, self.room_timeout_s)
        folder, jobs = make_jobs(self._loader, self._config, job_overrides)
        self._runner = self._runner or SweepRunner(limits)
        returns = []
        for overrides, ending in zip(job_overrides, self._runner.run(folder, jobs), strict=True):
            returns.append(JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED, _return_value=ending))
        return returns
