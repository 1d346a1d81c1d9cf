"""How a text becomes a module inside a contestant, and an exception of its code an answer."""

from __future__ import annotations

import ast
import codecs
import importlib.machinery
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from ..exchange.messages import Failure
from .neutralise import EXPECTED_ERROR, is_expected_error, neutralised

_isinstance = isinstance  # captured before any candidate
_CODING_LINE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a text whose handlers at ``places`` re-raise (neutralise.py); its lines stay where they are."""

    def __init__(self, name: str, path: str, places: Sequence[Any]) -> None:
        super().__init__(name, path)
        self._places = places

    def source_to_code(self, data: Any, path: Any, *_: Any, **given: Any) -> Any:
        if not self._places:
            return super().source_to_code(data, path, **given)
        return compile(neutralised(ast.parse(data), self._places), path, "exec", dont_inherit=True)

    def exec_module(self, module: Any) -> None:
        if self._places:
            setattr(module, EXPECTED_ERROR, is_expected_error)
        super().exec_module(module)


def execute(code: str, scratch: str, name: str, places: Sequence[Any] = ()) -> Any:
    """Imports ``code`` as a module with a file of its own (Triton and inspect read it there).

    ``places``: handlers that re-raise what is not expected, see `_Loader`.
    """
    path = os.path.join(scratch, f"{name}.py")
    with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(in_utf_8(code))
    loader = _Loader(name, path, places)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def in_utf_8(text: str) -> str:
    """The same source, to be written as UTF-8: a coding line that names anything else is made to name that."""
    lines = text.removeprefix("\ufeff").split("\n", 2)
    for number, line in enumerate(lines[:2]):
        if found := _CODING_LINE.match(line):
            if not _is_utf_8(found.group(1)):
                lines[number] = line[: found.start(1)] + "utf-8" + line[found.end(1) :]
            break
        if line.strip() and not line.lstrip().startswith("#"):
            break
    return "\n".join(lines)


def _is_utf_8(name: str) -> bool:
    try:
        return codecs.lookup(name).name == "utf-8"
    except LookupError:
        return False


def failure(error: BaseException) -> Failure:
    """An exception of the candidate's as an answer."""
    kind = "runtime_error"
    try:
        told = str(error)[:1500].encode("utf-8", "backslashreplace").decode()
    except BaseException:  # the candidate's own kind of exception
        told = "an exception that cannot be printed"
    if _isinstance(error, MemoryError) or "can't allocate memory" in told or "out of memory" in told:
        kind = "memory_limit"
    elif _isinstance(error, (BlockingIOError, ChildProcessError)) or "can't start new thread" in told:
        kind = "resource_exhaustion"
    elif type(error).__name__ == "ExtensionBuildError":
        kind = "compile_error"
    return Failure(f"{type(error).__name__}: {told}{_where(error)}", kind)


def _where(error: BaseException) -> str:
    """The last line of the candidate's own that led to it; torch's, where there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if os.path.basename(frame.filename) in ("candidate.py", "reference.py")]
    last = (own or frames)[-1:]
    if not last:
        return ""
    line = f": {last[0].line}" if own and last[0].line else ""
    return f" (line {last[0].lineno} of {os.path.basename(last[0].filename)}{line[:120]})"
