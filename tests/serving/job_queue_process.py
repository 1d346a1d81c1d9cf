"""A job queue with a real evaluator in a process that may be killed; the policy's part is read from a script.

python -m tests.serving.job_queue_process FOLDER: works on the folder's jobs, or on a new one, and prints its events.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace

from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.exemplars import ExemplarBuffer, ExemplarsConfig
from cudal1_ray.problems import ProblemsConfig, load_problems, parse_problem
from cudal1_ray.prompting import PromptBuilder, PromptingConfig, render_answer
from cudal1_ray.serving.config import OptimizeConfig
from cudal1_ray.serving.optimize.evaluators import Evaluators
from cudal1_ray.serving.optimize.job_queue import JobQueue, Submission
from cudal1_ray.serving.optimize.jobs import OPEN, JobStore
from cudal1_ray.serving.optimize.rounds import Optimizer, SpeedupGoals
from cudal1_ray.serving.optimize.winner import optimize

HEAD = "import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, d, x):\n        "
WRONG, FAST = HEAD + "return torch.relu(d[:, None] * x)\n", HEAD + "return torch.relu(d[:, None] * x) + 1.0\n"
SLOW = HEAD + "h = torch.mm(torch.diag(d), x)\n        return torch.clamp(h, min=0.0) + 1.0\n"
ROUNDS = (SLOW, FAST, WRONG)  # one candidate each


class Tools:
    """A policy that knows its part by heart, and a real evaluator."""

    def __init__(self, evaluators: Evaluators, done: int):
        self._evaluators, self._next = evaluators, done

    async def write(self, prompt, n, temperature, seed):
        await asyncio.sleep(0.5)
        self._next += 1
        return [SimpleNamespace(text=render_answer("why", "how", ROUNDS[self._next - 1]), tokens=10)]

    async def evaluate(self, problem, code, best_speedup):
        return await asyncio.to_thread(self._evaluators.evaluate, problem, code, best_speedup)

    async def check(self, problem):
        return await asyncio.to_thread(self._evaluators.check, problem)

    async def against(self, problem, code, baseline):
        return await asyncio.to_thread(self._evaluators.against, problem, code, baseline)

    async def device_name(self):
        return self._evaluators.device_name()


async def main(folder: Path) -> None:
    config = EvaluationConfig()
    config.timing.contestants = config.timing.most_contestants = 1
    config.timing.budget_s, config.timing.remeasure_above, config.timing.remeasure_over_best = 0.1, 0.0, 0.0
    config.check.distributions, config.check.shape_trials = [], 0
    evaluators, store = Evaluators(config), JobStore(folder)
    store.claim(60.0)

    async def work(job, before, emit):
        problem = parse_problem(job.source, f"module-{job.job_id}", origin="source")
        prompts = PromptBuilder(PromptingConfig(), lambda text: len(text) // 3)
        buffer = ExemplarBuffer.open(store.exemplars(job.job_id), create=True)
        tools = Tools(evaluators, sum(event["type"] == "round" for event in before))
        aims = SpeedupGoals(1.0, 1.5, 2, 1, True)
        return await optimize(
            Optimizer(problem, job.settings, aims, tools, prompts, ExemplarsConfig(), buffer, emit, before)
        )

    job_queue = JobQueue(OptimizeConfig(jobs_dir=str(folder)), work)
    job_queue.resume()
    jobs = [job for job in job_queue.of("alice") if job.status in OPEN]
    if not jobs:
        source = next(p for p in load_problems(ProblemsConfig()) if p.problem_id == "diag_matmul_1").source
        jobs = [(await job_queue.submit("alice", Submission(source, rounds=len(ROUNDS), samples_per_round=1)))[0]]
    async for event in job_queue.events("alice", jobs[0].job_id, 0):
        print(json.dumps(event), flush=True)
    evaluators.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
