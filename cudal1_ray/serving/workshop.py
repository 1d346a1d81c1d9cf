"""The deployments behind `/v1/optimize`: one desk with all jobs, and judges that own a device each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.evaluation.pool import EvaluatorPool
from cudal1_ray.exemplars import ExemplarBuffer
from cudal1_ray.problems import Problem, parse_problem
from cudal1_ray.prompting import PromptBuilder
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.serving.desk import Desk, Refused
from cudal1_ray.serving.jobs import Job, JobStore
from cudal1_ray.serving.local import aims_of, encoder
from cudal1_ray.serving.optimizer import Optimizer


@serve.deployment
class JudgeDeployment:
    """An `EvaluatorPool` on the device of this replica. Candidates run in its sandboxes, never in this process."""

    def __init__(self, config: EvaluationConfig):
        self._pool = EvaluatorPool(config)

    async def judge(self, problem: Problem, code: str, best_speedup: float) -> Verdict:
        return await asyncio.to_thread(self._pool.evaluate, problem, code, best_speedup)

    def __del__(self) -> None:
        if pool := getattr(self, "_pool", None):
            pool.close()


class RemoteTools:
    """The policy in the endpoint's replicas, the judges in theirs."""

    def __init__(self, app_name: str, judge: DeploymentHandle, encode: Any):
        self._app_name, self._judge, self._encode = app_name, judge, encode
        self._endpoint: DeploymentHandle | None = None

    async def write(self, prompt: str, n: int, temperature: float, seed: int) -> list[str]:
        if self._endpoint is None:  # the endpoint holds a handle to the desk, so the desk cannot be given one to it
            self._endpoint = serve.get_deployment_handle("endpoint", self._app_name)
        written = await self._endpoint.write.remote(self._encode(prompt), n, temperature, seed)
        return [answer.text for answer in written]

    async def judge(self, problem: Problem, code: str, best_speedup: float) -> Verdict:
        return await self._judge.judge.remote(problem, code, best_speedup)


@serve.deployment
class DeskDeployment:
    """One `Desk` for the application, which keeps its jobs on disk; a replacement goes on from there."""

    def __init__(self, config: ServingConfig, judge: DeploymentHandle):
        encode = encoder(config)
        self._config = config
        self._tools = RemoteTools(config.name, judge, encode)
        self._prompts = PromptBuilder(config.prompting, lambda text: len(encode(text)))
        self._store = JobStore(config.optimize.jobs_dir)
        salt = f"{config.policy.path} {config.evaluation.device} {config.evaluation.against}"
        self._desk = Desk(config.optimize, self._work, salt)
        self._resumed = False

    async def check_health(self) -> None:
        """Ray Serve asks at once and then again and again: the first time, there is an event loop to resume on."""
        if not self._resumed:
            self._resumed = True
            self._desk.resume()

    async def submit(self, owner: str, source: str, wanted: dict[str, float | None]) -> dict[str, Any]:
        def take() -> dict[str, Any]:
            job, shared = self._desk.submit(owner, source, **wanted)
            return job.public() | {"shared": shared}

        return _or_refusal(take)

    async def list(self, owner: str) -> dict[str, Any]:
        jobs = [job.public() for job in self._desk.of(owner)]
        for job in jobs:
            del job["source"], job["result"]
        return {"object": "list", "data": jobs}

    async def get(self, owner: str, job_id: str) -> dict[str, Any]:
        return _or_refusal(lambda: self._desk.get(owner, job_id).public())

    async def cancel(self, owner: str, job_id: str) -> dict[str, Any]:
        try:
            return (await self._desk.cancel(owner, job_id)).public()
        except Refused as refused:
            return {"refused": refused.status, "message": refused.message}

    async def events(self, owner: str, job_id: str, after: int) -> AsyncIterator[dict[str, Any]]:
        async for event in self._desk.events(owner, job_id, after):
            yield event

    async def drain(self) -> None:
        await self._desk.close()

    async def _work(self, job: Job, before: list[dict[str, Any]], emit: Any) -> dict[str, Any]:
        problem = parse_problem(job.source, f"module-{job.job_id}", origin="source")
        buffer = ExemplarBuffer.open(self._store.exemplars(job.job_id))
        optimizer = Optimizer(
            problem,
            job.settings,
            aims_of(self._config),
            self._tools,
            self._prompts,
            self._config.exemplars,
            buffer,
            emit,
            before,
        )
        return await optimizer.run() | {"against": self._config.evaluation.against}


def _or_refusal(take: Any) -> dict[str, Any]:
    """Refusals cross between processes as data: an exception would arrive wrapped in another."""
    try:
        return take()
    except Refused as refused:
        return {"refused": refused.status, "message": refused.message}
