"""From prompts to judged candidates: generation, parsing, compilation and evaluation, all four at once.

A completion is parsed the moment it leaves its engine, its candidate compiled and evaluated while the engines go on.
Everything finished is on disk before it counts, so that an interrupted step goes on with what it had.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cudal1_ray.evaluation import Verdict
from cudal1_ray.problems import Problem
from cudal1_ray.prompting import Answer, Prompt, parse_answer
from cudal1_ray.rollout import Completion, GenerationRequest, SamplingParameters
from cudal1_ray.training.crew import Crew
from cudal1_ray.training.journal import VerdictJournal
from cudal1_ray.training.judging import Judge
from cudal1_ray.training.metrics import RunMetrics
from cudal1_ray.training.progress import Progress
from cudal1_ray.training.run_folder import JsonLines, RunFolder


@dataclass(frozen=True)
class Judged:
    """One completion with its verdict. `group` is the index of its prompt, `index` its number in the group."""

    group: int
    index: int
    prompt: Prompt
    prompt_token_ids: tuple[int, ...]
    completion: Completion
    answer: Answer
    verdict: Verdict


@dataclass(frozen=True)
class _Request:
    """One completion that was asked for."""

    request_id: str
    group: int
    index: int


class Sampler:
    """Samples prompts and has every answer judged."""

    def __init__(self, crew: Crew, run: RunFolder, journal: VerdictJournal, metrics: RunMetrics, progress: Progress):
        self._crew, self._run, self._journal = crew, run, journal
        self._metrics, self._progress = metrics, progress

    def sample(
        self,
        prompts: Sequence[Prompt],
        problems: dict[str, Problem],
        n: int,
        sampling: SamplingParameters,
        scope: str,
        label: str,
    ) -> list[Judged]:
        """`n` completions of every prompt, judged, in the order (prompt, index).

        Args:
            prompts: one per group.
            problems: by id, at least those of the prompts.
            sampling: temperature, length, seed; its `n` is ignored: each completion is a request of its own.
            scope: of the verdict journal ("training" or "assessment").
            label: names this call; completions of an interrupted call with the same label are used again.
        """
        crew = self._crew
        started, rollout_s, evaluation_s = time.perf_counter(), crew.rollouts.busy_s, crew.evaluations.busy_s
        tokens = [crew.encode_prompt(prompt.text) for prompt in prompts]
        requests = [_Request(f"{label}/{g}/{i}", g, i) for g in range(len(prompts)) for i in range(n)]
        by_id = {request.request_id: request for request in requests}
        judge = Judge(crew, self._journal, self._progress, scope)
        store = _InFlight(self._run, label)
        answers: dict[str, tuple[Completion, Answer]] = {}

        def take(completion: Completion) -> None:
            request = by_id[completion.request_id]
            problem = problems[prompts[request.group].problem_id]
            answer = parse_answer(completion.text, require_analysis=crew.config.prompting.include_analysis)
            answers[request.request_id] = (completion, answer)
            if answer.code is None:
                verdict = Verdict.rejected(problem.problem_id, ("unparsable",), answer.error)
                judge.verdicts[request.request_id] = verdict
            else:
                judge.submit(request.request_id, problem, answer.code)

        for completion in store.finished:
            take(completion)
        crew.rollouts.start(
            [GenerationRequest(r.request_id, tokens[r.group]) for r in requests if r.request_id not in answers],
            dataclasses.replace(sampling, n=1),
        )
        while crew.rollouts.outstanding:
            for completion in crew.rollouts.collect():
                store.add(completion)
                take(completion)
            if crew.evaluate_during_generation:
                judge.release()
            judge.collect()
            self._progress.role("rollout", f"generating, {len(answers)}/{len(requests)} done")
            judge.show()
        self._progress.role("rollout", "idle")
        judge.finish()
        store.clear()
        self._measure(started, crew.rollouts.busy_s - rollout_s, crew.evaluations.busy_s - evaluation_s, judge, answers)
        return [
            Judged(
                request.group,
                request.index,
                prompts[request.group],
                tokens[request.group],
                *answers[request.request_id],
                judge.verdicts[request.request_id],
            )
            for request in requests
        ]

    def _measure(self, started: float, rollout_s: float, evaluation_s: float, judge: Judge, answers: dict) -> None:
        generated = sum(len(completion.token_ids) for completion, _ in answers.values())
        self._metrics.add("generated_tokens", generated)
        self._metrics.add("sampling_s", time.perf_counter() - started)
        self._metrics.add("busy_rollout", rollout_s)
        self._metrics.add("busy_evaluation", evaluation_s)
        self._metrics.add("evaluations", judge.evaluations)
        if rollout_s > 0:
            self._metrics.mean("tokens_per_s", generated / rollout_s)


class _InFlight:
    """Completions of the call under way, on disk: a killed step continues with those it had."""

    def __init__(self, run: RunFolder, label: str):
        self._label, self._lines = label, JsonLines(run.in_flight)
        mine = [row for row in self._lines if row["label"] == label]
        if len(mine) != len(self._lines):
            self._lines.keep(mine)
        self.finished = [_completion(row["completion"]) for row in mine]

    def add(self, completion: Completion) -> None:
        self._lines.append({"label": self._label, "completion": dataclasses.asdict(completion)})

    def clear(self) -> None:
        self._lines.keep([])


def _completion(row: dict) -> Completion:
    return Completion(**{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
