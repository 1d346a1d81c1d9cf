"""Verdicts over candidates: is it right, and how fast is it really."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .config import CheckConfig, EvaluationConfig, LimitConfig, TimingConfig
from .rules import RulesConfig
from .verdict import Verdict

if TYPE_CHECKING:
    from .compiling.cache import CompileResult
    from .compiling.compiler import Compiler
    from .evaluator import Evaluator

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

_LAZY = {"Evaluator": "evaluator", "Compiler": "compiling.compiler", "CompileResult": "compiling.cache"}


def __getattr__(name: str) -> Any:  # torch is imported only where something is evaluated
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
