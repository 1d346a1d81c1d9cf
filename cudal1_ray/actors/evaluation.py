"""Evaluator and compiler actors: one prepares a candidate on the CPU, the other measures it on its device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from cudal1_ray.actors.member import FleetMember
from cudal1_ray.evaluation import CompileResult, EvaluationConfig, Verdict
from cudal1_ray.evaluation.compiling.cache import without_building
from cudal1_ray.evaluation.hardware import Machine, describe_machine
from cudal1_ray.problems import Problem
from cudal1_ray.uncollected import imported_to_stay

if TYPE_CHECKING:
    from cudal1_ray.evaluation import Compiler, Evaluator
    from cudal1_ray.evaluation.pool import EvaluatorPool

Work = tuple[str, Problem, str, float]  # work id, problem, the candidate's code, the problem's best speedup so far


class CompilerActor(FleetMember):
    """Compiles candidates into the content-addressed cache, before a device is asked for."""

    def __init__(self, config: EvaluationConfig):
        self._config = config
        self._compiler: Compiler | None = None
        if config.device != "cpu":  # for which nearly every candidate has something to build
            self._start()

    def _start(self) -> Compiler:
        """Return the compiler, whose imports take more than a second and 200 MB: torch is one of them."""
        if self._compiler is None:
            with imported_to_stay():
                from cudal1_ray.evaluation import Compiler

            self._compiler = Compiler(self._config)
        return self._compiler

    def build_for(self, architecture: str) -> None:
        """See `Compiler.build_for`: this actor sees no GPU, and what it builds for none no evaluator would find."""
        if self._compiler is not None:  # on a CPU there is none to build for
            self._compiler.build_for(architecture)

    def compile(self, code: str, problem_source: str = "") -> CompileResult:
        """See `Compiler.compile`; candidates without anything to build start no compiler."""
        if self._compiler is None and (result := without_building(code)) is not None:
            return result
        return self._start().compile(code, problem_source)


class EvaluatorActor(FleetMember):
    """Owns one device (`num_gpus=1` where there are any); with `slots` > 1 as many evaluators take turns on it."""

    def __init__(self, config: EvaluationConfig):
        pooled = config.slots > 1
        with imported_to_stay():
            if pooled:
                from cudal1_ray.evaluation.pool import EvaluatorPool
            else:
                from cudal1_ray.evaluation import Evaluator

        self._evaluator: Evaluator | EvaluatorPool = EvaluatorPool(config) if pooled else Evaluator(config)
        self._threads = ThreadPoolExecutor(config.in_flight if pooled else 1)
        self._working: dict[Future[Verdict], tuple[str, float]] = {}  # work id, when it is overdue

    def architecture(self) -> str:
        """Return the architecture for which its extensions have to be built; empty on a CPU."""
        return self._evaluator.config.cuda_arch_list

    def machine(self) -> Machine:
        """Return what its candidates are measured with."""
        return describe_machine(self._evaluator.config.device)

    def evaluate(self, problem: Problem, code: str, best_speedup: float = 0.0) -> Verdict:
        """Evaluate one candidate, and nothing beside it."""
        return self._threads.submit(self._evaluator.evaluate, problem, code, best_speedup).result()

    def exchange(self, work: Sequence[Work], wait_s: float, limit_s: float) -> list[tuple[str, Verdict]]:
        """Take candidates in and give out what is ready by now: at least one verdict, or none after `wait_s`.

        Raises:
            TimeoutError: when a candidate is here for longer than `limit_s`: the evaluator hangs, and the owner
                of this actor starts another.
        """
        for work_id, problem, code, best_speedup in work:
            future = self._threads.submit(self._evaluator.evaluate, problem, code, best_speedup)
            self._working[future] = (work_id, time.monotonic() + limit_s)
        ready, _ = wait(self._working, timeout=wait_s, return_when=FIRST_COMPLETED)
        verdicts = [(self._working.pop(future)[0], future.result()) for future in ready]
        if any(time.monotonic() > due for _, due in self._working.values()):
            raise TimeoutError(f"a candidate has no verdict after {limit_s:g} s")
        return verdicts

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._evaluator.close()
