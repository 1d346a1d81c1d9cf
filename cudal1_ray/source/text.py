"""Python source as bytes and as text: byte-order marks and coding lines, as Python itself reads them (PEP 263)."""

from __future__ import annotations

import io
import tokenize


def decode_source(data: bytes) -> str:
    """The text of a Python file: in the encoding that its first two lines name, without a byte-order mark, lines ended
    by a single newline.

    Raises:
        ValueError: with a reason, for an encoding that does not exist and bytes that are not of it.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except SyntaxError as error:
        raise ValueError(str(error.msg)) from None
    except UnicodeDecodeError as error:
        where = f"byte {error.start} is no {error.encoding}"
        raise ValueError(f"{where}; save it as UTF-8, or name its coding in the first line") from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
