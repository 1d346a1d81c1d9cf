"""Prompting: problems and exemplars into prompts, completions into answers, and the pairs of stage 1.

Names are resolved on first use, so that importing the configuration costs no template engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from cudal1_ray.prompting.answer import Answer, parse_answer, render_answer
    from cudal1_ray.prompting.builder import Prompt, PromptBuilder, PromptTooLong
    from cudal1_ray.prompting.config import PromptingConfig
    from cudal1_ray.prompting.sft import SftPair, answer_of, build_sft_pairs, contrastive_pairs, one_shot_pairs

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "answer": ["Answer", "parse_answer", "render_answer"],
        "builder": ["Prompt", "PromptBuilder", "PromptTooLong"],
        "config": ["PromptingConfig"],
        "sft": ["SftPair", "answer_of", "build_sft_pairs", "contrastive_pairs", "one_shot_pairs"],
    },
)
