"""Words of a candidate's text that give it more time, or a process of another kind; claiming them gains it nothing."""

from __future__ import annotations

import re

from cudal1_ray.evaluation.config import LimitConfig

# Words of code that compiles. A candidate that names one of these only to get more time gains nothing by it.
_COMPILES = re.compile(r"compile|triton|cpp_extension|jit|inline|nvrtc|cupy|numba|cute|tilelang", re.IGNORECASE)
_COMPILES_IN_CALLS = re.compile(r"\bcompile\b|triton|nvrtc|cupy|numba|cute|tilelang", re.IGNORECASE)
# Code that times several algorithms in a first call, and keeps to the fastest (cuDNN's own search).
_TUNES_IN_CALLS = re.compile(r"\bbenchmark\s*=\s*True")
# Code that makes streams of its own, or has layers for which cuDNN does.
_SEVERAL_STREAMS = re.compile(r"\bStream\b|StreamCreate|StreamFromPool|ExternalStream|rnn|RNN|gru|GRU|lstm|LSTM")


def several_streams(code: str) -> bool:
    """Return whether the code may run several streams; if a candidate hides that, they run one after another."""
    return _SEVERAL_STREAMS.search(code) is not None


def compiles(code: str) -> bool:
    """Return whether the code may compile something, whenever that is."""
    return _COMPILES.search(code) is not None


def compiles_in_calls(code: str) -> bool:
    """Return whether the first call may take half a minute; claiming that costs a less certain measurement."""
    return _COMPILES_IN_CALLS.search(code) is not None


def tunes_in_calls(code: str) -> bool:
    """Return whether the first call may choose by the clock; if code claims that, others wait during that call."""
    return _TUNES_IN_CALLS.search(code) is not None and not compiles_in_calls(code)


def longest_alone_s(code: str, limits: LimitConfig, reference_s: float) -> float:
    """Return the seconds for which a candidate's import and construction may run without a child process, such as a
    compiler, if the reference's took `reference_s`. A constructor that makes the first call itself has that call's.
    """
    plain_s = max(limits.plain_load_timeout_s, 10 * reference_s)
    longest_s = max(plain_s, limits.first_call_timeout_s) if compiles_in_calls(code) else plain_s
    return min(limits.load_timeout_s, longest_s)
