"""The three-part answer: written for stage 1, and read back out of whatever a policy wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cudal1_ray.prompting.code_blocks import find_blocks, longest_fence, program_around

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
# The marks of thoughts in the spellings of open models: "<think>" and its like, in Seed-OSS with a prefix; "[THINK]" in
# Magistral; "<|begin_of_thought|>" in OpenThinker; "<|START_THINKING|>" in Command A. gpt-oss answers in the channel
# "final"; a decoder that drops special tokens leaves "assistantfinal" of its marks.
_THOUGHT_TAG = r"(?:seed:)?(?:think|thinking|thought|reasoning)"
_THOUGHT_MARK = (
    rf"[^\S\n]*(?:<{_THOUGHT_TAG}>|\[think\]|<\|(?:begin_of_thought|start_thinking)\|>"
    r"|(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary))"
)
_THOUGHT_BEGINS = re.compile(rf"^(?:{_THOUGHT_MARK})+", re.IGNORECASE | re.MULTILINE)
# What begins a thought, or a block, from which on a mark is code.
_THOUGHT_OR_FENCE = re.compile(rf"^(?:[ \t]*(?P<fence>`{{3}}|~{{3}})|{_THOUGHT_MARK})", re.IGNORECASE | re.MULTILINE)
_THOUGHT_ENDS = re.compile(
    rf"</{_THOUGHT_TAG}>|\[/think\]|<\|end_(?:of_thought|thinking)\|>"
    r"|<\|channel\|>final\s*<\|message\|>|assistantfinal",
    re.IGNORECASE,
)
# A special token that a decoder printed at the end of the text, such as <|return|> or <|im_end|>.
_END_TOKEN = re.compile(r"<\|\w{1,30}\|>\Z")
# Faults of code that ends where the text does.
UNCLOSED, UNFENCED = "the code block is not closed", "the code is in no fenced block"
_MODEL_NEW = re.compile(r"^[ \t]*(?:class[ \t]+ModelNew\b|ModelNew[ \t]*=)", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """What a completion holds.

    code: the candidate, or None when no text that defines `ModelNew` was found. error: "" for an answer with
    all its parts, else one line naming every part that is missing or broken; code can be there all the same,
    and is worth evaluating. open_ended: the text ends within the code, which may go on.
    """

    code: str | None
    analysis: str
    design: str
    error: str
    open_ended: bool = False


def render_answer(analysis: str, design: str, code: str, *, include_analysis: bool = True) -> str:
    """Return the answer as a policy should write it, without a line break where the end-of-text token belongs.

    `parse_answer` gives back the three parts (outer blank space aside). A line of the texts that looks like
    one of the headers loses its marks; code that holds a fence of its own gets a longer one.
    """
    code = _lines_only(code).strip("\n")
    fence = "`" * max(3, longest_fence(code) + 1)
    parts = [f"## {ANALYSIS}\n{tidy(analysis)}"] if include_analysis else []
    parts += [f"## {DESIGN}\n{tidy(design)}", f"## {CODE}\n{fence}python\n{code}\n{fence}"]
    return "\n".join(parts)


def tidy(text: str) -> str:
    """Return a text part as it survives a round trip: without outer blank space, marks of thoughts, and lines that look
    like a header.
    """
    lines = _THOUGHT_BEGINS.sub("", _lines_only(text)).strip().split("\n")
    tidied = [header[1] if (header := _HEADER.fullmatch(line)) else line for line in lines]
    return "\n".join(tidied).strip()


def parse_answer(text: str, *, require_analysis: bool = True) -> Answer:
    """Return the answer in any text, in time linear in its length; raise nothing.

    The parts are looked for in their order. The code is the first fenced block that defines `ModelNew`, in
    the code part if there is one, else anywhere, with the blocks that define what it uses; an unclosed last block
    counts, and so does a code part without any fence. What a reasoning model thought aloud (up to `</think>` or its
    like, before its answer or between its parts) is skipped: a thought that never ends, or that nothing follows, holds
    drafts and no answer.
    An answer that is quoted, with `>` before each of its lines, is read without these marks.
    """
    answer = _without_thoughts(_END_TOKEN.sub("", _unquoted(_lines_only(text)).rstrip()))
    if answer is None:
        return Answer(None, "", "", "the thinking has not ended, or nothing follows it")
    lines = answer.split("\n")
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
    return Answer(code, analysis, design, "; ".join(problems), open_ended=fault in (UNCLOSED, UNFENCED))


def _lines_only(text: str) -> str:
    # Python, too, takes all three for the end of a line.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _unquoted(text: str) -> str:
    """Return the text without the marks of a quotation, where every line with text has one."""
    lines = text.split("\n")
    for mark in ("> ", ">"):
        if all(line.startswith(mark) for line in lines if line.strip("> ")):
            return "\n".join(line[len(mark) :] for line in lines)
    return text


def _without_thoughts(text: str) -> str | None:
    """Return the text without the thoughts before its first fence; None where there is nothing else."""
    end = None if _HEADER.match(text.lstrip()) else _THOUGHT_ENDS.search(text)
    answer = text[end.end() :] if end else text  # the mark that began this thought may be in the prompt
    kept, start = [], 0
    while (mark := _THOUGHT_OR_FENCE.search(answer, start)) and not mark["fence"]:
        kept.append(answer[start : mark.start()])
        end = _THOUGHT_ENDS.search(answer, mark.end())
        start = end.end() if end else len(answer)
    rest = "".join([*kept, answer[start:]])
    return rest if rest.strip() or rest == text else None


def _find_parts(lines: list[str]) -> dict[str, int]:
    """Return the line number of each part's header, the first that comes after the header of the part before it.

    The search ends with the code header: below it, a line such as `## Algorithm Design` is a Python comment.
    """
    starts: dict[str, int] = {}
    for number, line in enumerate(lines):
        match = _HEADER.fullmatch(line)
        if not match:
            continue
        part = match[1].title()
        if part in starts or any(later in starts for later in PARTS[PARTS.index(part) :]):
            continue
        starts[part] = number
        if part == CODE:
            break
    return starts


def _text_part(lines: list[str], start: dict[str, int], part: str) -> str:
    if part not in start:
        return ""
    end = min((at for at in start.values() if at > start[part]), default=len(lines))
    return "\n".join(lines[start[part] + 1 : end]).strip()


def _find_code(lines: list[str], in_code_part: bool) -> tuple[str | None, str]:
    """Return the candidate in these lines and what is wrong with how it was given ("" for nothing)."""
    blocks = find_blocks(lines)
    for number, block in enumerate(blocks):
        if _MODEL_NEW.search(block.text):
            code, closed = program_around(blocks, number) if len(blocks) > 1 else (block.text, block.closed)
            return code, "" if closed else UNCLOSED
    if blocks:
        return None, "the code block defines no ModelNew"
    bare = "\n".join(lines).strip("\n")
    if in_code_part and _MODEL_NEW.search(bare):
        return bare, UNFENCED
    return None, "no code block"
