"""Settings for tests whose subject is not how fast a candidate is: its speedup is measured once.

A speedup above 3x is measured again in fresh processes, and refused as `unstable_timing` where no two of three
measurements agree, as on a busy machine. One measurement has nothing to disagree with. An interval wider than wanted
asks for further pairs of processes, here for none: two of them that differ leave an interval far wider than one has.
tests/evaluation holds what both do.

Batches are half as long as a user's, with a quarter of the calls at most: a program starts and ends for each of these
tests, and its measurement need not be longer than that.

Nor is their subject the limit of a call. It is a second for a call of a millisecond, and a busy machine may stop a
process for longer: a call has a minute here, however short the reference's is.
"""

from __future__ import annotations

MEASURED_ONCE = (
    "evaluation.timing.remeasure_above=0",
    "evaluation.timing.remeasure_over_best=0",
    "evaluation.timing.contestants=1",
    "evaluation.timing.most_contestants=1",
    "evaluation.timing.batch_ms=2",
    "evaluation.timing.max_batch_calls=16",
    "evaluation.limits.call_timeout_s=60",
    "evaluation.limits.slowdown_limit=1e7",
)
