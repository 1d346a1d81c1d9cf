"""Evaluator and compiler actors: one prepares a candidate on the CPU, the other judges it on its device."""

from __future__ import annotations

from cudal1_ray.actors.member import FleetMember
from cudal1_ray.evaluation import Compiler, CompileResult, EvaluationConfig, Evaluator, Verdict
from cudal1_ray.problems import Problem


class CompilerActor(FleetMember):
    """Compiles candidates into the content-addressed cache, before a device is asked for."""

    def __init__(self, config: EvaluationConfig):
        self._compiler = Compiler(config)

    def compile(self, code: str, problem_source: str = "") -> CompileResult:
        return self._compiler.compile(code, problem_source)


class EvaluatorActor(FleetMember):
    """Owns one device (`num_gpus=1` where there are any) and the referee on it."""

    def __init__(self, config: EvaluationConfig):
        self._evaluator = Evaluator(config)

    def evaluate(self, problem: Problem, code: str, best_speedup: float = 0.0) -> Verdict:
        return self._evaluator.evaluate(problem, code, best_speedup)

    def close(self) -> None:
        self._evaluator.close()
