"""Text that leaves the server loses what it reveals of this machine."""

from __future__ import annotations

import re

# An absolute path of some file system, without spaces: text does not show where one with spaces ends. A colon ends it
# (a line number follows), and a backslash, which in JSON begins a quotation mark or a line break.
_PATH = re.compile(r"""(?<![\w./])(?:/[^\s/:;"'`<>|\\]+){2,}/?""")
# What ends the clause or the brackets that a path stands in.
_AFTER = ".,!?)]}"
_ROUTE = re.compile(r"/(?:v1|healthz?|metrics)\b")


def scrub(text: str) -> str:
    """Return the text with absolute paths replaced; this server's own routes stay."""
    return _PATH.sub(_replaced, text)


def _replaced(match: re.Match[str]) -> str:
    path = match[0].rstrip(_AFTER)
    return match[0] if _ROUTE.match(path) else "<path>" + match[0][len(path) :]
