"""How a text becomes a module inside a contestant, and an exception of its code an answer."""

from __future__ import annotations

import ast
import errno
import io
import os
import sys
import tokenize
import traceback
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from cudal1_ray.evaluation.exchange.server_messages import Failure, OwnFailure
from cudal1_ray.evaluation.inside.neutralise import EXPECTED_ERROR, is_expected_error, neutralised

_isinstance = isinstance  # captured before any candidate
_EVALUATOR = os.path.dirname(os.path.dirname(__file__))
# Errors of a process that has used up its scratch, its files or the size of one.
_USED_UP = frozenset((errno.ENOSPC, errno.EMFILE, errno.EFBIG, errno.EDQUOT))


def execute(code: str, scratch: str, name: str, places: Sequence[tuple[int, int]] = ()) -> Any:
    """Import `code` as a module with a file of its own (Triton and inspect read it there); return the module.

    `places`: positions of handlers that re-raise unexpected errors (neutralise.py); line numbers do not change.
    """
    path, code = os.path.join(scratch, f"{name}.py"), code.removeprefix("\ufeff")
    data = code.encode("utf-8", "surrogatepass")
    with suppress(SyntaxError, UnicodeError):  # encoded as its coding line names, so that its readers are not misled
        data = code.encode(tokenize.detect_encoding(io.BytesIO(data).readline)[0])
    with open(path, "wb") as file:
        file.write(data)
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = path
    if places:
        setattr(module, EXPECTED_ERROR, is_expected_error)
    source = neutralised(ast.parse(code), places) if places else code
    exec(compile(source, path, "exec", dont_inherit=True), vars(module))
    return module


def failure(error: BaseException) -> Failure:
    """Return an exception of the candidate's code as an answer."""
    kind: OwnFailure = "runtime_error"
    used_up = False
    try:
        text = str(error)[:1500].encode("utf-8", "backslashreplace").decode()
        used_up = _isinstance(error, OSError) and getattr(error, "errno", None) in _USED_UP
    except BaseException:  # raised by the candidate's own exception class
        text = "an exception that cannot be printed"
    if _isinstance(error, MemoryError) or "can't allocate memory" in text or "out of memory" in text:
        kind = "memory_limit"
    elif used_up or _isinstance(error, (BlockingIOError, ChildProcessError)) or "can't start new thread" in text:
        kind = "resource_exhaustion"
    elif type(error).__name__ == "ExtensionBuildError":
        kind = "compile_error"
    advice = "; no timed call may: start it in the constructor" if "can't start new thread" in text else ""
    return Failure(f"{type(error).__name__}: {text}{advice}{_where(error)}", kind)


def _where(error: BaseException) -> str:
    """Return the last line of the candidate's own code that led to the error; torch's, where there is none; empty where
    the evaluator's own code raised it, such as a TypeError for the arguments of a call.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if os.path.basename(frame.filename) in ("candidate.py", "reference.py")]
    last = (own or frames)[-1:]
    if not last or last[0].filename.startswith(_EVALUATOR):
        return ""
    line = f": {last[0].line}" if own and last[0].line else ""
    return f" (line {last[0].lineno} of {os.path.basename(last[0].filename)}{line[:120]})"
