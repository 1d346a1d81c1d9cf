"""What engines write at temperature 0, held against Transformers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from cudal1_ray.actors.rollout import RolloutFleet
from cudal1_ray.rollout import Completion, GenerationRequest, SamplingParameters


def generate(
    rollouts: RolloutFleet, prompts: Sequence[tuple[int, ...]], sampling: SamplingParameters
) -> list[Completion]:
    """Return a completion of each prompt, in their order."""
    rollouts.start([GenerationRequest(f"r{i}", prompt) for i, prompt in enumerate(prompts)], sampling)
    completions, deadline = {}, time.monotonic() + 400
    while rollouts.outstanding:
        assert time.monotonic() < deadline
        completions.update({c.request_id: c for c in rollouts.collect()})
    return [completions[f"r{i}"] for i in range(len(prompts))]


def check_greedy(rollouts: RolloutFleet, policy: Path, prompts: Sequence[tuple[int, ...]]) -> list[Completion]:
    """Assert that an engine writes, token for token, what Transformers does with `policy`; return the completions."""
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).eval()
    completions = generate(rollouts, prompts, SamplingParameters(n=1, temperature=0.0, max_tokens=16))
    for completion, prompt in zip(completions, prompts, strict=True):
        ids = list(prompt)
        for token in completion.token_ids:
            with torch.no_grad():
                assert token == int(model(torch.tensor([ids])).logits[0, -1].argmax())
            ids.append(token)
    return completions
