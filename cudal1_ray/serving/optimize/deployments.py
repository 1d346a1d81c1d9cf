"""The deployments behind `/v1/optimize`: one queue with all jobs, and evaluators that own a device each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from cudal1_ray.evaluation import Verdict
from cudal1_ray.evaluation.hardware import Machine, describe_machine
from cudal1_ray.exemplars import ExemplarBuffer
from cudal1_ray.problems import Problem, parse_problem
from cudal1_ray.prompting import PromptBuilder
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.serving.optimize.evaluators import ThreadedEvaluators
from cudal1_ray.serving.optimize.job_queue import JobQueue
from cudal1_ray.serving.optimize.job_requests import JobRequests
from cudal1_ray.serving.optimize.jobs import JobStore, OptimizeJob
from cudal1_ray.serving.optimize.known_problems import KnownProblems
from cudal1_ray.serving.optimize.local import encoder, prompt_builder, related_as_trained, speedup_goals
from cudal1_ray.serving.optimize.rounds import Optimizer, WrittenAnswer
from cudal1_ray.serving.optimize.winner import optimize
from cudal1_ray.serving.weights.versions import read_current

# Seconds for an earlier job queue, which this one replaces, to end.
CLAIM_S = 60.0


@serve.deployment
class EvaluatorDeployment(ThreadedEvaluators):
    """`Evaluators` on the device of this replica. Candidates run in their sandboxes, never in this process."""

    async def machine(self) -> Machine:
        return await asyncio.to_thread(describe_machine, self._evaluators.device)

    def __del__(self) -> None:
        if evaluators := getattr(self, "_evaluators", None):
            evaluators.close()


class RemoteTools:
    """The policy in the endpoint's replicas, the evaluators in theirs."""

    def __init__(self, app_name: str, evaluator: DeploymentHandle, encode: Any, thought_prefix: str):
        self._app_name, self._evaluator, self._encode = app_name, evaluator, encode
        self._thought_prefix = thought_prefix
        self._endpoint: DeploymentHandle | None = None

    async def write(self, prompt: str, n: int, temperature: float, seed: int) -> Sequence[WrittenAnswer]:
        if self._endpoint is None:  # looked up late: the endpoint is bound to the job queue, not the reverse
            self._endpoint = serve.get_deployment_handle("endpoint", self._app_name)
        answers = await self._endpoint.write.remote(self._encode(prompt), n, temperature, seed)
        return [replace(answer, text=self._thought_prefix + answer.text) for answer in answers]

    async def evaluate(self, problem: Problem, code: str, best_speedup: float) -> Verdict:
        return await self._evaluator.evaluate.remote(problem, code, best_speedup)

    async def check(self, problem: Problem) -> Verdict:
        return await self._evaluator.check.remote(problem)

    async def against(self, problem: Problem, code: str, baseline: str) -> Verdict:
        return await self._evaluator.against.remote(problem, code, baseline)

    async def device_name(self) -> str:
        return await self._evaluator.device_name.remote()

    async def machine(self) -> Machine:
        return await self._evaluator.machine.remote()


@serve.deployment
class JobQueueDeployment:
    """One `JobQueue` for the application, which keeps its jobs on disk; a replacement goes on from there."""

    def __init__(self, config: ServingConfig, evaluator: DeploymentHandle):
        # A run may have deleted the checkpoint that was served first. Before the coordinator starts, it is there.
        current = read_current(Path(config.weights.store_dir), config.server_id)
        encode, thought_prefix = encoder(config, current.folder if current else config.policy.path)
        self._config = config
        self._tools = RemoteTools(config.name, evaluator, encode, thought_prefix)
        self._count_tokens = lambda text: len(encode(text))
        self._related = related_as_trained(config)
        PromptBuilder(config.prompting, self._count_tokens)  # a style that cannot work fails here, not in a job
        self._known = KnownProblems(config.optimize.known_run, config.optimize.known_exemplars, config.exemplars)
        self._store = JobStore(config.optimize.jobs_dir)
        self._store.claim(CLAIM_S)
        salt = f"{config.policy.path} {config.evaluation.device} {config.evaluation.against}"
        self._job_queue = JobQueue(config.optimize, self._work, salt)
        self._requests = JobRequests(self._job_queue)
        self._resumed = False

    async def check_health(self) -> None:
        """Resume open jobs: Ray Serve calls this at once and then again and again, and there is an event loop."""
        if not self._resumed:
            self._resumed = True
            self._job_queue.resume()

    async def answer(self, action: str, *arguments: Any) -> dict[str, Any]:
        return await self._requests.answer(action, *arguments)

    async def events(self, owner: str, job_id: str, after: int) -> AsyncIterator[dict[str, Any]]:
        async for event in self._job_queue.events(owner, job_id, after):
            yield event

    async def drain(self) -> None:
        await self._job_queue.close()

    async def _work(self, job: OptimizeJob, before: list[dict[str, Any]], emit: Any) -> dict[str, Any]:
        problem = parse_problem(job.source, f"module-{job.job_id}", origin="source")
        prior = await asyncio.to_thread(self._known.of, job.source)
        async with asyncio.timeout(self._config.replicas.start_timeout_s):
            machine = await self._tools.machine()  # evaluators may have to start first, which counts for no job
        prompts = prompt_builder(self._config, self._count_tokens, machine, self._related)
        buffer = ExemplarBuffer.open(self._store.exemplars(job.job_id), create=True)
        optimizer = Optimizer(
            problem,
            job.settings,
            speedup_goals(self._config),
            self._tools,
            prompts,
            self._config.exemplars,
            buffer,
            emit,
            before,
            prior,
        )
        return await optimize(optimizer)
