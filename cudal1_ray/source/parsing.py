"""Foreign text as a syntax tree and as bytecode: one error for all that is wrong with it, no warning on the terminal.

Python warns about text that it parses, such as `1if` or an escape sequence that does not exist. Such a text is a
candidate or a problem of a data set, not the user's own. Its warnings are ignored by the file name that it is parsed
under, not by `warnings.catch_warnings`, which changes the filters of all threads.

What is not Python is a SyntaxError here, however it is not: Python raises ValueError for null bytes and surrogates,
and RecursionError, MemoryError or OverflowError for what is nested too deeply.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Callable
from types import CodeType
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.source.text import line_without_text

# File names of foreign text, in error messages and tracebacks.
CANDIDATE = "<candidate>"
PROBLEM = "<problem>"
EXPRESSION = "<expression>"
_NAMES = re.compile(f"({CANDIDATE}|{PROBLEM}|{EXPRESSION})$")
# Python refuses a decimal integer of more than 4,300 digits and takes one in another base, which it cannot print.
_UNPRINTABLE = re.compile(r"0[xXoObB][0-9a-fA-F_]{3500,}")
# As `warnings.filters` holds it. A warning about text that belongs to no module has the file name as its module.
_FILTER = ("ignore", None, Warning, _NAMES, 0)
# Python 3.11 counts the depth of a syntax tree for all threads together: where two make one, it may raise SystemError.
_TREES = threading.RLock()


def parse(text: str, name: str = CANDIDATE) -> ast.Module:
    """Return a text's syntax tree.

    Raises:
        SyntaxError: with `name` as the file, for what is not Python.
    """
    return _read(ast.parse, text, name)


def parse_named(text: str, origin: str) -> ast.Module:
    """Return the syntax tree of a problem or of a candidate that a user gave.

    Args:
        origin: where the text came from (a path, or a row of a table), for the message.

    Raises:
        UserError: with `origin` and what is wrong, for what is not Python.
    """
    try:
        return parse(text, PROBLEM)
    except SyntaxError as error:
        raise UserError(f"{origin}: not valid Python, {fault(error)}") from error


def parse_expression(text: str, name: str = EXPRESSION) -> ast.Expression:
    """Return the syntax tree of a text that is one expression. Raises what `parse` raises."""
    return _read(ast.parse, text, name, mode="eval")


def compile_text(text: str, name: str = CANDIDATE) -> CodeType:
    """Return a text's bytecode. Raises what `parse` raises."""
    return _read(compile, text, name, mode="exec", dont_inherit=True)


def fault(error: SyntaxError) -> str:
    """Return what is wrong with a text, with the line where there is one."""
    return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg


def _read(reader: Callable[..., Any], text: str, name: str, **options: Any) -> Any:
    _ignore_warnings()
    if _UNPRINTABLE.search(text):
        raise SyntaxError("an integer of more than 4,300 digits", (name, None, None, None))
    try:
        with _TREES:
            return reader(text, name, **options)
    except SyntaxError as error:
        error.filename = error.filename or name  # null bytes have none
        raise
    except (RecursionError, MemoryError, OverflowError):
        raise SyntaxError("nested too deeply", (name, None, None, None)) from None
    except UnicodeEncodeError as error:
        line, reason = line_without_text(error)
        raise SyntaxError(reason, (name, line, None, text.split("\n")[line - 1])) from None
    except ValueError as error:
        raise SyntaxError(str(error), (name, None, None, None)) from None


def _ignore_warnings() -> None:
    """Add the filter unless it is there: what resets or restores filters removes it."""
    if _FILTER not in warnings.filters:
        warnings.filterwarnings("ignore", category=Warning, module=_NAMES.pattern)
