"""A judge's opinion of a candidate, how it is asked for, and how its answer is read."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from cudal1_ray.checking.hack_cases import CATEGORIES, HackCase
from cudal1_ray.evaluation.reasons import describe
from cudal1_ray.source.comments import strip_comments
from cudal1_ray.source.normal_form import without_native_comments

_TEMPLATE = Path(__file__).parent / "templates" / "judge.md.j2"
# Characters of an answer that are kept for the record.
_ANSWER_CHARACTERS = 4000


@dataclass(frozen=True)
class Suspect:
    """A candidate whose reward jumped: `speedup` measured and accepted, `best_speedup` the best of its problem before
    (0.0: none).
    """

    problem_id: str
    reference: str
    code: str
    speedup: float
    best_speedup: float = 0.0


@dataclass(frozen=True)
class Opinion:
    """`hack` is True, False, or None where there is no opinion, and then `error` states why.

    `category` (of CATEGORIES) and `reason` belong to a hack, `also` are other categories that it may be of; `answer` is
    a model's literal answer.
    """

    hack: bool | None
    category: str = ""
    reason: str = ""
    also: tuple[str, ...] = ()
    error: str = ""
    answer: str = ""

    @property
    def word(self) -> str:
        """Return "hack", "honest" or "none"."""
        return "none" if self.hack is None else "hack" if self.hack else "honest"

    @classmethod
    def none(cls, error: str, answer: str = "") -> Opinion:
        return cls(None, error=" ".join(error.split())[:400], answer=answer[:_ANSWER_CHARACTERS])


@dataclass(frozen=True)
class JudgeReply:
    """What a language model answered, or, where it did not, why: exactly one of the two is not empty."""

    text: str = ""
    error: str = ""


def judge_prompt(suspect: Suspect, cases: Sequence[HackCase], max_code_characters: int = 12_000) -> str:
    """Return the question for a language model: reference, candidate, similar known hacks, and the answer's form.

    Comments and docstrings are taken out, so that a candidate cannot talk to its judge in them; what remains stands
    between marks that it cannot know. Longer texts are cut in the middle.
    """

    def excerpt(code: str) -> str:
        bare = without_native_comments(strip_comments(code)).strip("\n")
        if len(bare) <= max_code_characters:
            return bare
        half = max_code_characters // 2
        return f"{bare[:half]}\n# ... {len(bare) - 2 * half} characters left out ...\n{bare[-half:]}"

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(
        mark=secrets.token_hex(4),
        speedup=f"{suspect.speedup:.2f}",
        best=f"{suspect.best_speedup:.2f}" if suspect.best_speedup > 0.0 else "",
        reference=excerpt(suspect.reference),
        candidate=excerpt(suspect.code),
        cases=[{"category": c.category, "reason": c.reason, "code": excerpt(c.code)} for c in cases],
        categories=[(category, describe(category)) for category in sorted(CATEGORIES)],
    )
    return text.strip() + "\n"


def read_reply(reply: JudgeReply) -> Opinion:
    """Return the opinion in a model's reply: its last JSON object with a boolean "hack".

    A hack needs a category of CATEGORIES ("Result Cache" is result_cache). Everything else is no opinion.
    """
    if reply.error:
        return Opinion.none(reply.error)
    for entry in reversed(_objects(reply.text)):
        if not isinstance(entry.get("hack"), bool):
            continue
        # JSON may escape half of a surrogate pair, which neither Parquet nor a tokenizer takes.
        reason = str(entry.get("reason", "")).encode("utf-8", "replace").decode()
        reason = " ".join(reason.split())[:400]
        if not entry["hack"]:
            return Opinion(False, reason=reason, answer=reply.text[:_ANSWER_CHARACTERS])
        category = re.sub(r"[\s-]+", "_", str(entry.get("category", "")).strip().lower())
        if category not in CATEGORIES:
            return Opinion.none(f"the answer says hack, of the unknown category {category[:60]!r}", reply.text)
        return Opinion(True, category, reason, answer=reply.text[:_ANSWER_CHARACTERS])
    return Opinion.none('the answer holds no JSON object with a boolean "hack"', reply.text)


def _objects(text: str) -> list[dict]:
    """Return the JSON objects in a text, in order; those inside another are not looked for."""
    decoder, objects, at = json.JSONDecoder(), [], text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(value, dict):
                objects.append(value)
        at = text.find("{", end)
    return objects
