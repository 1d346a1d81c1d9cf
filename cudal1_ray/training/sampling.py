"""From prompts to evaluated samples: generation, parsing, compilation and evaluation, all four at once.

A completion is parsed the moment it leaves its engine, its candidate compiled and evaluated while the engines go on.
Everything finished is on disk before it counts, so that an interrupted step goes on with what it had.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cudal1_ray.evaluation import Verdict
from cudal1_ray.exemplars import exemplar_id
from cudal1_ray.problems import Problem
from cudal1_ray.prompting import Answer, Prompt, parse_answer
from cudal1_ray.prompting.code_blocks import find_blocks
from cudal1_ray.rollout import Completion, GenerationRequest, SamplingParameters
from cudal1_ray.source.renaming import same_except_names
from cudal1_ray.training.crew import Crew
from cudal1_ray.training.in_flight import InFlight, StepInFlight
from cudal1_ray.training.journal import VerdictJournal
from cudal1_ray.training.metrics import RunMetrics
from cudal1_ray.training.progress import IDLE, Progress
from cudal1_ray.training.quota import Quota
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.verdict_collector import VerdictCollector


@dataclass(frozen=True)
class EvaluatedSample:
    """One completion with its verdict. `group` is the index of its prompt, `index` its number in the group.

    `turn` counts from 0; a completion of a later turn has the group of its first, and `revises` is the (group, index)
    of the one that its prompt shows.
    """

    group: int
    index: int
    prompt: Prompt
    prompt_token_ids: tuple[int, ...]
    completion: Completion
    answer: Answer
    verdict: Verdict
    turn: int = 0
    revises: tuple[int, int] | None = None

    @property
    def truncated(self) -> bool:
        """Return whether the completion was cut at its token limit before its code was complete.

        Half a class can be Python: it builds, or fails as a finished one would, and is no attempt all the same.
        """
        cut = self.completion.finish_reason == "length" and not self.verdict.accepted
        return cut and (self.answer.code is None or self.answer.open_ended)

    @property
    def copied(self) -> bool:
        """Return whether the candidate is one of the exemplars that its prompt shows; comments, formatting, imports
        and the names that it binds aside.
        """
        code, prompt = self.answer.code, self.prompt
        if not code or not prompt.exemplar_ids:
            return False
        if exemplar_id(prompt.problem_id, code) in prompt.exemplar_ids:
            return True
        return any(same_except_names(code, exemplar) for exemplar in _exemplars_of(prompt))


@functools.lru_cache(maxsize=256)
def _exemplars_of(prompt: Prompt) -> tuple[str, ...]:
    """Return the code of the exemplars that a prompt shows."""
    blocks = (block.text for block in find_blocks(prompt.text.split("\n")))
    return tuple(code for code in blocks if exemplar_id(prompt.problem_id, code) in prompt.exemplar_ids)


@dataclass(frozen=True)
class Plan:
    """What a step asks for.

    Attributes:
        label: names the step; completions of an interrupted one with the same label and prompts are used again.
        prompts: one per group.
        n: completions wanted of each.
        sampling: temperature, length, seed; its `n` is ignored: each completion is a request of its own.
        extra_groups: prompts that may go without, those whose completions finish last.
        extra_completions: asked for in each group beyond `n`: the first `n` to finish are taken.
    """

    label: str
    prompts: tuple[Prompt, ...]
    n: int
    sampling: SamplingParameters
    extra_groups: int = 0
    extra_completions: int = 0


@dataclass(frozen=True)
class _CompletionRequest:
    """One completion that was asked for."""

    request_id: str
    group: int
    index: int


class SampleBatch:
    """One step's completions, from their prompts to their verdicts. One batch at a time has the engines.

    Args:
        problems: by id, at least those of the prompts.
        collector: takes the candidates; may serve other batches as well.
        in_flight: what is on disk of this step.

    Attributes:
        figures: for the metrics, complete once the batch is evaluated.
    """

    def __init__(
        self, crew: Crew, plan: Plan, problems: dict[str, Problem], collector: VerdictCollector, in_flight: StepInFlight
    ):
        self.plan, self.figures = plan, {"evaluations": 0.0, "generated_tokens": 0.0}
        self._crew, self._problems, self._collector, self._in_flight = crew, problems, collector, in_flight
        self._tokens = [crew.encode_prompt(prompt.text) for prompt in plan.prompts]
        group_size = plan.n + plan.extra_completions
        self._requests = {
            request.request_id: request
            for g in range(len(plan.prompts))
            for i in range(group_size)
            for request in (_CompletionRequest(f"{plan.label}/{g}/{i}", g, i),)
        }
        self._quota = Quota(len(plan.prompts) - plan.extra_groups, plan.n)
        self._answers: dict[str, tuple[Completion, Answer]] = {}
        self._started, self._busy_before = time.perf_counter(), crew.rollouts.busy_s
        self._in_flight.begin(plan.prompts, group_size, plan.sampling.temperature)
        for completion in list(in_flight.completions):
            self._take(completion)
        finished = {completion.request_id for completion in in_flight.completions}
        open_requests = [] if self.generated else [r for r in self._requests.values() if r.request_id not in finished]
        open_requests = [r for r in open_requests if not self._quota.filled(r.group)]
        crew.rollouts.start(
            [GenerationRequest(r.request_id, self._tokens[r.group]) for r in open_requests],
            dataclasses.replace(plan.sampling, n=1),
        )
        if not open_requests:
            crew.rollouts.rest()  # engines that took weights are awake, and with nothing to generate no call rests them

    @property
    def generated(self) -> bool:
        """Return whether every completion that counts is there."""
        return self._quota.full

    @property
    def evaluated(self) -> bool:
        """Return whether every completion that counts has its verdict."""
        return self.generated and all(key in self._collector.verdicts for key in self._quota.chosen)

    @property
    def progress(self) -> str:
        return f"{len(self._answers)}/{self._quota.groups * self._quota.n}"

    def take(self, completions: Sequence[Completion]) -> None:
        """Take in what the engines finished; give up what is then no longer wanted."""
        for completion in completions:
            self._in_flight.add(completion)
            self._take(completion)
        surplus = [
            request.request_id
            for request in self._requests.values()
            if request.request_id not in self._answers and (self.generated or self._quota.filled(request.group))
        ]
        if completions and surplus:
            aborted = self._crew.rollouts.abort(surplus)
            self.figures["aborted_completions"] = self.figures.get("aborted_completions", 0.0) + aborted
        if self.generated and "generation_s" not in self.figures:
            busy_s = self._crew.rollouts.busy_s - self._busy_before
            self.figures["generation_s"] = time.perf_counter() - self._started
            if busy_s > 0:
                self.figures["tokens_per_s"] = self.figures["generated_tokens"] / busy_s

    def result(self) -> list[EvaluatedSample]:
        """Return the completions that count, in the order (prompt, index)."""
        self.figures["sampling_s"] = time.perf_counter() - self._started
        self.figures["surplus_completions"] = float(len(self._answers) - len(self._quota.chosen))
        chosen = [self._requests[key] for key in self._requests if key in self._quota.chosen]
        return [
            EvaluatedSample(
                request.group,
                request.index,
                self.plan.prompts[request.group],
                self._tokens[request.group],
                *self._answers[request.request_id],
                self._collector.verdicts[request.request_id],
            )
            for request in chosen
        ]

    def _take(self, completion: Completion) -> None:
        request = self._requests[completion.request_id]
        problem = self._problems[self.plan.prompts[request.group].problem_id]
        text = self._crew.thought_prefix + completion.text
        answer = parse_answer(text, require_analysis=self._crew.config.prompting.include_analysis)
        self._answers[request.request_id] = (completion, answer)
        self.figures["generated_tokens"] += len(completion.token_ids)
        if not self._quota.take(request.group, request.request_id):
            return
        if answer.code is None:
            verdict = Verdict.unparsable(problem.problem_id, answer.error)
            self._collector.verdicts[request.request_id] = verdict
        else:
            self.figures["evaluations"] += self._collector.submit(request.request_id, problem, answer.code)


class Sampler:
    """Samples prompts and has every answer evaluated.

    Attributes:
        beside: candidates of another scope that are evaluated while batches are sampled; None: there are none.
    """

    def __init__(self, crew: Crew, run: RunFolder, journal: VerdictJournal, metrics: RunMetrics, progress: Progress):
        self._crew, self._journal, self._metrics, self._progress = crew, journal, metrics, progress
        self.in_flight = InFlight(run.in_flight)
        self.beside: VerdictCollector | None = None

    def sample(
        self,
        prompts: Sequence[Prompt],
        problems: dict[str, Problem],
        n: int,
        sampling: SamplingParameters,
        scope: str,
        label: str,
    ) -> list[EvaluatedSample]:
        """Return `n` completions of every prompt, evaluated, in the order (prompt, index). Nothing else may be under
        way.

        Args:
            prompts: one per group.
            problems: by id, at least those of the prompts.
            sampling: temperature, length, seed; its `n` is ignored: each completion is a request of its own.
            scope: part of the verdict journal ("training" or "assessment").
            label: names this call; completions of an interrupted call with the same label are used again, where it
                asked for as many of the same prompts at the same temperature.
        """
        self.in_flight.keep([label], among=label.partition("/")[0])  # not of the steps since the last checkpoint
        collector = self.collector(scope)
        batch = self.begin(Plan(label, tuple(prompts), n, sampling), problems, collector)
        while not batch.evaluated:
            self.advance(batch, collector)
        samples = batch.result()
        self.report(batch)
        return samples

    def collector(self, scope: str) -> VerdictCollector:
        return VerdictCollector(self._crew, self._journal, self._progress, scope, self.beside)

    def begin(self, plan: Plan, problems: dict[str, Problem], collector: VerdictCollector) -> SampleBatch:
        """Hand a plan to the engines, without what is on disk of it already."""
        collector.begin_batch()
        return SampleBatch(self._crew, plan, problems, collector, self.in_flight.step(plan.label))

    def advance(self, generating: SampleBatch | None, collector: VerdictCollector, patience_s: float = 0.01) -> None:
        """Move everything on: what engines, compilers and evaluators have finished goes where it is wanted next."""
        crew, moved = self._crew, 0
        if generating is not None and not generating.generated:
            completions = crew.rollouts.collect()
            generating.take(completions)
            moved = 1  # `collect` has waited
            doing = IDLE if generating.generated else f"generating, {generating.progress} done"
            self._progress.role("rollout", doing)
        else:
            self._progress.role("rollout", IDLE)
        if crew.evaluate_during_generation:
            collector.release()
        elif generating is None or generating.generated:
            crew.rollouts.settle()  # the device is the evaluator's once nothing that was given up still runs
            collector.release()
        moved += collector.collect()
        collector.show()
        if not moved:
            time.sleep(patience_s)  # the core belongs to the evaluator

    def report(self, batch: SampleBatch) -> None:
        """Add an evaluated batch's figures to the step's metrics."""
        for key, value in batch.figures.items():
            (self._metrics.mean if key == "tokens_per_s" else self._metrics.add)(key, value)
