"""A handler that would hide an error of a candidate's own code re-raises it."""

from __future__ import annotations

import ast

import pytest

from cudal1_ray.evaluation.inside.neutralise import EXPECTED_ERROR, is_expected_error, neutralised
from cudal1_ray.evaluation.rules import RulesConfig
from cudal1_ray.evaluation.screening.static_check import check_static
from tests.evaluation.candidate_texts import in_class

FALLBACK_IN_A_METHOD = """
def fast(self, y):
    try:
        return torch.ops.mine.fused(y)
    except Exception:
        return self.a(y)

def set_up(self):
    self.run = self.fast
"""


FALLBACKS = {
    "broad": in_class("try:\n    return torch.ops.mine.fused(x)\nexcept Exception:\n    return self.a(x)"),
    "bare": in_class("try:\n    out = missing(x)\nexcept:\n    out = self.a(x)\nreturn out"),
    "further down": in_class(
        "try:\n    return missing(x)\nexcept (KeyError, RuntimeError):\n    pass\nreturn self.a(x)"
    ),
    "an error of a known name": in_class(
        "try:\n    return missing(x)\nexcept KeyError:\n    return self.a(x)", before="KeyError = Exception"
    ),
    "with a flag": in_class(
        "out, ok = torch.empty(x.shape), True\ntry:\n    kernel[(1,)](x, out)\nexcept Exception:\n    ok = False\n"
        "return out if ok else self.a(x)"
    ),
    "in a method": in_class("return self.fast(x)", FALLBACK_IN_A_METHOD),
    "in a method that is kept": in_class("return self.run(x)", FALLBACK_IN_A_METHOD),
    "in a function": in_class(
        "return fast(self.a, x)",
        before="def fast(a, y):\n    try:\n        return missing(y)\n    except Exception:\n        return a(y)",
    ),
    "suppressed": in_class("with contextlib.suppress(Exception):\n    return missing(x)\nreturn self.a(x)"),
    "finally": in_class("try:\n    out = missing(x)\nfinally:\n    return self.a(x)"),
    "a raise that never comes": in_class(
        "try:\n    return missing(x)\nexcept Exception:\n    if False:\n        raise\n    return self.a(x)"
    ),
    "from a replay": in_class(
        "try:\n    self.graph.replay()\nexcept Exception:\n    return self.a(x)\nreturn self.ptr"
    ),
}


@pytest.mark.parametrize("what", FALLBACKS)
def test_fallback_when_the_rule_says_so_is_neutralised_refused_or_allowed(what):
    look = check_static(FALLBACKS[what])
    assert look.refusal is None and look.handlers and "silent_fallback" in look.flags
    assert check_static(FALLBACKS[what], RulesConfig(fallbacks="reject")).refusal.reason == "silent_fallback"
    allowed = check_static(FALLBACKS[what], RulesConfig(fallbacks="allow"))
    assert allowed.refusal is None and not allowed.handlers and "silent_fallback" in allowed.flags


@pytest.mark.parametrize("what", FALLBACKS)
def test_handler_when_neutralised_lets_the_error_through(what):
    code = FALLBACKS[what]
    tree = neutralised(ast.parse(code), check_static(code).handlers)
    again = ast.unparse(tree)
    if what in ("suppressed", "finally"):
        assert "suppress(" not in again or what == "finally"
    else:
        assert f"if not {EXPECTED_ERROR}():" in again
    compile(tree, "candidate.py", "exec")


def test_error_of_own_code_when_a_handler_is_neutralised_is_raised_and_an_expected_one_is_not():
    code = "def run(error):\n    try:\n        raise error\n    except Exception:\n        return 'gone on'\n"
    module = {EXPECTED_ERROR: is_expected_error}
    exec(compile(neutralised(ast.parse(code), [(4, 4)]), "candidate.py", "exec"), module)
    for expected in (KeyError("x"), MemoryError(), ImportError(), RuntimeError("CUDA out of memory")):
        assert module["run"](expected) == "gone on"
    with pytest.raises(RuntimeError, match="launch failed"):
        module["run"](RuntimeError("launch failed"))
