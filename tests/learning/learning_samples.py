"""A small shape and sequences in its tokens, for tests in this process and in others."""

from __future__ import annotations

import torch

from cudal1_ray.learning import PolicyConfig, TrainingSequence

TEXTS = [f"def f{i}(x):\n    return x * {i}\n\nclass Model(nn.Module):\n    pass\n" for i in range(20)]
SHAPE = PolicyConfig(
    kind="scratch", hidden_size=32, layers=2, heads=1, intermediate_size=64, vocab_size=300, max_position=64
)


def some_sequences(count: int, seed: int = 0, sampled: bool = False) -> list[TrainingSequence]:
    """Return prompts and completions of many lengths; advantages alternate in sign where `sampled`."""
    generator = torch.Generator().manual_seed(seed)

    def tokens(low: int, high: int) -> tuple[int, ...]:
        length = int(torch.randint(low, high, (1,), generator=generator))
        return tuple(torch.randint(3, 259, (length,), generator=generator).tolist())

    sequences = []
    for i in range(count):
        prompt, completion = tokens(1, 20), tokens(1, 25)
        logprobs = tuple(-5.0 - 0.01 * j for j in range(len(completion))) if sampled else ()
        sequences.append(TrainingSequence(prompt, completion, logprobs, (-1.0) ** i * (1 + i % 3) if sampled else 1.0))
    return sequences
