"""The three-part answer: written for stage 1, and read back out of whatever a policy wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass

ANALYSIS = "Performance Analysis"
DESIGN = "Algorithm Design"
CODE = "Code Implementation"
PARTS = (ANALYSIS, DESIGN, CODE)

# "## Algorithm Design", and what language models make of it: other levels, numbers, bold, a colon.
_HEADER = re.compile(
    r"[ \t]{0,3}(?:#{1,6}[ \t]*(?:\*\*)?|\*\*)[ \t]*(?:\d{1,2}[.)][ \t]*)?"
    r"(performance analysis|algorithm design|code implementation)[ \t]*:?[ \t]*(?:\*\*)?[ \t]*:?\s*",
    re.IGNORECASE,
)
_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})([^`]*)")
_MODEL_NEW = re.compile(r"^[ \t]*(?:class[ \t]+ModelNew\b|ModelNew[ \t]*=)", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """What a completion holds.

    code: the candidate, or None when no text that defines `ModelNew` was found. error: "" for an answer with
    all its parts, else one line naming every part that is missing or broken; code can be there all the same,
    and is worth evaluating.
    """

    code: str | None
    analysis: str
    design: str
    error: str


def render_answer(analysis: str, design: str, code: str, *, include_analysis: bool = True) -> str:
    """The answer as a policy should write it; ends without a line break, where the end-of-text token belongs.

    `parse_answer` gives back the three parts (outer blank space aside). A line of the texts that looks like
    one of the headers loses its marks; code that holds a fence of its own gets a longer one.
    """
    code = _lines_only(code).strip("\n")
    longest = max((len(m[1]) for line in code.split("\n") if (m := _FENCE.match(line))), default=0)
    fence = "`" * max(3, longest + 1)
    parts = [f"## {ANALYSIS}\n{tidy(analysis)}"] if include_analysis else []
    parts += [f"## {DESIGN}\n{tidy(design)}", f"## {CODE}\n{fence}python\n{code}\n{fence}"]
    return "\n".join(parts)


def tidy(text: str) -> str:
    """A text part as it survives a round trip: outer blank space gone, no line that passes for a header."""
    lines = _lines_only(text).strip().split("\n")
    tidied = [_HEADER.fullmatch(line)[1] if _HEADER.fullmatch(line) else line for line in lines]
    return "\n".join(tidied).strip()


def parse_answer(text: str, *, require_analysis: bool = True) -> Answer:
    """Reads an answer out of any text, in time linear in its length; never raises.

    The parts are looked for in their order. The code is the first fenced block that defines `ModelNew`, in
    the code part if there is one, else anywhere; an unclosed last block counts, and so does a code part
    without any fence. What a reasoning model thought aloud before its answer (up to `</think>`) is skipped.
    """
    lines = _without_thoughts(_lines_only(text)).split("\n")
    start = _find_parts(lines)
    problems = []
    analysis = _text_part(lines, start, ANALYSIS)
    design = _text_part(lines, start, DESIGN)
    if not analysis and require_analysis:
        problems.append(f"no {ANALYSIS}")
    if not design:
        problems.append(f"no {DESIGN}")
    if CODE not in start:
        problems.append(f"no {CODE}")
    code, fault = _find_code(lines[start[CODE] + 1 :] if CODE in start else lines, CODE in start)
    if fault:
        problems.append(fault)
    return Answer(code, analysis, design, "; ".join(problems))


def _lines_only(text: str) -> str:
    # Python, too, takes all three for the end of a line.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _without_thoughts(text: str) -> str:
    if _HEADER.match(text.lstrip()):
        return text
    _, mark, answer = text.partition("</think>")
    return answer if mark and answer.strip() else text


def _find_parts(lines: list[str]) -> dict[str, int]:
    """Line number of each part's header, the first that comes after the header of the part before it.

    The search ends with the code header: below it, a line such as `## Algorithm Design` is a Python comment.
    """
    found: dict[str, int] = {}
    for number, line in enumerate(lines):
        match = _HEADER.fullmatch(line)
        if not match:
            continue
        part = match[1].title()
        if part in found or any(later in found for later in PARTS[PARTS.index(part) :]):
            continue
        found[part] = number
        if part == CODE:
            break
    return found


def _text_part(lines: list[str], start: dict[str, int], part: str) -> str:
    if part not in start:
        return ""
    end = min((at for at in start.values() if at > start[part]), default=len(lines))
    return "\n".join(lines[start[part] + 1 : end]).strip()


def _find_code(lines: list[str], in_code_part: bool) -> tuple[str | None, str]:
    """The candidate in these lines and what is wrong with how it was given ("" for nothing)."""
    any_block = False
    for code, closed in _blocks(lines):
        any_block = True
        if _MODEL_NEW.search(code):
            return code, "" if closed else "the code block is not closed"
    if any_block:
        return None, "the code block defines no ModelNew"
    bare = "\n".join(lines).strip("\n")
    if in_code_part and _MODEL_NEW.search(bare):
        return bare, "the code is in no fenced block"
    return None, "no code block"


def _blocks(lines: list[str]):
    """Fenced blocks in order, as (text, closed). A fence ends at one of its own character, at least as
    long.
    """
    opened, fence = -1, ""
    for number, line in enumerate(lines):
        match = _FENCE.fullmatch(line)
        if not match:
            continue
        if opened < 0:
            opened, fence = number, match[1]
        elif match[1][0] == fence[0] and len(match[1]) >= len(fence) and not match[2].strip():
            yield "\n".join(lines[opened + 1 : number]).strip("\n"), True
            opened = -1
    if opened >= 0:
        yield "\n".join(lines[opened + 1 :]).strip("\n"), False
