"""Foreign text as a syntax tree and as bytecode, without a warning on the user's terminal.

Python warns about text that it parses, such as `1if` or an escape sequence that does not exist. About a candidate or a
problem of a data set the warning helps no user, who sees neither text. It is ignored by the file name that the text is
parsed under, not by `warnings.catch_warnings`, which changes the filters of all threads.
"""

from __future__ import annotations

import ast
import re
import warnings
from types import CodeType

# File names of foreign text, in error messages and tracebacks.
CANDIDATE = "<candidate>"
PROBLEM = "<problem>"
EXPRESSION = "<expression>"
_NAMES = re.compile(f"({CANDIDATE}|{PROBLEM}|{EXPRESSION})$")
# As `warnings.filters` holds it. A warning about text that belongs to no module has the file name as its module.
_FILTER = ("ignore", None, Warning, _NAMES, 0)


def parse(text: str, name: str = CANDIDATE) -> ast.Module:
    """Return a text's syntax tree.

    Raises SyntaxError, with `name` as the file, or ValueError, RecursionError or MemoryError.
    """
    _ignore_warnings()
    return ast.parse(text, name)


def parse_expression(text: str, name: str = EXPRESSION) -> ast.Expression:
    """Return the syntax tree of a text that is one expression. Raises what `parse` raises."""
    _ignore_warnings()
    return ast.parse(text, name, mode="eval")


def compile_text(text: str, name: str = CANDIDATE) -> CodeType:
    """Return a text's bytecode. Raises OverflowError besides what `parse` raises."""
    _ignore_warnings()
    return compile(text, name, "exec", dont_inherit=True)


def _ignore_warnings() -> None:
    """Add the filter unless it is there: what resets or restores filters removes it."""
    if _FILTER not in warnings.filters:
        warnings.filterwarnings("ignore", category=Warning, module=_NAMES.pattern)
