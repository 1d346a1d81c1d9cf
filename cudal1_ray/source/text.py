"""Python source as bytes and as text: coding lines (PEP 263), places of syntax trees, and what follows a docstring."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

from cudal1_ray.errors import UserError


def decode_source(data: bytes) -> str:
    """Return the text of a Python file, in the encoding that its first two lines name.

    It has no byte-order mark, and its lines end in a single newline.

    Raises:
        ValueError: with a reason, for an encoding that does not exist and bytes that are not of it.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, LookupError) as error:  # of a coding line: one that does not exist, and one that is no text
        fault = error.msg if isinstance(error, SyntaxError) else error
        raise ValueError(f"{fault}; save it as UTF-8") from None
    except UnicodeDecodeError as error:
        where = f"byte {error.start} is no {error.encoding}"
        raise ValueError(f"{where}; save it as UTF-8, or name its coding in the first line") from None
    return clean_text(text)


def read_source(path: Path, advice: str = "") -> str:
    """Return the text of a Python file, see `decode_source`.

    Raises:
        UserError: naming the file and why it cannot be read, with the advice behind that.
    """
    try:
        return decode_source(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or error}{advice}") from None


def clean_text(text: str) -> str:
    """Return a program's text as that of a file is read: without a byte-order mark, lines ending in one newline."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def line_without_text(error: UnicodeEncodeError) -> tuple[int, str]:
    """Return the line of a text that cannot be encoded, and why: JSON and Python can hold half of a surrogate pair."""
    line = error.object.count("\n", 0, error.start) + 1
    return line, f"U+{ord(error.object[error.start]):04X} is half of a surrogate pair and no character"


def line_starts(source: bytes) -> list[int]:
    """Return the byte at which each line starts, by Python's own line ends, and the length of the source."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def split_docstring(text: str, tree: ast.Module) -> tuple[str, str]:
    """Return a module's docstring, its indentation removed, and the text below it; "" and all text without one."""
    docstring = ast.get_docstring(tree)
    if docstring is None:
        return "", text
    return docstring, "\n".join(text.split("\n")[tree.body[0].end_lineno :])
