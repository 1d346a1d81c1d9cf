"""What the rules in force decide from a candidate's text alone."""

from __future__ import annotations

from dataclasses import dataclass

from cudal1_ray.evaluation.rules import Fallbacks, Findings, RulesConfig
from cudal1_ray.source.findings import Finding, look_at


@dataclass(frozen=True)
class StaticCheck:
    """The result of `check_static`.

    Attributes:
        refusal: why the candidate is not run at all, or None.
        flags: reasons for what the text shows and the rules allow, each once.
        handlers: (line, column) of the exception handlers that have to re-raise, see `inside.neutralise`.
    """

    refusal: Finding | None = None
    flags: tuple[str, ...] = ()
    handlers: tuple[tuple[int, int], ...] = ()


def check_static(code: str, rules: RulesConfig | None = None, *, gate: bool = True) -> StaticCheck:
    """Check a candidate's text; without the `gate`, refuse only what cannot run. Never the only check."""
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
