"""What the learner trains on: one prompt with one completion, as tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingSequence:
    """One prompt and one completion of it. Only the completion's tokens are trained on.

    Attributes:
        prompt_token_ids: at least one token.
        completion_token_ids: at least one token, the end token included where the policy wrote one.
        sampling_logprobs: natural log-probability of each completion token under the distribution it was sampled
            from; empty for supervised fine-tuning, where nothing was sampled.
        advantage: that of the whole completion; each of its tokens is given it.
        weight: share of this sequence in the loss, and in the loss's denominator; 0 leaves it out.
        policy_version: version of the policy that wrote the completion.
        group: number of its prompt in the batch: minibatches keep groups whole. -1: of no group.
    """

    prompt_token_ids: tuple[int, ...]
    completion_token_ids: tuple[int, ...]
    sampling_logprobs: tuple[float, ...] = ()
    advantage: float = 1.0
    weight: float = 1.0
    policy_version: int = 0
    group: int = -1

    def __len__(self) -> int:
        """Return the number of tokens of prompt and completion together."""
        return len(self.prompt_token_ids) + len(self.completion_token_ids)
