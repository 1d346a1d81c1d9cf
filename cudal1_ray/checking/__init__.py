"""Checking candidates for hacks: known cases, re-checks that run nothing, and a judge where one is configured.

Names are resolved on first use, so that importing the configuration costs no numpy and no pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from cudal1_ray.checking.checker import NeighbourJudge, RewardChecker, Ruling
    from cudal1_ray.checking.config import CheckerConfig, JudgeEndpointConfig
    from cudal1_ray.checking.hack_cases import HackCase, HackCases
    from cudal1_ray.checking.opinions import JudgeReply, Opinion, Suspect
    from cudal1_ray.checking.served_exemplars import ServedExemplars, served_buffers

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "checker": ["NeighbourJudge", "RewardChecker", "Ruling"],
        "config": ["CheckerConfig", "JudgeEndpointConfig"],
        "hack_cases": ["HackCase", "HackCases"],
        "opinions": ["Opinion", "JudgeReply", "Suspect"],
        "served_exemplars": ["ServedExemplars", "served_buffers"],
    },
)
