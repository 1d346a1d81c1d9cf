"""A part of a Markdown page that a benchmark writes, between two comments that no reader sees."""

from __future__ import annotations

from pathlib import Path

from cudal1_ray.errors import UserError
from cudal1_ray.files import write_atomically


def write_section(page: Path, name: str, text: str) -> None:
    """Put `text` between `<!-- name: begin -->` and `<!-- name: end -->`; everything else on the page stays.

    Raises:
        UserError: when the page is missing, or does not hold each comment once and in this order.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    try:
        before, after = page.read_text(encoding="utf-8").split(begin)
        _, after = after.split(end)
    except OSError as error:
        raise UserError(f"{page}: {error.strerror}") from None
    except ValueError:
        raise UserError(f"{page}: needs one `{begin}` and after it one `{end}`, to be filled in between") from None
    write_atomically(page, f"{before}{begin}\n{text.strip()}\n{end}{after}")
