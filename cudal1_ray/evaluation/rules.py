"""The rules that a candidate is held to: what is refused, what is allowed and flagged, and what is corrected.

The user chooses each rule; `conf/evaluation/rules/` holds sets of them. Errors (a wrong output, a crash) and hacks
(credit for work that is not done) are always refused and have no setting.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.reasons import ALLOWED_BY

if TYPE_CHECKING:
    from cudal1_ray.evaluation.config import CheckConfig


Fallbacks = StrEnum("Fallbacks", ["neutralise", "reject", "allow"])
Tf32 = StrEnum("Tf32", ["reset", "as_reference", "allow"])
Precision = StrEnum("Precision", ["strict", "tf32", "half"])
Shapes = StrEnum("Shapes", ["any", "fixed"])
Outputs = StrEnum("Outputs", ["fresh", "clone", "allow"])
Mode = StrEnum("Mode", ["as_built", "eval"])
Compilers = StrEnum("Compilers", ["allow", "refuse"])
OwnKernel = StrEnum("OwnKernel", ["any", "required"])
SameOperations = StrEnum("SameOperations", ["flag", "reject", "measure"])
Degenerate = StrEnum("Degenerate", ["reject", "allow"])
Findings = StrEnum("Findings", ["flag", "refuse"])

# Factor by which a precision multiplies the tolerances of `check`: one product in TF32 or bfloat16x3 is ten times as
# inexact as float32 sums; KernelBench's first version and CUDA-L1's script allowed 1e-2, a hundred times 1e-4.
_FACTORS = {Precision.strict: 1.0, Precision.tf32: 10.0, Precision.half: 100.0}


@dataclass
class RulesConfig:
    """One choice of each rule that a candidate is held to."""

    # Handlers in `forward` that go on with something else where its own code fails, and extensions that do not build:
    # neutralise (a handler re-raises: own code that works is measured, else its error is reported) | reject
    # (silent_fallback) | allow (flagged)
    fallbacks: Fallbacks = Fallbacks.neutralise
    # Switches that make float32 coarser (TF32, reduced-precision sums): reset (in every process, after the model is
    # constructed) | as_reference (a candidate that changes one is refused: global_state_tamper) | allow (flagged, and
    # products may be as inexact as TF32)
    tf32: Tf32 = Tf32.reset
    # Errors beyond the reference's own arithmetic: strict (`check`'s tolerances) | tf32 (10 times, as one product in
    # TF32 or bfloat16x3) | half (100 times, as half precision inside)
    precision: Precision = Precision.strict
    # Shapes that must be right: any (another batch size is tried where the problem allows one) | fixed (its own only)
    shapes: Shapes = Shapes.any
    # One buffer that serves several calls: fresh (refused: output_aliasing) | clone (copied in the candidate's time) |
    # allow (copied outside of it, of reference and candidate)
    outputs: Outputs = Outputs.fresh
    # as_built (training mode unless the constructor leaves it, as KernelBench has it) | eval (of both models, as
    # CUDA-L1's script has it)
    mode: Mode = Mode.as_built
    # Whole-graph compilers, torch.compile and torch.jit: allow (flagged) | refuse (whole_graph_compiler)
    compilers: Compilers = Compilers.allow
    # A kernel of the candidate's own (Triton, an extension): any (none is needed) | required (else no_own_kernel)
    own_kernel: OwnKernel = OwnKernel.any
    # The reference's own operators in their order: flag (a speedup of exactly 1.0, not measured) | reject | measure
    # (flagged and measured, as for the noise of references against themselves)
    same_operations: SameOperations = SameOperations.flag
    # Problems whose output never depends on their own inputs: reject | allow. Summaries leave them out either way.
    degenerate: Degenerate = Degenerate.reject
    # What the source shows and running it settles too (threads, files, clocks, caches keyed by address): flag | refuse
    findings: Findings = Findings.flag

    def validate(self) -> None:
        """Turn texts into choices, in place; raise UserError for an invalid value of a rule, with the valid ones."""
        for field in dataclasses.fields(self):
            kind: Any = type(field.default)
            value = getattr(self, field.name)
            if value not in list(kind):
                raise UserError(f"evaluation.rules.{field.name}={value}: must be one of {', '.join(kind)}")
            setattr(self, field.name, kind(value))

    def differences(self, others: RulesConfig) -> tuple[str, ...]:
        """Return the settings that make these rules of others."""
        both = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return tuple(f"evaluation.rules.{name}={value}" for name, value in both if value != getattr(others, name))

    def applied_to(self, check: CheckConfig) -> CheckConfig:
        """Return `check` under these rules: tolerances, and whether other shapes are tried."""
        factor = _FACTORS[self.precision]
        return dataclasses.replace(
            check,
            rms_tolerance=factor * check.rms_tolerance,
            slice_tolerance=factor * check.slice_tolerance,
            max_tolerance=factor * check.max_tolerance,
            fallback_tolerance=factor * check.fallback_tolerance,
            range_trial=check.range_trial and self.precision is Precision.strict,
            shape_trials=0 if self.shapes is Shapes.fixed else check.shape_trials,
        )


def allowing(rules: RulesConfig, reasons: Iterable[str]) -> RulesConfig | None:
    """Return `rules` changed so that they no longer refuse for `reasons`; None where no change would do that."""
    changes: dict[str, Any] = dict(ALLOWED_BY[reason].split("=") for reason in reasons if reason in ALLOWED_BY)
    if "precision" in changes and rules.precision is not Precision.strict:
        changes["precision"] = Precision.half
    changed = dataclasses.replace(rules, **changes)
    changed.validate()
    return None if changed == rules else changed
