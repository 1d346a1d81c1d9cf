"""Verdicts over candidates: is it right, and how fast is it really."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach
from .config import CheckConfig, EvaluationConfig, LimitConfig, TimingConfig
from .rules import RulesConfig
from .verdict import Verdict

if TYPE_CHECKING:
    from .compiling.cache import CompileResult
    from .compiling.compiler import Compiler
    from .evaluator import Evaluator

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
