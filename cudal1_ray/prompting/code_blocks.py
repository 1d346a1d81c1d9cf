"""Fenced code blocks of an answer, as language models write them, and the program that several of them make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from cudal1_ray.source.names import free_names, top_level_names
from cudal1_ray.source.parsing import parse

# A fence with its indentation, or behind the marker of a list item.
_FENCE = re.compile(r"([ \t]*(?:(?:[-*+]|\d{1,2}[.)])[ \t]+)?)(`{3,}|~{3,})([^`]*)")
_CLOSING = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*")
# Python that a model wrote on the opening fence's own line, after the language or without one.
_PYTHON_START = re.compile(r"(?:[\w+-]+[ \t]+)?((?:import|from|class|def|@|#)[ \t]?\S.*)")
# Blocks read of one text; each is at most one pass over its lines. Answers have one or two.
_MOST_BLOCKS = 16
# Closing fences tried for one block, each with one parse of its text, where the first stands in a string of the code.
_MOST_FENCES = 16


@dataclass(frozen=True)
class Block:
    """One fenced block: its text without the fence's indentation, and whether the fence was closed."""

    text: str
    closed: bool


def longest_fence(text: str) -> int:
    """Return the length of the longest run of backticks in the text: a fence around it must be longer."""
    return max((len(run) for run in re.findall("`+", text)), default=0)


def find_blocks(lines: Sequence[str]) -> list[Block]:
    """Return the fenced blocks in order, the first 16 of them, in time linear in the text.

    A block may be indented (it stands in a list), its fence may follow text on its line ("The file: ```python"), code
    may follow on the fence's line, and the closing fence may stand at the end of the last line of code. A fence ends at
    one of its own character that is at least as long, and that stands in no triple-quoted string of the code.
    """
    return list(islice(_blocks(lines), _MOST_BLOCKS))


def _blocks(lines: Sequence[str]) -> Iterator[Block]:
    number = 0
    while number < len(lines):
        opening = _opening(lines[number])
        number += 1
        if opening is None:
            continue
        block, end = _read_block(lines, number, *opening)
        yield block
        number = end + 1


def _read_block(lines: Sequence[str], start: int, indent: int, fence: str, first: str) -> tuple[Block, int]:
    """Return the block whose text starts at a line, and the line that closes it.

    A docstring or a string of the code may hold fences: where the first closing fence leaves such a string open, the
    block ends at the first one at which its text is Python. Where there is none, its string was never closed.
    """
    candidates = _blocks_to_each_end(lines, start, indent, fence, first)
    earliest = next(candidates)
    if "triple-quoted" not in _syntax_fault(earliest[0].text):
        return earliest
    return next((candidate for candidate in candidates if not _syntax_fault(candidate[0].text)), earliest)


def _blocks_to_each_end(
    lines: Sequence[str], start: int, indent: int, fence: str, first: str
) -> Iterator[tuple[Block, int]]:
    for end, last in islice(_ends_of_block(lines, start, fence), _MOST_FENCES):
        body = ([first] if first else []) + list(lines[start:end]) + ([last] if last else [])
        yield Block("\n".join(_dedent(body, indent)).strip("\n"), end < len(lines)), end


def _syntax_fault(code: str) -> str:
    """Return what is wrong with the code as Python, "" for nothing."""
    try:
        parse(code)
    except SyntaxError as error:
        return error.msg
    return ""


def _opening(line: str) -> tuple[int, str, str] | None:
    """Return (columns of indentation, fence, Python on the fence's line) of a line that opens a block, else None."""
    if match := _FENCE.fullmatch(line):
        indent, fence, info = len(match[1]), match[2], match[3]
    else:
        at = line.find("```")
        fence = line[at : at + len(line[at:]) - len(line[at:].lstrip("`"))] if at >= 0 else ""
        info = line[at + len(fence) :]
        if not fence or "`" in info:
            return None
        indent = len(line) - len(line.lstrip())
    code = _PYTHON_START.fullmatch(info.strip())
    return indent, fence, code[1] if code else ""


def _ends_of_block(lines: Sequence[str], start: int, fence: str) -> Iterator[tuple[int, str]]:
    """Return (line that may close the block, code on that line): fences alone on their line, then fences behind code,
    then the end of the text."""
    behind_code = []
    for number in range(start, len(lines)):
        line = lines[number].rstrip()
        match = _CLOSING.fullmatch(line)
        if match and match[1][0] == fence[0] and len(match[1]) >= len(fence):
            yield number, ""
        elif line.endswith(fence):
            behind_code.append(number)
    for number in behind_code:
        yield number, lines[number].rstrip().rstrip(fence[0])
    yield len(lines), ""


def _dedent(body: list[str], indent: int) -> list[str]:
    """Return the lines without the fence's indentation, as far as the first line of code has it."""
    first = next((line for line in body if line.strip()), "")
    columns = min(indent, len(first) - len(first.lstrip()))
    return [line[min(columns, len(line) - len(line.lstrip())) :] for line in body] if columns else body


def program_around(blocks: Sequence[Block], main: int) -> tuple[str, bool]:
    """Return the block `main` with the other blocks that define what it uses, in order, and whether all are closed.

    A model that explains as it goes gives the kernel's source in one block and the class that builds it in the next.
    Blocks that are not Python, and those that define nothing that is missing, are left out.
    """
    missing, bound = _names(blocks[main].text)
    others = [_names(block.text)[1] if number != main else set() for number, block in enumerate(blocks)]
    names, chosen = missing - bound, {main}
    while True:
        needed = {number for number, defined in enumerate(others) if number not in chosen and defined & names}
        if not needed:
            break
        # Of several blocks that define the same name the last before `main` counts: a model corrects itself downwards.
        number = max((n for n in needed if n < main), default=min(needed))
        chosen.add(number)
        used, defined = _names(blocks[number].text)
        bound |= defined
        names = (names | used) - bound
    text = "\n\n\n".join(blocks[number].text for number in sorted(chosen))
    return text, all(blocks[number].closed for number in chosen)


def _names(code: str) -> tuple[set[str], set[str]]:
    """Return what `free_names` and `top_level_names` find in the code; none in text that is not Python."""
    try:
        tree = parse(code)
    except SyntaxError:
        return set(), set()
    return free_names(tree), top_level_names(tree)
