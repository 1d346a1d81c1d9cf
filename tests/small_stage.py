"""The first stage of a very small policy, for tests of what starts runs."""

from __future__ import annotations

STAGE_1 = [
    "problems.families=[swish_chain]",
    "policy.hidden_size=96",
    "policy.layers=1",
    "policy.heads=3",
    "policy.intermediate_size=128",
    "policy.vocab_size=600",
    "rollout=transformers",
    "stage=sft",
    "sft.drawn_members=0",
    "assessment.samples_per_problem=1",
    "assessment.held_out=false",
]
