"""Rounds of contrastive prompting for one module (CUDA-L1, arXiv 2507.14111, stage 3 without the learning).

First the module itself is evaluated, and what a run knows of it is measured here. Each round then shows the policy
earlier candidates with their speedups and has its answers evaluated. `winner.py` makes the final report.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from cudal1_ray.evaluation import Verdict
from cudal1_ray.evaluation.reasons import PROBLEM_FAULTS
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, ExemplarsConfig, exemplar_id, select
from cudal1_ray.problems import Problem
from cudal1_ray.prompting import PromptBuilder, parse_answer
from cudal1_ray.rewards import is_void
from cudal1_ray.rewards.reward import VOID_REASONS
from cudal1_ray.serving.access.scrubbing import scrub
from cudal1_ray.serving.optimize.costs import Costs
from cudal1_ray.serving.optimize.jobs import JobSettings

# Candidates per drawn set of exemplars: several sets a round, several answers to each.
PER_PROMPT = 4
# Characters of an analysis in events and results.
SHOWN_CHARACTERS = 4000

Emit = Callable[[dict[str, Any]], None]


class ModuleFault(Exception):
    """The module itself cannot be worked on; the message states why, in one line."""


class WrittenAnswer(Protocol):
    """One completion: its text, and how many tokens it took."""

    text: str
    tokens: int


class Tools(Protocol):
    """The policy and the evaluator, wherever they live."""

    async def write(self, prompt: str, n: int, temperature: float, seed: int) -> Sequence[WrittenAnswer]:
        """Return up to `n` answers to one prompt."""
        ...

    async def evaluate(self, problem: Problem, code: str, best_speedup: float) -> Verdict: ...

    async def check(self, problem: Problem) -> Verdict:
        """Evaluate the module as a candidate of its own."""
        ...

    async def against(self, problem: Problem, code: str, baseline: str) -> Verdict: ...

    async def device_name(self) -> str: ...


@dataclass(frozen=True)
class SpeedupGoals:
    """What counts as faster, how surely, and than what.

    against: the baseline that speedups are of. baselines: what the winner is measured against besides.
    """

    temperature: float
    min_speedup: float
    confirm: int
    seed: int
    include_analysis: bool
    against: str = "eager"
    baselines: tuple[str, ...] = ()


@dataclass(frozen=True)
class PriorExemplars:
    """What a run has found for the same problem; `origin` is the run's name."""

    exemplars: tuple[Exemplar, ...] = ()
    origin: str = ""


@dataclass
class JobRecord:
    """What policies wrote about candidates: (analysis, design) by candidate, and how many were written."""

    texts: dict[str, tuple[str, str]] = field(default_factory=dict)
    candidates: int = 0
    rounds: int = 0
    note: str = ""  # about the module, where there is something to know
    device_name: str = ""  # what it is measured on, as its maker calls it
    void: list[str] = field(
        default_factory=list
    )  # details of evaluations that failed through no fault of their candidates


class Optimizer:
    """One job, from its first prompt to its last round. It may be begun again with the buffer and events of before."""

    def __init__(
        self,
        problem: Problem,
        settings: JobSettings,
        aims: SpeedupGoals,
        tools: Tools,
        prompts: PromptBuilder,
        exemplars: ExemplarsConfig,
        buffer: ExemplarBuffer,
        emit: Emit,
        before: Sequence[dict[str, Any]] = (),
        prior: PriorExemplars = PriorExemplars(),
    ):
        self.problem, self._settings, self.aims, self._tools = problem, settings, aims, tools
        self._prompts, self._exemplars, self.buffer, self.emit = prompts, exemplars, buffer, emit
        self._before, self._prior = before, prior
        self._evaluated = {exemplar.exemplar_id for exemplar in buffer.of(problem.problem_id)}
        candidates = [event for event in before if event["type"] == "candidate"]
        evaluated = [event for event in candidates if event.get("candidate") and event["status"] != "known"]
        self.record = JobRecord(
            {event["candidate"]: (event["analysis"], event["design"]) for event in evaluated},
            len(candidates),
            sum(event["type"] == "round" for event in before),
            next((event["note"] for event in before if event["type"] == "module"), ""),
            next((event["device_name"] for event in before if event["type"] == "module"), ""),
            [
                event["detail"]
                for event in before
                if event["type"] != "module" and not VOID_REASONS.isdisjoint(event.get("reasons", ()))
            ],
        )
        self.costs = Costs.after(before)
        self._started = time.monotonic()

    async def run(self) -> None:
        """Work until the rounds, the time or the tokens are used up.

        Raises:
            ModuleFault: when the module itself does not run, or nothing could be measured against it.
            PromptTooLong: when it alone fills the prompt.
        """
        try:
            async with asyncio.timeout(self.left_s()):
                await self._begin()
                for number in range(self.record.rounds, self._settings.rounds):
                    if 0 < self._settings.max_tokens <= self.costs.completion_tokens:
                        self.emit({"type": "token_limit"} | self.costs.so_far(self.spent_s()))
                        break
                    await self._round(number)
        except TimeoutError:
            self.emit({"type": "time_limit"} | self.costs.so_far(self.spent_s()))
        finally:
            self._save()

    def spent_s(self) -> float:
        """Return the seconds of work on this job, attempts before a restart included."""
        return round(self.costs.before_s + time.monotonic() - self._started, 3)

    def left_s(self) -> float:
        return max(0.0, self._settings.time_limit_s - self.spent_s())

    async def evaluate(self, code: str, best_speedup: float) -> Verdict:
        """Evaluate a candidate and count it. Raises ModuleFault when it is the module that fails."""
        began = time.monotonic()
        verdict = await self._tools.evaluate(self.problem, code, best_speedup)
        self.costs.evaluated(time.monotonic() - began)
        if is_void(_unless_fault(verdict)):
            self.record.void.append(scrub(verdict.detail))
        return verdict

    async def against(self, code: str, baseline: str) -> Verdict:
        """Evaluate a candidate beside another baseline, which may fail by itself."""
        began = time.monotonic()
        verdict = await self._tools.against(self.problem, code, baseline)
        self.costs.evaluated(time.monotonic() - began)
        return verdict

    async def _begin(self) -> None:
        done = {event["type"] for event in self._before}
        if "module" not in done:
            began = time.monotonic()
            verdict = _unless_fault(await self._tools.check(self.problem))
            self.costs.evaluated(time.monotonic() - began)
            if not verdict.accepted:
                reason = f"{', '.join(verdict.reasons)}: {scrub(verdict.detail)}"
                self.record.note = f"the module does not pass as a candidate of its own ({reason})"
            name = self.record.device_name = await self._tools.device_name()
            self.emit({"type": "module", "note": self.record.note, "device_name": name} | described(verdict))
        if "round" not in done:
            await together([self._measure_known(exemplar) for exemplar in self._prior.exemplars])

    async def _measure_known(self, exemplar: Exemplar) -> None:
        """Measure an exemplar of a run here: only what is fast on this device counts."""
        identity = self.problem.problem_id
        candidate = exemplar_id(identity, exemplar.code)
        if candidate in self._evaluated:
            return
        self._evaluated.add(candidate)
        verdict = await self.evaluate(exemplar.code, exemplar.speedup)
        if not is_void(verdict):
            speedup, reasons = verdict.credited_speedup, verdict.reasons
            self.buffer.insert([Exemplar.new(identity, exemplar.code, speedup, reasons=reasons)])
        event = {"type": "exemplar", "candidate": candidate, "origin": self._prior.origin, "first": exemplar.speedup}
        self.emit(event | described(verdict))

    async def _round(self, number: int) -> None:
        rng = np.random.default_rng([self.aims.seed, number])
        drawn = []
        samples = self._settings.samples_per_round
        for share in range(math.ceil(samples / PER_PROMPT)):
            selection = select(self.buffer, self.problem.problem_id, self._exemplars, rng)
            prompt = self._prompts.contrastive(self.problem, selection)
            count = min(PER_PROMPT, samples - share * PER_PROMPT)
            drawn.append((prompt, count, int(rng.integers(2**31))))
        await together([self._ask(number, prompt, count, seed) for prompt, count, seed in drawn])
        best = self.buffer.best(self.problem.problem_id)
        self.record.rounds = number + 1
        self._save()
        self.emit(
            {
                "type": "round",
                "round": number + 1,
                "rounds": self._settings.rounds,
                "best_speedup": best.speedup if best else 0.0,
                "candidates": self.record.candidates,
            }
            | self.costs.so_far(self.spent_s())
        )

    async def _ask(self, number: int, prompt: Any, count: int, seed: int) -> None:
        began = time.monotonic()
        answers = await self._tools.write(prompt.text, count, self.aims.temperature, seed)
        self.costs.wrote(sum(answer.tokens for answer in answers), time.monotonic() - began)
        await together([self._consider(number, prompt, answer.text) for answer in answers])

    async def _consider(self, number: int, prompt: Any, text: str) -> None:
        answer = parse_answer(text, require_analysis=self.aims.include_analysis)
        event: dict[str, Any] = {"type": "candidate", "round": number + 1}
        event["analysis"], event["design"] = answer.analysis[:SHOWN_CHARACTERS], answer.design[:SHOWN_CHARACTERS]
        identity = self.problem.problem_id
        if answer.code is None:
            self._report(event, Verdict.unparsable(identity, answer.error))
            return
        candidate = event["candidate"] = exemplar_id(identity, answer.code)
        if candidate in self._evaluated:  # or being evaluated: policies repeat themselves, also within a round
            self.record.candidates += 1
            self.emit(event | {"status": "known"})
            return
        self._evaluated.add(candidate)
        best = self.buffer.best(identity)
        verdict = await self.evaluate(answer.code, best.speedup if best else 0.0)
        if is_void(verdict):  # no fault of the candidate: it may be tried again
            self._evaluated.discard(candidate)
        else:
            exemplar = Exemplar.new(
                identity,
                answer.code,
                verdict.credited_speedup,
                step=number + 1,
                parent_ids=prompt.exemplar_ids,
                reasons=verdict.reasons,
            )
            self.buffer.insert([exemplar])
            self.record.texts[candidate] = (event["analysis"], event["design"])
        self._report(event, verdict)

    def _report(self, event: dict[str, Any], verdict: Verdict) -> None:
        self.record.candidates += 1
        self.emit(event | described(verdict))

    def _save(self) -> None:
        if self.buffer.folder is not None:
            self.buffer.save()


def _unless_fault(verdict: Verdict) -> Verdict:
    for reason in verdict.reasons:
        if reason in PROBLEM_FAULTS:
            what = "itself fails where it is measured" if reason == "reference_error" else "cannot be measured"
            raise ModuleFault(f"the module {what}: {scrub(verdict.detail)}")
    return verdict


async def together(coroutines: Sequence[Any]) -> None:
    """Run all coroutines; the first exception ends the others and is raised as it is."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def described(verdict: Verdict) -> dict[str, Any]:
    """Return what a caller may know of a verdict."""
    names = ("status", "speedup", "speedup_low", "speedup_high", "runtime_ms", "reference_ms", "device")
    return {name: getattr(verdict, name) for name in names} | {
        "detail": scrub(verdict.detail),
        "credited_speedup": verdict.credited_speedup,
        "reasons": list(verdict.reasons),
    }
