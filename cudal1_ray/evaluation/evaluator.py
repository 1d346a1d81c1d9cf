"""The evaluator: takes a problem and a candidate's text, returns a verdict. It owns every process it starts."""

from __future__ import annotations

import os
import random
import secrets
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

import torch

from cudal1_ray.closable import Closable
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.hardware import device_name, one_thread, prepared
from cudal1_ray.evaluation.host.handles import ForkServer, Misbehaviour, ServerDied
from cudal1_ray.evaluation.measuring import CandidateMeasurement
from cudal1_ray.evaluation.opening.maker_requests import NeedsRoom
from cudal1_ray.evaluation.opening.open_problems import OpenProblems
from cudal1_ray.evaluation.opening.references import Machinery, Redrawn, References
from cudal1_ray.evaluation.opening.session import ProblemFault, ProblemSession
from cudal1_ray.evaluation.screening.construction import Screening
from cudal1_ray.evaluation.screening.static_check import check_static
from cudal1_ray.evaluation.sharing.cores import shared_cores
from cudal1_ray.evaluation.sharing.schedule import ATTEMPTS
from cudal1_ray.evaluation.sharing.shortage import is_shortage, others_may_have_it
from cudal1_ray.evaluation.sharing.turns import Turns
from cudal1_ray.evaluation.verdict import Verdict, candidate_hash
from cudal1_ray.problems import Problem

# Most bytes of the device's memory that torch keeps reserved from candidate to candidate.
_KEPT_BYTES = 512 << 20
# Attempts beside other evaluators, and seconds between them: others may have filled a GPU's memory for a moment.
_TRIES_BESIDE, _PAUSE_S = 2, 1.0


class Evaluator(Closable):
    """Evaluates candidates of any number of problems, one at a time; a context manager.

    A candidate passes four stages and leaves at the first one that it fails: screening (its text, its build, its import
    and construction; no problem is opened), correctness, timing, and scrutiny of what it seems to gain. The last three
    need its problem open: see `CandidateMeasurement`.

    Args:
        config: all settings; the defaults evaluate on the CPU.
        turns_file: path through which the evaluators of one device take turns; empty = this is the only evaluator.
        measuring_cores: CUDA: reference and candidate launch from the fastest of these cores while they are measured;
            empty = from the fastest core at the time of each measurement.
        stored: called with the key of each problem that other evaluators can read from now on, see `OpenProblems`.

    Raises (constructor or first evaluation): UserError for a configuration that this machine cannot provide.
    """

    def __init__(
        self, config: EvaluationConfig | None = None, *, turns_file: str = "", measuring_cores: Sequence[int] = (),
        stored: Callable[[str], None] = lambda key: None,
    ) -> None:  # fmt: skip
        config = self.config = prepared(config)
        config.check = config.rules.applied_to(config.check)
        self._hardware = device_name(config.device)
        self._server = ForkServer(config)
        self._screening = Screening(config, self._server)
        self._turns, self._cores = Turns(turns_file), shared_cores(config.threads, config.device)
        machinery = self._machinery = Machinery(
            config, self._server, self._cores, random.Random(config.seed if config.seed >= 0 else secrets.randbits(64)),
            self._turns, measuring_cores,
        )  # fmt: skip
        self._references = References(machinery)
        self._problems = OpenProblems(machinery, self._references, stored)

    def sandbox_level(self) -> str:
        """Return the level of the sandbox that this evaluator's candidates run in."""
        self._server.start()
        return self._server.level

    def evaluate(self, problem: Problem, code: str, best_speedup: float = 0.0) -> Verdict:
        """Return the verdict over `code` for `problem`; nothing that the candidate does raises an error.

        Args:
            best_speedup: the problem's best speedup so far, 0.0 = none; a much higher one is measured again.

        Raises:
            UserError: for a problem that is no `Problem`.
        """
        if not isinstance(problem, Problem):
            raise UserError(f"problem={problem!r:.60}: give a Problem, as cudal1_ray.parse_problem() does")
        start = time.monotonic()
        look = check_static(code, self.config.rules, gate=self.config.check.static_gate)
        if look.refusal is not None:
            verdict, sandbox = Verdict.rejected(problem.problem_id, look.refusal.reason, look.refusal.detail), ""
        else:
            with one_thread():
                verdict = self._with_retries(problem, code, best_speedup)
            sandbox = self._server.level
        return replace(
            verdict, device=self.config.device, hardware=self._hardware, candidate_hash=candidate_hash(code),
            sandbox=sandbox, degenerate=self._problems.is_degenerate(problem),
            flags=tuple(dict.fromkeys((*verdict.flags, *look.flags))), evaluation_s=time.monotonic() - start,
        )  # fmt: skip

    def _with_retries(self, problem: Problem, code: str, best_speedup: float) -> Verdict:
        """Evaluate, again if the evaluator's own processes die; an error of the evaluator costs only this verdict."""
        trouble = ""
        for _ in range(ATTEMPTS):
            try:
                return self._in_stages(problem, code, best_speedup)
            except ServerDied as error:
                trouble = str(error)
                self._problems.server_died()
            except UserError:
                raise
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{os.path.basename(where.filename)}:{where.lineno}"
                trouble = f"a fault of the evaluator's own, to be reported: {type(error).__name__} in {place}: {error}"
                if is_shortage(error):
                    trouble = f"{self.config.device} has no memory left for the evaluator; end what else uses it"
                self._problems.forget(problem)
                break
        return Verdict.rejected(problem.problem_id, "evaluator_error", trouble)

    def _in_stages(self, problem: Problem, code: str, best_speedup: float) -> Verdict:
        """Screen the candidate, which opens no problem and waits for no other candidate; then measure it."""

        def measured(session: ProblemSession) -> Verdict:
            """Return the verdict of correctness, timing and scrutiny."""
            candidate = CandidateMeasurement(self._machinery, self._references, session, code, extensions)
            return candidate.verdict(best_speedup)

        try:
            with closing(self._screening.build(problem, code)) as extensions:
                self._screening.construct(problem, code, extensions)
                try:
                    return self._with_room_if_needed(problem, measured)
                except Redrawn:
                    self._problems.hand_over(problem)
                    return self._with_room_if_needed(problem, measured)
        except Misbehaviour as error:
            return Verdict.rejected(problem.problem_id, error.reason, error.detail)

    def _with_room_if_needed(self, problem: Problem, measured: Callable[[ProblemSession], Verdict]) -> Verdict:
        """Measure beside other evaluators' candidates; alone, after these have ended, if the problem is very large or
        memory runs out in each attempt, which shows whether this candidate takes it.
        """
        session = self._problems.find(problem)
        tries = 1 if self.config.device == "cpu" else _TRIES_BESIDE
        for _ in range(0 if session is not None and session.alone else tries):
            try:
                with self._turns.candidate():
                    verdict = self._attempt(problem, measured, has_room=not self._turns.shared)
                if not self._turns.shared or not others_may_have_it(verdict):
                    return verdict
                self._problems.forget_fault(problem)
            except NeedsRoom:
                break
            except RuntimeError as error:  # raised in this process: comparing outputs needs memory too
                if not is_shortage(error):
                    raise
            self._give_memory_back(0)
            self._problems.give_up_references(all_of_them=True)
            time.sleep(_PAUSE_S)
        with self._turns.candidate(without_others=True):
            return self._attempt(problem, measured, has_room=True)

    def _attempt(self, problem: Problem, measured: Callable[[ProblemSession], Verdict], *, has_room: bool) -> Verdict:
        """Open the problem, and measure the candidate on it."""
        try:
            return measured(self._problems.session(problem, has_room=has_room))
        except ProblemFault as fault:
            return Verdict.rejected(problem.problem_id, fault.reason, fault.detail)
        finally:
            self._give_memory_back(_KEPT_BYTES)
            self._problems.give_up_references()

    def _give_memory_back(self, most: int) -> None:
        """Release torch's cached memory on the device if more than `most` bytes are reserved."""
        if self.config.device != "cpu" and torch.cuda.memory_reserved(self.config.device) > most:
            torch.cuda.empty_cache()

    def close(self) -> None:
        """End every process and free the memory; a second call does nothing."""
        self._problems.close()
        self._server.close()
        self._turns.close()
        self._cores.close()
        self._screening.close()
