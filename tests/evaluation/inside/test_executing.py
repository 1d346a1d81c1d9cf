"""An exception of a candidate's code becomes an answer of the kind that it is."""

from __future__ import annotations

import errno

import pytest

from cudal1_ray.evaluation.inside.executing import failure


class _Unreadable(OSError):
    @property
    def errno(self):
        raise RuntimeError


@pytest.mark.parametrize(
    "error, kind",
    [
        (OSError(errno.ENOSPC, "No space left on device"), "resource_exhaustion"),
        (OSError(errno.EMFILE, "Too many open files"), "resource_exhaustion"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "resource_exhaustion"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "runtime_error"),
        (MemoryError(), "memory_limit"),
        (_Unreadable(), "runtime_error"),
        (RuntimeError("can't start new thread"), "resource_exhaustion"),
    ],
)
def test_failure_when_a_process_has_used_up_what_it_may_names_the_limit(error, kind):
    assert failure(error).kind == kind


def test_failure_when_no_thread_may_start_names_where_one_may():
    error = failure(RuntimeError("can't start new thread")).error
    assert error == "RuntimeError: can't start new thread; no timed call may: start it in the constructor"
