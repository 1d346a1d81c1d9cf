"""Verdicts over candidates: is it right, and how fast is it really."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudal1_ray.evaluation.config import CheckConfig, EvaluationConfig, LimitConfig, TimingConfig
from cudal1_ray.evaluation.rules import RulesConfig
from cudal1_ray.evaluation.verdict import Verdict
from cudal1_ray.lazy import attach

if TYPE_CHECKING:
    from cudal1_ray.evaluation.compiling.cache import CompileResult
    from cudal1_ray.evaluation.compiling.compiler import Compiler
    from cudal1_ray.evaluation.evaluator import Evaluator

# torch is imported only where something is evaluated
__getattr__, _loaded_on_use = attach(
    __name__,
    {"evaluator": ["Evaluator"], "compiling.compiler": ["Compiler"], "compiling.cache": ["CompileResult"]},
)

__all__ = [
    "CheckConfig",
    "CompileResult",
    "Compiler",
    "EvaluationConfig",
    "Evaluator",
    "LimitConfig",
    "RulesConfig",
    "TimingConfig",
    "Verdict",
]
