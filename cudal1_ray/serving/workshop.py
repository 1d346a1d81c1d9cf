"""The deployments behind `/v1/optimize`: one desk with all jobs, and judges that own a device each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.evaluation.machine import Machine, describe_machine
from cudal1_ray.evaluation.stated_rules import rules_in_force
from cudal1_ray.exemplars import ExemplarBuffer
from cudal1_ray.problems import Problem, parse_problem
from cudal1_ray.prompting import PromptBuilder
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.serving.counter import Counter
from cudal1_ray.serving.desk import Desk
from cudal1_ray.serving.jobs import Job, JobStore
from cudal1_ray.serving.judges import Judges
from cudal1_ray.serving.known import KnownProblems
from cudal1_ray.serving.local import aims_of, encoder
from cudal1_ray.serving.optimizer import Answer, Optimizer
from cudal1_ray.serving.winner import optimize

CLAIM_S = 60.0  # an earlier desk, which this one replaces, has this long to end


@serve.deployment
class JudgeDeployment:
    """`Judges` on the device of this replica. Candidates run in their sandboxes, never in this process."""

    def __init__(self, config: EvaluationConfig):
        self._judges = Judges(config)

    async def judge(self, problem: Problem, code: str, best_speedup: float) -> Verdict:
        return await asyncio.to_thread(self._judges.judge, problem, code, best_speedup)

    async def check(self, problem: Problem) -> Verdict:
        return await asyncio.to_thread(self._judges.check, problem)

    async def against(self, problem: Problem, code: str, baseline: str) -> Verdict:
        return await asyncio.to_thread(self._judges.against, problem, code, baseline)

    async def device_name(self) -> str:
        return await asyncio.to_thread(self._judges.device_name)

    async def machine(self) -> Machine:
        return await asyncio.to_thread(describe_machine, self._judges.device)

    def __del__(self) -> None:
        if judges := getattr(self, "_judges", None):
            judges.close()


class RemoteTools:
    """The policy in the endpoint's replicas, the judges in theirs."""

    def __init__(self, app_name: str, judge: DeploymentHandle, encode: Any):
        self._app_name, self._judge, self._encode = app_name, judge, encode
        self._endpoint: DeploymentHandle | None = None

    async def write(self, prompt: str, n: int, temperature: float, seed: int) -> Sequence[Answer]:
        if self._endpoint is None:  # the endpoint holds a handle to the desk, so the desk cannot be given one to it
            self._endpoint = serve.get_deployment_handle("endpoint", self._app_name)
        return await self._endpoint.write.remote(self._encode(prompt), n, temperature, seed)

    async def judge(self, problem: Problem, code: str, best_speedup: float) -> Verdict:
        return await self._judge.judge.remote(problem, code, best_speedup)

    async def check(self, problem: Problem) -> Verdict:
        return await self._judge.check.remote(problem)

    async def against(self, problem: Problem, code: str, baseline: str) -> Verdict:
        return await self._judge.against.remote(problem, code, baseline)

    async def device_name(self) -> str:
        return await self._judge.device_name.remote()

    async def machine(self) -> Machine:
        return await self._judge.machine.remote()


@serve.deployment
class DeskDeployment:
    """One `Desk` for the application, which keeps its jobs on disk; a replacement goes on from there."""

    def __init__(self, config: ServingConfig, judge: DeploymentHandle):
        encode = encoder(config)
        self._config = config
        self._tools = RemoteTools(config.name, judge, encode)
        self._count_tokens = lambda text: len(encode(text))
        PromptBuilder(config.prompting, self._count_tokens)  # a style that cannot work fails here, not in a job
        self._known = KnownProblems(config.optimize.known_run, config.optimize.known_exemplars, config.exemplars)
        self._store = JobStore(config.optimize.jobs_dir)
        self._store.claim(CLAIM_S)
        salt = f"{config.policy.path} {config.evaluation.device} {config.evaluation.against}"
        self._desk = Desk(config.optimize, self._work, salt)
        self._counter = Counter(self._desk)
        self._resumed = False

    async def check_health(self) -> None:
        """Ray Serve asks at once and then again and again: the first time, there is an event loop to resume on."""
        if not self._resumed:
            self._resumed = True
            self._desk.resume()

    async def answer(self, asked: str, *arguments: Any) -> dict[str, Any]:
        return await self._counter.answer(asked, *arguments)

    async def events(self, owner: str, job_id: str, after: int) -> AsyncIterator[dict[str, Any]]:
        async for event in self._desk.events(owner, job_id, after):
            yield event

    async def drain(self) -> None:
        await self._desk.close()

    async def _work(self, job: Job, before: list[dict[str, Any]], emit: Any) -> dict[str, Any]:
        problem = parse_problem(job.source, f"module-{job.job_id}", origin="source")
        known = await asyncio.to_thread(self._known.of, job.source)
        async with asyncio.timeout(self._config.replicas.start_timeout_s):
            machine = await self._tools.machine()  # judges may have to start first, which counts for no job
        rules = rules_in_force(self._config.evaluation)
        prompts = PromptBuilder(self._config.prompting, self._count_tokens, machine, rules)
        buffer = ExemplarBuffer.open(self._store.exemplars(job.job_id))
        optimizer = Optimizer(
            problem,
            job.settings,
            aims_of(self._config),
            self._tools,
            prompts,
            self._config.exemplars,
            buffer,
            emit,
            before,
            known,
        )
        return await optimize(optimizer)
