"""The one exception that is shown to a person instead of a traceback, and others in one line."""

from __future__ import annotations


class UserError(Exception):
    """A mistake its reader can mend: a wrong value, a missing file, a full disk.

    The message is one line that names the file, field or value at fault and the remedy. The command line prints
    it and exits with code 2; nothing that was already written is touched.
    """


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; the name of its type where it has none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
