"""What became of refused candidates, and what is counted of those accepted."""

from __future__ import annotations

from benchmarks.evaluator.published_kernels import fates, summarise


def _row(name, verdict="rejected", reasons=("wrong_output",), **fields):
    return {
        "id": name, "verdict": verdict, "reasons": list(reasons), "detail": "", "degenerate": False, "flags": [],
        "own_kernel": False, "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0, "credited_speedup": 1.0,
        "runtime_ms": 1.0, "reference_ms": 1.0, **fields,
    }  # fmt: skip


def test_refused_candidates_when_evaluated_again_are_followed_by_their_former_reason():
    refused = {"a": "silent_fallback: line 1", "b": "silent_fallback: line 2", "c": "wrong_output: far off"}
    before = {"files": {"h100": {"eager": {"rejected": refused}}}}
    rows = [_row("a", "accepted", ()), _row("b"), _row("other")]
    assert fates(before, {"default": {"h100": rows}}) == {
        "silent_fallback": {"refused": 2, "default": {"accepted": 1, "wrong_output": 1}},
        "wrong_output": {"refused": 1, "default": {}},
    }
    summary = {"rules": {"default": before, "strict": {}}}
    assert fates(summary, {"default": {"h100": rows}}) == fates(before, {"default": {"h100": rows}})


def test_summary_when_candidates_are_accepted_counts_own_kernels_and_flags():
    own = _row("a", "accepted", (), own_kernel=True, flags=["silent_fallback: line 1"], credited_speedup=2.0)
    plain = _row("b", "accepted", (), flags=["same_operations"])
    summary = summarise([own, plain, _row("c", flags=["unseen"])], {"a": 3.0})
    assert (summary["success"], summary["with_own_kernel"]) == (2, 1)
    assert summary["flags"] == {"silent_fallback": 1, "same_operations": 1}
    assert summary["measured"]["max"] == 2.0 and summary["authors_of_these"]["max"] == 3.0
