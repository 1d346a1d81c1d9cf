"""The rules that an evaluation holds a candidate to: what is refused, what is allowed and flagged, what is put right.

Each is a choice of the user's; `conf/evaluation/rules/` holds sets of them. Errors (a wrong output, a crash) and hacks
(credit for work that is not done) are no rules and have no setting.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ..errors import UserError
from ..source.findings import Finding, look_at

if TYPE_CHECKING:
    from .config import CheckConfig


class Fallbacks(StrEnum):
    """Of `forward` going on with something else where its own code fails, and of extensions that do not build."""

    neutralise = "neutralise"  # such a handler re-raises: own code that works is measured, else its error is reported
    reject = "reject"  # silent_fallback
    allow = "allow"  # flagged


class Tf32(StrEnum):
    """Of switches that make float32 arithmetic coarser (TF32, reduced-precision sums)."""

    reset = "reset"  # as torch sets them, in every process, after the model is constructed
    as_reference = "as_reference"  # a candidate that changes one is refused: global_state_tamper
    allow = "allow"  # flagged, and products may be as inexact as TF32


class Precision(StrEnum):
    """Errors allowed beyond those of the reference's own arithmetic: a factor on `check`'s tolerances."""

    strict = "strict"  # 1
    tf32 = "tf32"  # 10: one product in TF32 or bfloat16x3
    half = "half"  # 100: half precision inside (KernelBench's first version and CUDA-L1's script allowed 1e-2)


class Shapes(StrEnum):
    any = "any"  # another batch size is tried where the problem allows one
    fixed = "fixed"  # only the problem's own shapes, as its file has them


class Outputs(StrEnum):
    """Of one buffer that serves several calls."""

    fresh = "fresh"  # refused: output_aliasing
    clone = "clone"  # copied within the candidate's time
    allow = "allow"  # copied outside of it, of reference and candidate


class Mode(StrEnum):
    as_built = "as_built"  # training mode, unless the constructor leaves it (KernelBench)
    eval = "eval"  # `eval()` of reference and candidate (CUDA-L1's script)


class Compilers(StrEnum):
    """Of whole-graph compilers: torch.compile, torch.jit."""

    allow = "allow"  # flagged
    refuse = "refuse"  # whole_graph_compiler


class OwnKernel(StrEnum):
    any = "any"
    required = "required"  # no_own_kernel where only torch's kernels run


class SameOperations(StrEnum):
    """Of a candidate that runs the reference's own operators, in their order."""

    flag = "flag"  # accepted with a speedup of exactly 1.0, not measured
    reject = "reject"
    measure = "measure"  # flagged and measured, as for the noise of references against themselves


class Degenerate(StrEnum):
    """Of problems whose output never depends on their own inputs. Their verdicts are marked in any case."""

    reject = "reject"
    allow = "allow"


class Findings(StrEnum):
    """Of what the source shows and running it settles as well (threads, files, clocks, caches keyed by address)."""

    flag = "flag"
    refuse = "refuse"


@dataclass
class RulesConfig:
    """One choice of each rule; conf/evaluation/rules/default.yaml says why these."""

    # Handlers in `forward` that go on with something else where its own code fails, and extensions that do not build:
    # neutralise (a handler re-raises: own code that works is measured, else its error is reported) | reject | allow
    fallbacks: Fallbacks = Fallbacks.neutralise
    # Switches that make float32 coarser: reset (as torch sets them) | as_reference (a candidate that changes one is
    # refused) | allow (and products may be as inexact as TF32)
    tf32: Tf32 = Tf32.reset
    # Errors beyond the reference's own arithmetic: strict (`check`'s tolerances) | tf32 (10 times) | half (100 times)
    precision: Precision = Precision.strict
    # Shapes that must be right: any (another batch size is tried where the problem allows one) | fixed (its own only)
    shapes: Shapes = Shapes.any
    # One buffer that serves several calls: fresh (refused) | clone (copied in the candidate's time) | allow (copied
    # outside of it)
    outputs: Outputs = Outputs.fresh
    # as_built (training mode unless the constructor leaves it, as KernelBench has it) | eval (of both models)
    mode: Mode = Mode.as_built
    # Whole-graph compilers, torch.compile and torch.jit: allow (flagged) | refuse
    compilers: Compilers = Compilers.allow
    # A kernel of the candidate's own (Triton, an extension): any (none is needed) | required
    own_kernel: OwnKernel = OwnKernel.any
    # The reference's own operators in their order: flag (a speedup of exactly 1.0) | reject | measure (as any other)
    same_operations: SameOperations = SameOperations.flag
    # Problems whose output never depends on their own inputs: reject | allow. Summaries leave them out either way.
    degenerate: Degenerate = Degenerate.reject
    # What the source shows and running it settles too (threads, files, clocks, assembled names): flag | refuse
    findings: Findings = Findings.flag

    def validate(self) -> None:
        """Turns texts into choices, in place.

        Raises:
            UserError: naming a rule's value that does not exist and those that do.
        """
        for field in dataclasses.fields(self):
            kind, value = type(field.default), getattr(self, field.name)
            if value not in list(kind):
                choices = ", ".join(kind)
                raise UserError(f"evaluation.rules.{field.name}={value}: must be one of {choices}")
            setattr(self, field.name, kind(value))

    def applied_to(self, check: CheckConfig) -> CheckConfig:
        """``check`` as these rules have it: tolerances, and whether other shapes are tried."""
        factor = {Precision.strict: 1.0, Precision.tf32: 10.0, Precision.half: 100.0}[self.precision]
        return dataclasses.replace(
            check,
            rms_tolerance=factor * check.rms_tolerance,
            slice_tolerance=factor * check.slice_tolerance,
            max_tolerance=factor * check.max_tolerance,
            fallback_tolerance=factor * check.fallback_tolerance,
            range_trial=check.range_trial and self.precision is Precision.strict,
            shape_trials=0 if self.shapes is Shapes.fixed else check.shape_trials,
        )


@dataclass(frozen=True)
class StaticCheck:
    """What a candidate's text means under the rules in force.

    Attributes:
        refusal: why it is not run at all, or None.
        flags: reasons for what was seen and is allowed, each once.
        handlers: (line, column) of what has to re-raise, see `inside.neutralise`.
    """

    refusal: Finding | None = None
    flags: tuple[str, ...] = ()
    handlers: tuple[tuple[int, int], ...] = ()


def check_static(code: str, rules: RulesConfig | None = None, *, gate: bool = True) -> StaticCheck:
    """Judge a candidate's text; without the ``gate`` only refuse what could not run. Never the only check."""
    rules = rules or RulesConfig()
    look = look_at(code, deep=gate)
    if look.unreadable:
        return StaticCheck(look.unreadable)
    for finding in look.findings:
        if finding.certain or rules.findings == Findings.refuse:
            return StaticCheck(finding)
    flags = dict.fromkeys(finding.reason for finding in look.findings)
    if look.swallowing:
        flags["silent_fallback"] = None
        if rules.fallbacks == Fallbacks.reject:
            where = f"line {min(line for line, _ in look.swallowing)}"
            return StaticCheck(Finding("silent_fallback", f"forward goes on without its own code on failure, {where}"))
    return StaticCheck(None, tuple(flags), look.swallowing if rules.fallbacks == Fallbacks.neutralise else ())


def allowing(rules: RulesConfig, reasons: Iterable[str]) -> RulesConfig | None:
    """``rules`` with those changed that refuse for ``reasons``; None where there is none to change."""
    changes = dict(ALLOWED_BY[reason].split("=") for reason in reasons if reason in ALLOWED_BY)
    if "precision" in changes and rules.precision is not Precision.strict:
        changes["precision"] = Precision.half
    changed = dataclasses.replace(rules, **changes)
    changed.validate()
    return None if changed == rules else changed


# Refusals that a rule decides -> the setting that allows them.
ALLOWED_BY = {
    "degenerate_input": "degenerate=allow",
    "global_state_tamper": "tf32=reset",
    "no_own_kernel": "own_kernel=any",
    "output_aliasing": "outputs=clone",
    "precision_downgrade": "precision=tf32",
    "same_operations": "same_operations=measure",
    "shape_overfit": "shapes=fixed",
    "silent_fallback": "fallbacks=allow",
    "whole_graph_compiler": "compilers=allow",
}
