"""Verdicts over candidates: whether each is right, and how fast it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from cudal1_ray.evaluation.compiling.cache import CompileResult
    from cudal1_ray.evaluation.compiling.compiler import Compiler
    from cudal1_ray.evaluation.config import CheckConfig, EvaluationConfig, LimitConfig, TimingConfig
    from cudal1_ray.evaluation.evaluator import Evaluator
    from cudal1_ray.evaluation.rules import RulesConfig
    from cudal1_ray.evaluation.verdict import Verdict

# torch is imported only where a candidate is evaluated.
__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "compiling.cache": ["CompileResult"],
        "compiling.compiler": ["Compiler"],
        "config": ["CheckConfig", "EvaluationConfig", "LimitConfig", "TimingConfig"],
        "evaluator": ["Evaluator"],
        "rules": ["RulesConfig"],
        "verdict": ["Verdict"],
    },
)
