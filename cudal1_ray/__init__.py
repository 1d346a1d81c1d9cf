"""cudal1_ray: contrastive reinforcement learning that teaches a language model to write faster GPU code.

A problem becomes a prompt, the prompt becomes candidates, a candidate becomes a verdict, verdicts become rewards,
rewards become weights; and verdicts, kept as exemplars, become the next prompt. One folder per arrow of that sentence.

The names exported here are stable. They are imported on first use, so that `import cudal1_ray` costs nothing:

    import cudal1_ray
    verdict = cudal1_ray.evaluate("candidate.py", "problem.py")
    print(verdict.status, verdict.speedup, verdict.reasons)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cudal1_ray.api import evaluate, evaluation_config
    from cudal1_ray.errors import UserError
    from cudal1_ray.evaluation import EvaluationConfig, Evaluator, Verdict
    from cudal1_ray.exemplars import Exemplar, ExemplarBuffer
    from cudal1_ray.problems import Problem, ProblemsConfig, load_problems, parse_problem

__version__ = "0.1.0"

_HOMES = {
    "evaluate": "api",
    "evaluation_config": "api",
    "UserError": "errors",
    "EvaluationConfig": "evaluation",
    "Evaluator": "evaluation",
    "Verdict": "evaluation",
    "Exemplar": "exemplars",
    "ExemplarBuffer": "exemplars",
    "Problem": "problems",
    "ProblemsConfig": "problems",
    "load_problems": "problems",
    "parse_problem": "problems",
}

__all__ = [
    "EvaluationConfig",
    "Evaluator",
    "Exemplar",
    "ExemplarBuffer",
    "Problem",
    "ProblemsConfig",
    "UserError",
    "Verdict",
    "__version__",
    "evaluate",
    "evaluation_config",
    "load_problems",
    "parse_problem",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
