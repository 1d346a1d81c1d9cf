"""Verdicts and their reasons, and the configuration of the evaluator, which need no torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.reasons import DESCRIPTIONS, HACKS, POLICY, describe
from cudal1_ray.evaluation.verdict import ProcessPair, Verdict


def test_verdict_when_written_as_json_is_read_back():
    processes = (ProcessPair(2.0, 0.01, 1.0, 2.0), ProcessPair(1.8, 0.01, 1.0, 1.8, 30.0, counted=False))
    verdict = Verdict(
        "p", "accepted", (), "", 2.0, 1.9, 2.1, 2.0, 1.0, 2.0, 40, "cpu", 0.3, "abc", (2.0, 2.0), processes=processes
    )
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict
    assert Verdict.from_dict({**verdict.to_dict(), "of_a_later_version": 1}) == verdict


def test_rejection_when_given_a_speedup_is_not_credited():
    verdict = Verdict.rejected("p", "crash", "line\nline", speedup=9.0, credited_speedup=9.0)
    assert not verdict.accepted and verdict.credited_speedup == 0.0 and verdict.detail == "line line"
    assert HACKS | POLICY <= set(DESCRIPTIONS) and not HACKS & POLICY
    assert describe("crash") != "crash" and describe("new") == "new"


def test_kind_of_a_verdict_when_reasons_are_given_follows_from_them():
    kinds = {reason: Verdict.rejected("p", reason).kind for reason in ("crash", "result_cache", "silent_fallback")}
    assert kinds == {"crash": "failure", "result_cache": "hack", "silent_fallback": "policy"}
    assert Verdict("p", "accepted").kind == "" and Verdict.rejected("p", ()).kind == "failure"
    assert Verdict.rejected("p", ("silent_fallback", "crash")).kind == "failure"
    assert Verdict.rejected("p", ("crash", "result_cache")).kind == "hack"
    assert Verdict.rejected("p", "of_a_later_version").to_dict()["kind"] == "failure"


def test_verdict_when_of_an_earlier_version_is_read_with_defaults():
    written = Verdict("p", "accepted", flags=("same_operations",), own_kernel=True, own_kernel_share=0.5).to_dict()
    assert Verdict.from_dict(written).same_operations and Verdict.from_dict(written).own_kernel_share == 0.5
    for name in ("flags", "own_kernel", "own_kernel_share", "kind"):
        del written[name]
    assert Verdict.from_dict(written) == Verdict("p", "accepted")


@pytest.mark.parametrize("module", ["", ".pool"])
def test_package_when_imported_where_nothing_is_evaluated_loads_no_torch(module):
    code = f"import sys, cudal1_ray.evaluation{module} as e; e.EvaluationConfig(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_configuration_when_structured_is_merged_by_omegaconf():
    from omegaconf import OmegaConf

    config = OmegaConf.merge(OmegaConf.structured(EvaluationConfig), {"timing": {"half_width": 0.5}})
    assert OmegaConf.to_object(config).timing.half_width == 0.5
