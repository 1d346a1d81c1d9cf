"""A reward function for TRL's GRPOTrainer.

    from trl import GRPOConfig, GRPOTrainer
    from cudal1_ray.integrations.trl import KernelReward

    reward = KernelReward(device="cuda")           # or KernelReward(url="http://gpu-host:8000")
    GRPOTrainer(model, reward_funcs=reward, train_dataset=dataset, args=GRPOConfig(...)).train()

The data set has a column `problem` with the text of a KernelBench file, beside `prompt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.integrations.rewards import CompletionScorer


class KernelReward:
    """Callable as TRL calls reward functions; takes what `CompletionScorer` takes."""

    __name__ = "kernel_reward"  # under which TRL logs it

    def __init__(self, url: str = "", key: str = "", device: str = "cuda", settings: Sequence[str] = ()) -> None:
        self._scorer = CompletionScorer(url, key, device, settings)

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], problem: Sequence[str] | None = None, **columns: Any
    ) -> list[float | None]:
        """Return a reward for each completion; None for a void evaluation, which TRL leaves out.

        Args:
            prompts: ignored; TRL passes them.
            completions: texts, or conversations (lists of messages), of which the last message counts.
            problem: the data set's column, one text for each completion.
            columns: further columns and TRL's own arguments; `log_metric` is used where TRL passes it.

        Raises:
            UserError: for a data set without that column, and for a text that is no problem.
        """
        if problem is None:
            raise UserError("the data set has no column `problem`; add one with the text of a KernelBench file")
        scores = self._scorer.score(problem, [_text(completion) for completion in completions])
        log_metric = columns.get("log_metric")
        if log_metric is not None and scores:
            for name in ("accepted", "own_kernel", "speedup"):
                log_metric(name, sum(float(score.figures()[name]) for score in scores) / len(scores))
        return [score.reward for score in scores]

    def close(self) -> None:
        """End the evaluator's processes."""
        self._scorer.close()


def _text(completion: Any) -> str:
    return completion if isinstance(completion, str) else str(completion[-1]["content"])
