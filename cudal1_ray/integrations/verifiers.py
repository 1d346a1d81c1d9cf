"""A taskset for verifiers (0.4 and later, `verifiers.v1`): one task for each problem, measured speed as its reward.

verifiers finds a taskset by the name of a top-level module. A file `cudal1_kernels.py` with

    from cudal1_ray.integrations.verifiers import KernelTaskset

    __all__ = ["KernelTaskset"]

is one: `eval cudal1-kernels --env.taskset.task.url http://gpu-host:8000`. Candidates are evaluated by a `cudal1 serve`:
trainers run tasks in several processes, and one process owns the device. Nothing here needs Hydra: its version of ANTLR
excludes the one that verifiers' dependencies want.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf

from cudal1_ray.evaluation import Verdict
from cudal1_ray.integrations.evaluators import RemoteEvaluator
from cudal1_ray.problems import Problem, ProblemsConfig, load_problems, parse_problem
from cudal1_ray.prompting import PromptBuilder, PromptingConfig, parse_answer
from cudal1_ray.rewards import RewardsConfig, verdict_reward

__all__ = ["KernelTaskset"]


class KernelTaskConfig(vf.TaskConfig):
    """Where candidates are evaluated and what they are paid, under `--env.taskset.task.*`."""

    url: str = "http://127.0.0.1:8000"
    """A `cudal1 serve`."""
    key_env: str = ""
    """Environment variable that holds the server's API key."""
    reward: str = "log_speedup"
    """`rewards.kind` of cudal1: log_speedup, speedup, staged, success."""


class KernelConfig(vf.TasksetConfig):
    """Which problems, under `--env.taskset.*`: those of a folder or a Parquet file; without a path the bundled ones."""

    task: KernelTaskConfig = KernelTaskConfig()
    path: str = ""
    levels: list[int] = [1, 2, 3]
    split: str = "train"
    device: str = "the GPU"
    """Name of the hardware, as prompts state it."""


class KernelData(vf.TaskData):
    """A task's prompt and the KernelBench file that it is about."""

    problem: str


class KernelTask(vf.Task[KernelData, vf.State, KernelTaskConfig]):
    """Scores the last answer of a trace."""

    @property
    def key(self) -> str:
        """Return the problem's id, whatever the prompt states of the hardware."""
        return str(self.data.id)

    @vf.reward
    async def kernel(self, trace: vf.Trace) -> float:
        """Return the reward of the trace's last answer, and record what was measured as metrics.

        Raises:
            RuntimeError: for a void evaluation: the evaluator or the problem is at fault, not the answer.
        """
        problem = parse_problem(self.data.problem, str(self.data.id))
        verdict = await asyncio.to_thread(verdict_of, self.config, problem, trace.last_reply)
        reward = verdict_reward(verdict, RewardsConfig(kind=self.config.reward))
        if reward is None:
            raise RuntimeError(f"void evaluation: {', '.join(verdict.reasons)}: {verdict.detail}")
        trace.record_metrics(
            {
                "accepted": float(verdict.accepted),
                "speedup": verdict.credited_speedup,
                "own_kernel": float(verdict.accepted and verdict.own_kernel),
            }
        )
        return reward


class KernelTaskset(vf.Taskset[KernelTask, KernelConfig]):
    """Each problem asked for with cudal1's one-shot prompt."""

    def load(self) -> Iterator[KernelTask]:
        """Yield a task for each problem.

        Raises:
            UserError: for a path or a problem that is none.
        """
        config = self.config
        source = "bundled" if not config.path else "folder" if Path(config.path).is_dir() else "parquet"
        chosen = ProblemsConfig(source=source, path=config.path or None, levels=config.levels, split=config.split)
        prompts = PromptBuilder(PromptingConfig(style="full", device=config.device), lambda text: len(text) // 3)
        for problem in load_problems(chosen):
            prompt = prompts.one_shot(problem).text
            data = KernelData(id=problem.problem_id, name=problem.name, prompt=prompt, problem=problem.source)
            yield KernelTask(data, config.task)


def verdict_of(config: KernelTaskConfig, problem: Problem, reply: str) -> Verdict:
    """Return the server's verdict on the candidate in an answer; "unparsable" for an answer without one."""
    answer = parse_answer(reply, require_analysis=False)
    if answer.code is None:
        return Verdict.unparsable(problem.problem_id, answer.error)
    key = os.environ.get(config.key_env, "") if config.key_env else ""
    return _evaluator(config.url, key).evaluate_all([(problem, answer.code)])[0]


@functools.cache
def _evaluator(url: str, key: str) -> RemoteEvaluator:
    return RemoteEvaluator(url, key)
