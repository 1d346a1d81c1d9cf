"""Rounds of contrastive prompting for one module (CUDA-L1, arXiv 2507.14111, stage 3 without the learning).

Each round shows the policy earlier candidates with their speedups and has what it answers judged. At the end the
fastest are measured again: among many noisy measurements the largest flatters, a fresh one does not. What is reported
is the fresh one.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cudal1_ray.evaluation import Verdict
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, ExemplarsConfig, exemplar_id, select
from cudal1_ray.problems import Problem
from cudal1_ray.prompting import PromptBuilder, parse_answer
from cudal1_ray.serving.jobs import JobSettings

PER_PROMPT = 4  # candidates per drawn set of exemplars: several sets a round, several answers to each
SHOWN_CHARACTERS = 4000  # of an analysis, in events and results

Emit = Callable[[dict[str, Any]], None]


class ModuleFault(Exception):
    """The module itself cannot be worked on; the message says why, in one line."""


class Tools(Protocol):
    """The policy and the judge, wherever they live."""

    async def write(self, prompt: str, n: int, temperature: float, seed: int) -> Sequence[str]:
        """Up to `n` answers to one prompt."""
        ...

    async def judge(self, problem: Problem, code: str, best_speedup: float) -> Verdict: ...


@dataclass(frozen=True)
class Aims:
    """What counts as faster, and how surely."""

    temperature: float
    min_speedup: float
    confirm: int
    seed: int
    include_analysis: bool


class Optimizer:
    """One job, from its first prompt to its answer. It may be begun again with the buffer and events of before."""

    def __init__(
        self,
        problem: Problem,
        settings: JobSettings,
        aims: Aims,
        tools: Tools,
        prompts: PromptBuilder,
        exemplars: ExemplarsConfig,
        buffer: ExemplarBuffer,
        emit: Emit,
        before: Sequence[dict[str, Any]] = (),
    ):
        self._problem, self._settings, self._aims, self._tools = problem, settings, aims, tools
        self._prompts, self._exemplars, self._buffer, self._emit = prompts, exemplars, buffer, emit
        seen = [event for event in before if event["type"] == "candidate"]
        judged = [event for event in seen if event.get("candidate") and event["status"] != "known"]
        self._texts = {event["candidate"]: (event["analysis"], event["design"]) for event in judged}
        self._judged = {exemplar.exemplar_id for exemplar in buffer.of(problem.problem_id)}
        self._written = len(seen)
        self._rounds_done = sum(event["type"] == "round" for event in before)
        self._spent_s = max((event.get("spent_s", 0.0) for event in before), default=0.0)
        self._started = time.monotonic()

    async def run(self) -> dict[str, Any]:
        """Works until the rounds or the time are used up, and returns the answer.

        Raises:
            ModuleFault: when the module itself does not run.
            PromptTooLong: when it alone fills the prompt.
        """
        left_s = self._settings.time_limit_s - self._spent_s
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                for number in range(self._rounds_done, self._settings.rounds):
                    await self._round(number)
        except TimeoutError:
            self._emit({"type": "time_limit", "spent_s": self._spent()})
        finally:
            self._save()
        return await self._answer()

    async def _round(self, number: int) -> None:
        rng = np.random.default_rng([self._aims.seed, number])
        drawn = []
        samples = self._settings.samples_per_round
        for share in range(math.ceil(samples / PER_PROMPT)):
            selection = select(self._buffer, self._problem.problem_id, self._exemplars, rng)
            prompt = self._prompts.contrastive(self._problem, selection)
            count = min(PER_PROMPT, samples - share * PER_PROMPT)
            drawn.append((prompt, count, int(rng.integers(2**31))))
        await _together([self._ask(number, prompt, count, seed) for prompt, count, seed in drawn])
        best = self._buffer.best(self._problem.problem_id)
        self._rounds_done = number + 1
        self._save()
        self._emit(
            {
                "type": "round",
                "round": number + 1,
                "rounds": self._settings.rounds,
                "best_speedup": best.speedup if best else 0.0,
                "candidates": self._written,
                "spent_s": self._spent(),
            }
        )

    async def _ask(self, number: int, prompt: Any, count: int, seed: int) -> None:
        answers = await self._tools.write(prompt.text, count, self._aims.temperature, seed)
        await _together([self._judge(number, prompt, text) for text in answers])

    async def _judge(self, number: int, prompt: Any, text: str) -> None:
        answer = parse_answer(text, require_analysis=self._aims.include_analysis)
        event: dict[str, Any] = {"type": "candidate", "round": number + 1}
        event["analysis"], event["design"] = answer.analysis[:SHOWN_CHARACTERS], answer.design[:SHOWN_CHARACTERS]
        identity = self._problem.problem_id
        if answer.code is None:
            self._tell(event, Verdict.rejected(identity, "unparsable", answer.error))
            return
        candidate = event["candidate"] = exemplar_id(identity, answer.code)
        if candidate in self._judged:  # or being judged: policies repeat themselves, also within a round
            self._written += 1
            self._emit(event | {"status": "known"})
            return
        self._judged.add(candidate)
        best = self._buffer.best(identity)
        verdict = await self._tools.judge(self._problem, answer.code, best.speedup if best else 0.0)
        if "reference_error" in verdict.reasons:
            raise ModuleFault(f"the module itself fails where it is measured: {verdict.detail}")
        if "evaluator_error" in verdict.reasons:  # nothing is said about the candidate: it may be tried again
            self._judged.discard(candidate)
        else:
            exemplar = Exemplar.new(
                identity,
                answer.code,
                verdict.credited_speedup,
                step=number + 1,
                parent_ids=prompt.exemplar_ids,
                reasons=verdict.reasons,
            )
            self._buffer.insert([exemplar])
            self._texts[candidate] = (event["analysis"], event["design"])
        self._tell(event, verdict)

    def _tell(self, event: dict[str, Any], verdict: Verdict) -> None:
        self._written += 1
        self._emit(event | _said(verdict))

    async def _answer(self) -> dict[str, Any]:
        """The fastest candidate that is faster a second time, or the honest opposite."""
        accepted = [e for e in self._buffer.of(self._problem.problem_id) if e.speedup > 0.0]
        hopeful = [e for e in accepted if e.speedup >= self._aims.min_speedup]
        hopeful.sort(key=lambda exemplar: -exemplar.speedup)
        counts = {"candidates": self._written, "accepted": len(accepted), "rounds": self._rounds_done}
        for exemplar in hopeful[: self._aims.confirm]:
            verdict = await self._tools.judge(self._problem, exemplar.code, exemplar.speedup)
            event = {"type": "confirmation", "candidate": exemplar.exemplar_id, "first": exemplar.speedup}
            self._emit(event | _said(verdict))
            if verdict.speedup_low > 1.0 and verdict.credited_speedup >= self._aims.min_speedup:
                analysis, design = self._texts.get(exemplar.exemplar_id, ("", ""))
                found = {"found": True, "code": exemplar.code, "analysis": analysis, "design": design}
                return found | _said(verdict) | counts | {"spent_s": self._spent()}
        best = max((exemplar.speedup for exemplar in accepted), default=0.0)
        message = "nothing faster found"
        return {"found": False, "message": message, "best_tried": best} | counts | {"spent_s": self._spent()}

    def _save(self) -> None:
        if self._buffer.folder is not None:
            self._buffer.save()

    def _spent(self) -> float:
        return round(self._spent_s + time.monotonic() - self._started, 3)


async def _together(coroutines: Sequence[Any]) -> None:
    """Runs all; the first exception ends the others and is raised as it is."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _said(verdict: Verdict) -> dict[str, Any]:
    """What a caller may know of a verdict."""
    names = ("status", "detail", "speedup", "speedup_low", "speedup_high", "runtime_ms", "reference_ms", "device")
    return {name: getattr(verdict, name) for name in names} | {
        "credited_speedup": verdict.credited_speedup,
        "reasons": list(verdict.reasons),
    }
