"""The reward checker at work in a run: accepted candidates pass it before they count.

What was measured stays in the verdict journal; a judge's opinion is in `reviews.jsonl`, beside it and never mixed with
it. Only a confirmed hack changes what the run goes on with: the candidate counts as rejected, is a case of the run's
`hack_cases.parquet`, and no prompt shows it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cudal1_ray.checking import HackCases, JudgeReply, RewardChecker, Ruling, Suspect
from cudal1_ray.checking.checker import Ask
from cudal1_ray.config import Config
from cudal1_ray.evaluation import Verdict
from cudal1_ray.evaluation.verdict import one_line
from cudal1_ray.files import JsonLines
from cudal1_ray.problems import Problem
from cudal1_ray.rollout import GenerationRequest, SamplingParameters
from cudal1_ray.training.crew import Crew
from cudal1_ray.training.metrics import RunMetrics
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.sampling import EvaluatedSample

REVIEWS, CASES = "reviews.jsonl", "hack_cases.parquet"


class Reviewer:
    """Puts accepted candidates before the reward checker, and its rulings on record.

    Args:
        checker: rules on what was accepted.
        problems: by id, at least those of the samples.
        reviews: gets one row for every candidate that jumped or is a known hack.
        ask_exemplars: calls a method of the exemplar actor (`best_speedups`, `withhold`).
        metrics: counts jumps, hacks and missing opinions of the step.
    """

    def __init__(
        self,
        checker: RewardChecker,
        problems: Mapping[str, Problem],
        reviews: JsonLines,
        ask_exemplars: Callable[..., Any],
        metrics: RunMetrics,
    ):
        self._checker, self._problems, self._reviews = checker, problems, reviews
        self._ask_exemplars, self._metrics = ask_exemplars, metrics
        # A buffer taken over from another run may hold what this run's cases know to be hacks.
        confirmed = [case for case in checker.cases.hacks() if case.confirmed_by != "suite"]
        self._ask_exemplars("withhold", [(case.problem_id, case.code) for case in confirmed])

    def review(self, samples: Sequence[EvaluatedSample], label: str) -> list[EvaluatedSample]:
        """Return the same completions in the same order, confirmed hacks rejected with the category as the reason."""
        started = time.perf_counter()
        accepted = [j for j in samples if j.verdict.accepted]
        best = self._ask_exemplars("best_speedups", sorted({j.prompt.problem_id for j in accepted}))
        rulings = self._checker.rule([_suspect(j, self._problems, best) for j in accepted])
        self._record(rulings, label)
        if confirmed := [r.suspect for r in rulings if r.confirmed]:
            self._ask_exemplars("withhold", [(suspect.problem_id, suspect.code) for suspect in confirmed])
        self._metrics.add("busy_checker", time.perf_counter() - started)
        verdicts = {id(j): _ruled(j.verdict, ruling) for j, ruling in zip(accepted, rulings, strict=True)}
        return [dataclasses.replace(j, verdict=verdicts.get(id(j), j.verdict)) for j in samples]

    def _record(self, rulings: Sequence[Ruling], label: str) -> None:
        distinct = {ruling.case_id: ruling for ruling in rulings}.values()
        looked_at = [ruling for ruling in distinct if ruling.opinion is not None or ruling.confirmed]
        self._reviews.extend([review_row(ruling, label, self._checker.judge.name) for ruling in looked_at])
        opinions = [ruling.opinion.word for ruling in looked_at if ruling.opinion is not None]
        self._metrics.add("reward_jumps", sum(ruling.jump for ruling in distinct))
        self._metrics.add("judged_hacks", opinions.count("hack"))
        self._metrics.add("judged_honest", opinions.count("honest"))
        self._metrics.add("no_opinion", opinions.count("none"))
        self._metrics.add("confirmed_hacks", sum(ruling.confirmed for ruling in distinct))


def make_reviewer(
    config: Config, run: RunFolder, crew: Crew, problems: Mapping[str, Problem], metrics: RunMetrics
) -> Reviewer | None:
    """Return the reviewer with the configured reward checker; None, by default, where there is none."""
    settings = config.rewards.checker
    if settings.judge == "none":
        return None
    path = run.path / CASES
    cases = HackCases.open(path, settings.cases) if settings.cases else HackCases.open(path)
    reviews = JsonLines(run.path / REVIEWS)
    settled = [row["case_id"] for row in reviews if row["opinion"] in ("hack", "honest")]
    checker = RewardChecker(settings, cases, engine_judge(crew, config), settled)
    return Reviewer(checker, problems, reviews, crew.ask_exemplars, metrics)


def engine_judge(crew: Crew, config: Config) -> Ask:
    """Return a function that asks the run's own rollout engines, which must have nothing else to do: the policy judges
    itself.
    """
    settings = config.rewards.checker
    limit = settings.max_answer_tokens
    sampling = SamplingParameters(temperature=settings.temperature, max_tokens=limit, seed=config.seed)
    room = config.rollout.max_model_len - limit

    def ask(prompts: Sequence[str]) -> list[JudgeReply]:
        encoded = {f"judge/{number}": crew.encode_prompt(prompt) for number, prompt in enumerate(prompts)}
        replies = {
            request_id: JudgeReply(
                error=f"the question has {len(tokens)} tokens, rollout.max_model_len leaves room for {max(room, 0)}"
            )
            for request_id, tokens in encoded.items()
            if len(tokens) >= room
        }
        requests = [GenerationRequest(name, tokens) for name, tokens in encoded.items() if name not in replies]
        crew.rollouts.start(requests, sampling)
        while crew.rollouts.outstanding:
            for completion in crew.rollouts.collect():
                text = completion.text.strip()
                replies[completion.request_id] = JudgeReply(text=text) if text else JudgeReply(error="an empty answer")
        return [replies[name] for name in encoded]

    return ask


def review_row(ruling: Ruling, label: str, judge: str) -> dict[str, Any]:
    """Return what reviews.jsonl keeps of a ruling: the measurement, the judge's answer and the confirmation, each
    apart.
    """
    suspect, opinion = ruling.suspect, ruling.opinion
    return {
        "label": label,
        "problem_id": suspect.problem_id,
        "case_id": ruling.case_id,
        "speedup": suspect.speedup,
        "best_speedup": suspect.best_speedup,
        "jump": ruling.jump,
        "judge": judge if opinion else None,
        "opinion": opinion.word if opinion else None,
        "category": opinion.category if opinion else "",
        "reason": opinion.reason if opinion else "",
        "error": opinion.error if opinion else "",
        "answer": opinion.answer if opinion else "",
        "neighbours": [[neighbour.case.case_id, round(neighbour.similarity, 4)] for neighbour in ruling.neighbours],
        "confirmed_by": ruling.confirmed_by,
        "confirmed_category": ruling.category,
        "evidence": ruling.evidence,
        "code": suspect.code,
    }


def _suspect(sample: EvaluatedSample, problems: Mapping[str, Problem], best: Mapping[str, float]) -> Suspect:
    problem_id = sample.prompt.problem_id
    reference, code = problems[problem_id].source, sample.answer.code
    return Suspect(problem_id, reference, code, sample.verdict.credited_speedup, best[problem_id])


def _ruled(verdict: Verdict, ruling: Ruling) -> Verdict:
    if not ruling.confirmed:
        return verdict
    detail = one_line(f"reward checker, confirmed by {ruling.confirmed_by}: {ruling.evidence}")
    fields = {"status": "rejected", "reasons": (ruling.category,), "detail": detail, "credited_speedup": 0.0}
    return dataclasses.replace(verdict, **fields)
