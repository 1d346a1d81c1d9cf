"""The evaluators of `/v1/optimize`: of candidates, of the module itself before any of them, of the winner once more.

All of it is the evaluator's work, in its sandboxes; what is submitted never runs in this process.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from dataclasses import replace

from cudal1_ray.analysis import describe_environment
from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.evaluation.baselines import check_baseline
from cudal1_ray.evaluation.pool import EvaluatorPool
from cudal1_ray.evaluation.rules import OwnKernel, SameOperations
from cudal1_ray.files import OwnedFolder
from cudal1_ray.problems import Problem
from cudal1_ray.uncollected import imported_to_stay


class Evaluators:
    """A pool of evaluators for candidates, and now and then one beside it, on the same device and in turn.

    May be called by several threads at once.

    Raises (constructor): UserError for a configuration that cannot be had on this machine.
    """

    def __init__(self, config: EvaluationConfig):
        self._folder = OwnedFolder("evaluators")
        self._config = copy.deepcopy(config)
        self._turns_file = str(self._folder.path / "turns")
        self._config.compile_cache = config.compile_cache or str(self._folder.path / "extensions")
        self._pool = EvaluatorPool(self._config, turns_file=self._turns_file)
        self.device = self._config.device
        self._beside = threading.Lock()

    def evaluate(self, problem: Problem, code: str, best_speedup: float = 0.0) -> Verdict:
        """Return the verdict over one candidate."""
        return self._pool.evaluate(problem, code, best_speedup)

    def check(self, problem: Problem) -> Verdict:
        """Evaluate the module as if it were a candidate of its own.

        The verdict answers whether it runs, whether it agrees with itself, and how long it takes. It is rejected as
        "reference_error" or "degenerate_input" where nothing could be measured against it.
        """
        config, timing = copy.deepcopy(self._config), self._config.timing
        config.against = "eager"
        config.check = replace(config.check, static_gate=False, trials=1, distributions=[], shape_trials=0)
        # What a candidate owes beside the module, the module does not owe beside itself.
        config.rules = replace(config.rules, same_operations=SameOperations.measure, own_kernel=OwnKernel.any)
        config.timing = replace(
            timing, budget_s=0.1, min_pairs=3, max_pairs=3, contestants=1, remeasure_above=0.0, remeasure_over_best=0.0
        )
        return self._aside(config, problem, f"{problem.source}\n\nModelNew = Model\n")

    def against(self, problem: Problem, code: str, baseline: str) -> Verdict:
        """Evaluate a candidate beside another baseline than the configured one; what the device does not have is no
        verdict ("evaluator_error"). The speedup is not doubted again.
        """
        if complaint := check_baseline(baseline, self._config.device):
            return Verdict.rejected(problem.problem_id, "evaluator_error", complaint, device=self._config.device)
        config = copy.deepcopy(self._config)
        config.against = baseline
        config.timing = replace(config.timing, remeasure_above=0.0, remeasure_over_best=0.0)
        return self._aside(config, problem, code)

    def device_name(self) -> str:
        """Return the name of the measuring device, as its maker calls it."""
        facts = describe_environment()
        if self._config.device == "cpu" or "gpus" not in facts:
            return facts["processor"]
        return "; ".join(sorted(set(facts["gpus"].split("; "))))

    def _aside(self, config: EvaluationConfig, problem: Problem, code: str) -> Verdict:
        with self._beside:
            with imported_to_stay():
                from cudal1_ray.evaluation import Evaluator  # torch comes in here: what else is done here needs none

            with Evaluator(config, turns_file=self._turns_file) as evaluator:
                return evaluator.evaluate(problem, code)

    def close(self) -> None:
        """End every process; calling it twice is fine."""
        self._pool.close()
        self._folder.close()


class ThreadedEvaluators:
    """`Evaluators` of this process, called from threads."""

    def __init__(self, config: EvaluationConfig):
        self._evaluators = Evaluators(config)

    async def evaluate(self, problem: Problem, code: str, best_speedup: float) -> Verdict:
        return await asyncio.to_thread(self._evaluators.evaluate, problem, code, best_speedup)

    async def check(self, problem: Problem) -> Verdict:
        return await asyncio.to_thread(self._evaluators.check, problem)

    async def against(self, problem: Problem, code: str, baseline: str) -> Verdict:
        return await asyncio.to_thread(self._evaluators.against, problem, code, baseline)

    async def device_name(self) -> str:
        return await asyncio.to_thread(self._evaluators.device_name)
