"""cudal1_ray: contrastive reinforcement learning that teaches a language model to write faster GPU code.

A problem becomes a prompt, the prompt becomes candidates, a candidate becomes a verdict, verdicts become rewards,
rewards become weights; and verdicts, kept as exemplars, become the next prompt. One folder per arrow of that sentence.

The names exported here are stable. They are imported on first use, so that `import cudal1_ray` costs nothing:

    import cudal1_ray
    verdict = cudal1_ray.evaluate("candidate.py", "problem.py")
    print(verdict.status, verdict.speedup, verdict.reasons)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from cudal1_ray.api import evaluate, evaluation_config
    from cudal1_ray.errors import UserError
    from cudal1_ray.evaluation import EvaluationConfig, Evaluator, Verdict
    from cudal1_ray.exemplars import Exemplar, ExemplarBuffer
    from cudal1_ray.problems import Problem, ProblemsConfig, load_problems, parse_problem

__version__ = "0.1.0"

__getattr__, _, _exported = attach(
    __name__,
    submod_attrs={
        "api": ["evaluate", "evaluation_config"],
        "errors": ["UserError"],
        "evaluation": ["EvaluationConfig", "Evaluator", "Verdict"],
        "exemplars": ["Exemplar", "ExemplarBuffer"],
        "problems": ["Problem", "ProblemsConfig", "load_problems", "parse_problem"],
    },
)
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


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
