"""From completions to rewards, the same way in every trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudal1_ray.closable import Closable
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import Verdict
from cudal1_ray.evaluation.verdict import candidate_hash
from cudal1_ray.integrations.evaluators import CandidateEvaluator, LocalEvaluator, RemoteEvaluator
from cudal1_ray.problems import Problem, parse_problem
from cudal1_ray.prompting import parse_answer
from cudal1_ray.rewards import RewardsConfig, verdict_reward


@dataclass(frozen=True)
class Score:
    """What one completion is worth.

    Attributes:
        reward: None for a void evaluation: the evaluator or the problem is at fault, and nothing should be learnt.
        verdict: the evaluator's, or a rejection as "unparsable" for a completion without a candidate.
    """

    reward: float | None
    verdict: Verdict

    def figures(self) -> dict[str, float | str]:
        """Return what a trainer may log of it."""
        reason = self.verdict.reasons[0] if self.verdict.reasons else ""
        return {
            "speedup": self.verdict.credited_speedup,
            "accepted": float(self.verdict.accepted),
            "own_kernel": float(self.verdict.accepted and self.verdict.own_kernel),
            "reason": reason,
        }


class CompletionScorer(Closable):
    """Scores completions: takes the candidate out of the text, evaluates it, and turns the verdict into a reward.

    Args:
        url: address of a `cudal1 serve`, whose evaluator is used; empty: this machine's device.
        key: API key of that server.
        device: "cuda" or "cpu", where there is no `url`.
        settings: overrides as on the command line, such as `["evaluation.rules.own_kernel=required"]`. With a `url`
            only those of `rewards.*` count: the server evaluates by its own settings.

    Raises:
        UserError: for a setting that does not exist.
    """

    def __init__(self, url: str = "", key: str = "", device: str = "cuda", settings: Sequence[str] = ()) -> None:
        from cudal1_ray.config import load_config

        config = load_config([f"evaluation={device}", "rewards=log_speedup", *settings])
        self.rewards: RewardsConfig = config.rewards
        self.evaluator: CandidateEvaluator = RemoteEvaluator(url, key) if url else LocalEvaluator(config.evaluation)

    def score(self, problems: Sequence[str | Problem], completions: Sequence[str]) -> list[Score]:
        """Return a score for each completion, in order. Equal candidates of one problem are evaluated once.

        Args:
            problems: one for each completion: a KernelBench file's text, or a `Problem`.
            completions: what a policy wrote.

        Raises:
            UserError: for a text that is no problem.
        """
        parsed = [_as_problem(problem) for problem in problems]
        answers = [parse_answer(text, require_analysis=False) for text in completions]
        pairs = {
            (problem.problem_id, candidate_hash(answer.code)): (problem, answer.code)
            for problem, answer in zip(parsed, answers, strict=True)
            if answer.code is not None
        }
        verdicts = dict(zip(pairs, self.evaluator.evaluate_all(list(pairs.values())), strict=True))
        scores = []
        for problem, answer in zip(parsed, answers, strict=True):
            if answer.code is None:
                verdict = Verdict.unparsable(problem.problem_id, answer.error)
            else:
                verdict = verdicts[problem.problem_id, candidate_hash(answer.code)]
            scores.append(Score(verdict_reward(verdict, self.rewards), verdict))
        return scores

    def close(self) -> None:
        """End the evaluator's processes; calling it twice is fine."""
        self.evaluator.close()


def _as_problem(problem: str | Problem) -> Problem:
    if isinstance(problem, Problem):
        return problem
    if not isinstance(problem, str):
        raise UserError(f"problem: {problem!r:.60} is no text; give the text of a KernelBench file")
    return parse_problem(problem, f"problem-{candidate_hash(problem)[:12]}", origin="problem")
