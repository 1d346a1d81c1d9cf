"""Prompting: problems and exemplars into prompts, completions into answers, and the pairs of stage 1.

Names are resolved on first use, so that importing the configuration costs no template engine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudal1_ray.prompting.answer import Answer, parse_answer, render_answer
    from cudal1_ray.prompting.builder import Prompt, PromptBuilder, PromptTooLong
    from cudal1_ray.prompting.comments import strip_comments
    from cudal1_ray.prompting.config import PromptingConfig
    from cudal1_ray.prompting.sft import SftPair, answer_of, build_sft_pairs, contrastive_pairs, one_shot_pairs

_HOME = {
    "Answer": "answer",
    "parse_answer": "answer",
    "render_answer": "answer",
    "Prompt": "builder",
    "PromptBuilder": "builder",
    "PromptTooLong": "builder",
    "strip_comments": "comments",
    "PromptingConfig": "config",
    "SftPair": "sft",
    "answer_of": "sft",
    "build_sft_pairs": "sft",
    "contrastive_pairs": "sft",
    "one_shot_pairs": "sft",
}

__all__ = [
    "Answer",
    "Prompt",
    "PromptBuilder",
    "PromptTooLong",
    "PromptingConfig",
    "SftPair",
    "answer_of",
    "build_sft_pairs",
    "contrastive_pairs",
    "one_shot_pairs",
    "parse_answer",
    "render_answer",
    "strip_comments",
]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
