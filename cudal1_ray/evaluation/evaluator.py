"""The evaluator: a problem and a candidate's text in, a verdict out. It owns every process it starts."""

from __future__ import annotations

import copy
import os
import random
import secrets
import time
import traceback
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ..errors import UserError
from .baselines import check_baseline
from .compiling.compiler import Compiler, Extensions
from .config import EvaluationConfig
from .confirmation import is_doubted, may_be_measured_again, standing
from .cores import Cores
from .hardware import device_name, one_thread, require_device, visible_architecture
from .host.handles import ForkServer, Misbehaviour, ServerDied
from .host.kept import KeptProcess
from .referee.judge import Correctness, judging_turn, settle
from .referee.observation import Observation, SameOperationsSeen, fields_of, observe, profile, refuse_by_rules
from .referee.opening import NeedsRoom, open_problem
from .referee.session import ProblemFault, ProblemSession, session_key
from .referee.timed_contestant import ReferenceFailed, TimedContestant, compiles_in_calls, several_streams
from .references import Redrawn, References, favoured
from .rules import check_static
from .sandbox.process_watch import in_a_hurry
from .screening import Screening
from .shortage import others_may_have_it
from .timing.doubts import TimingDoubt
from .timing.measurement import Measurement, combine, measure, wants_another, wants_fresh_reference
from .timing.pairs import Pairs
from .timing.shortest import Shortest
from .turns import LONGEST_TURN_S, Turns
from .verdict import ACCEPTED, Verdict, candidate_hash

_KEPT_BYTES = 512 << 20  # of the device's memory, from candidate to candidate
_TRIES_BESIDE, _PAUSE_S = 2, 1.0  # on a GPU that others may have filled for a moment
_MOST_DOUBTS = 3  # of different kinds, each of which no second process has shown


class Evaluator:
    """Judges candidates of any number of problems, one at a time; a context manager.

    Args:
        config: all figures; the defaults evaluate on the CPU.
        compiler: where inline extensions come from; by default a Compiler of the same configuration is made when the
            first candidate needs one.

    Raises (constructor or first evaluation): UserError for a configuration that cannot be had on this machine.
    """

    def __init__(self, config: EvaluationConfig | None = None, compiler: Any = None) -> None:
        self.config = copy.deepcopy(config or EvaluationConfig())
        self.config.validate()
        self.config.check = self.config.rules.applied_to(self.config.check)
        require_device(self.config.device)
        if self.config.device != "cpu" and not self.config.cuda_arch_list:
            self.config.cuda_arch_list = visible_architecture()
        if complaint := check_baseline(self.config.against, self.config.device):
            raise UserError(f"evaluation.against: {complaint}")
        self._hardware = device_name(self.config.device)
        self._server = ForkServer(self.config)
        self._screening = Screening(self.config, self._server)
        self._cores = Cores(self.config.threads, self.config.device)
        seed = self.config.seed if self.config.seed >= 0 else secrets.randbits(64)
        self._chance = random.Random(seed)
        self._sessions: OrderedDict[str, ProblemSession] = OrderedDict()
        self._faults: dict[str, ProblemFault] = {}
        self._observed: Observation | None = None  # of the candidate that is judged now
        self._handed_over: set[str] = set()  # problems whose inputs other processes draw otherwise
        self._compiler, self._own_compiler = compiler, compiler is None
        self._turns = Turns(self.config.turns_file)
        self._shortest = Shortest(self.config.turns_file and self.config.turns_file + ".shortest")
        # On a GPU these two live on from problem to problem.
        self._keeps = self.config.device != "cpu" and self.config.trust_problems
        self._maker = KeptProcess(self._server, "maker")
        self._references = References(
            self.config, self._server, self._cores, self._chance, self._turns, lambda: self._keeps
        )

    def sandbox_level(self) -> str:
        """Name of the sandbox that contestants of this evaluator run in."""
        self._server.start()
        return self._server.level

    def evaluate(self, problem: Any, code: str, best_speedup: float = 0.0) -> Verdict:
        """The verdict over ``code`` for ``problem``. Never raises for anything the candidate does.

        ``best_speedup``: the problem's best so far, 0.0 = none: what is far beyond it is measured again.
        """
        with one_thread():
            return self._evaluate(problem, code, best_speedup)

    def _evaluate(self, problem: Any, code: str, best_speedup: float) -> Verdict:
        start = time.monotonic()
        common = {"device": self.config.device, "hardware": self._hardware, "candidate_hash": candidate_hash(code)}
        look = check_static(code, self.config.rules, gate=self.config.check.static_gate)
        finding = look.refusal
        if finding is not None:
            return Verdict.rejected(
                problem.problem_id, finding.reason, finding.detail, evaluation_s=time.monotonic() - start,
                degenerate=self._known_degenerate(problem), **common,
            )  # fmt: skip
        verdict: Verdict | None = None
        trouble = ""
        for _ in range(1 + max(0, self.config.retries)):
            try:
                verdict = self._in_stages(problem, code, best_speedup, common)
                break
            except ServerDied as error:
                trouble = str(error)
                self._forget_processes()
            except UserError:
                raise
            except Exception as error:  # a fault in here costs one verdict, not all that were to follow it
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{os.path.basename(where.filename)}:{where.lineno}"
                trouble = f"a fault of the evaluator's own, to be reported: {type(error).__name__} in {place}: {error}"
                self._forget_problem(problem)
                break
        if verdict is None:
            verdict = Verdict.rejected(problem.problem_id, "evaluator_error", trouble, **common)
        found = {"evaluation_s": time.monotonic() - start, "degenerate": self._known_degenerate(problem)}
        found["sandbox"] = self._server.level
        found["flags"] = tuple(dict.fromkeys((*verdict.flags, *look.flags)))
        return Verdict(**{**verdict.__dict__, **found})

    def _in_stages(self, problem: Any, code: str, best_speedup: float, common: dict[str, Any]) -> Verdict:
        """Build, import and construct first: a failure there opens no problem and waits for no other candidate."""
        try:
            extensions = self._extensions(problem, code)
            try:
                self._screening.screen(problem, code, extensions)
                try:
                    return self._with_room_if_needed(problem, code, extensions, best_speedup, common)
                except Redrawn:
                    self._handed_over.add(session_key(problem))
                    self._forget_problem(problem)
                    return self._with_room_if_needed(problem, code, extensions, best_speedup, common)
            finally:
                extensions.close()
        except Misbehaviour as error:
            return Verdict.rejected(problem.problem_id, error.reason, error.detail, **common)

    def _with_room_if_needed(
        self, problem: Any, code: str, extensions: Extensions, best_speedup: float, common: dict[str, Any]
    ) -> Verdict:
        """Beside other evaluators' candidates; without them, for whose ends it waits then, where the problem is very
        large or memory runs short again and again: is it this candidate that takes it?
        """
        session = self._sessions.get(session_key(problem))
        tries = 1 if self.config.device == "cpu" else _TRIES_BESIDE
        for _ in range(0 if session is not None and session.alone else tries):
            try:
                with self._turns.candidate():
                    verdict = self._attempt(
                        problem, code, extensions, best_speedup, common, has_room=not self._turns.shared
                    )
                if not self._turns.shared or not others_may_have_it(verdict):
                    return verdict
                self._faults.pop(session_key(problem), None)
            except NeedsRoom:
                break
            except torch.OutOfMemoryError:  # the referee's own: who compares needs memory too
                pass
            self._give_memory_back(0)
            self._references.give_up(self._sessions.values(), all_of_them=True)
            time.sleep(_PAUSE_S)
        with self._turns.candidate(without_others=True):
            return self._attempt(problem, code, extensions, best_speedup, common, has_room=True)

    def _attempt(
        self, problem: Any, code: str, extensions: Extensions, best_speedup: float, common: dict[str, Any], *,
        has_room: bool,
    ) -> Verdict:  # fmt: skip
        problem_id, reference_ms = problem.problem_id, 0.0
        session = self._observed = None
        try:
            session = self._session(problem, has_room)
            try:
                if not session.reference_ms:  # the process that answers serves in the first measurement too
                    session.reference = self._references.take(session)
                reference_ms = session.reference_ms
                measured = self._judge(session, code, extensions, best_speedup)
            finally:
                self._give_memory_back(_KEPT_BYTES)
                self._references.give_up(self._sessions.values())  # of those used last, last
        except (ProblemFault, Misbehaviour) as error:
            common |= fields_of(self._observed, session and session.observed)
            return Verdict.rejected(problem_id, error.reason, error.detail, reference_ms=reference_ms, **common)
        except SameOperationsSeen as seen:
            common |= fields_of(self._observed, session.observed) | {"speedup_low": 1.0, "speedup_high": 1.0}
            return Verdict(
                problem_id, ACCEPTED, (), str(seen), 1.0, credited_speedup=1.0, runtime_ms=reference_ms,
                reference_ms=reference_ms, **common,
            )  # fmt: skip
        common |= fields_of(self._observed, session.observed)
        interval = measured.interval
        return Verdict(
            problem_id, ACCEPTED, (), "", interval.ratio, interval.low, interval.high, interval.ratio,
            measured.runtime_ms, measured.reference_ms, measured.timed_runs,
            bucket_speedups=measured.bucket_speedups, processes=measured.processes,
            device_speedup=measured.device_speedup, remeasured=measured.remeasured,
            confirmed_on="same_device" if measured.remeasured else "", **common,
        )  # fmt: skip

    def _judge(self, session: ProblemSession, code: str, extensions: Extensions, best_speedup: float) -> Measurement:
        """A large speedup must show itself again in fresh processes, on a device that has cooled down; the lower of two
        that agree counts.
        """
        timing, seen = self.config.timing, [self._measure_once(session, code, extensions)]
        if not is_doubted(seen[0].interval.ratio, best_speedup, timing):
            return seen[0]
        while may_be_measured_again(len(seen), timing):
            seen.append(self._measure_once(session, code, extensions, before=seen))
            shown = [(one.interval.ratio, one.interval.half_width) for one in seen]
            found = standing(shown, timing)
            if found is not None:
                return replace(seen[found], remeasured=tuple(ratio for ratio, _ in shown))
        ratios = ", ".join(f"{one.interval.ratio:.2f}x" for one in seen)
        raise Misbehaviour("unstable_timing", f"fresh contestants disagree: {ratios}")

    def _measure_once(
        self, session: ProblemSession, code: str, extensions: Extensions, before: Sequence[Measurement] = ()
    ) -> Measurement:
        """One measurement, spread over so many fresh contestants as configured; the first is checked before.
        ``before``: earlier ones of this code.

        Nobody is refused for what clocks say of one process: another must show the same. Who compiles in its first call
        is measured in one process otherwise: half a minute each is too long.
        """
        parts: list[Measurement] = []
        doubts: set[str] = set()
        candidate = None
        streams = self._several_streams(session, code)
        try:
            while wants_another(parts, self.config.timing):
                # The reference that is kept has one hardware queue, as have candidates for which that is all the same.
                fresh = bool(doubts) or streams or wants_fresh_reference([*before, *parts], self.config.timing)
                if candidate is None:
                    # On a GPU whose process is made later launches faster, by half a percent: each goes first in turn.
                    if fresh and len(parts) % 2 == 0:
                        self._references.renew(session, streams=streams)
                        fresh = False
                    candidate = self._candidate(session, code, extensions, known=bool(parts), streams=streams)
                try:
                    shown = max((part.shown for part in parts), default=0.0)
                    rest_s = self.config.timing.cool_down_s if before and not parts else 0.0
                    part = self._time(session, candidate, fresh=fresh, streams=streams, shown=shown, rest_s=rest_s)
                    parts.append(part)
                except TimingDoubt as doubt:
                    if doubt.reason in doubts or len(doubts) >= _MOST_DOUBTS:
                        raise
                    doubts.add(doubt.reason)
                    candidate.close()
                    candidate = None
                    if doubt.reason == "baseline_sabotage":  # or the machine has become slower
                        self._references.time_alone(session, self._shortest)
                    continue
                last = not wants_another(parts, self.config.timing)
                if last and not before:
                    self._observed = profile(candidate, self._observed, code)
                if last or not compiles_in_calls(code):
                    candidate.close()
                    candidate = None
        finally:
            if candidate is not None:
                candidate.close()
        if not before:
            self._refuse_by_rules(session, last=True)
        return combine(parts, self.config.timing)

    def _refuse_by_rules(self, session: ProblemSession, *, last: bool) -> None:
        refuse_by_rules(self._observed, session.observed, self.config.rules, self.config.against, last=last)

    def _several_streams(self, session: ProblemSession, code: str) -> bool:
        """May one of the two that are timed against each other run several? A compiled reference serves everybody."""
        if self.config.device == "cpu":
            return False
        return self.config.against != "eager" or several_streams(code) or several_streams(session.source)

    def _candidate(
        self, session: ProblemSession, code: str, extensions: Extensions, *, known: bool, streams: bool
    ) -> TimedContestant:
        """Fresh, checked, and ready to be timed. A first call may start compilers, so that comes before the lock."""
        candidate = TimedContestant(
            self._server, session, code, "candidate", self._cores.numbers, extensions, streams=streams
        )
        try:
            limits, reference_s = self.config.limits, session.reference_ms * 1e-3
            candidate.call_limit_s = min(
                max(limits.call_timeout_s, 10 * reference_s), max(1.0, limits.slowdown_limit * reference_s)
            )
            correctness, lazy = Correctness(candidate, self._chance, self._turns), self.config.check.lazy
            correctness.first(briefly=known)
            if not (known or lazy):
                correctness.others()
            if self._observed is None:
                self._observe(session, candidate)
            if lazy and not known:
                correctness.others()
            settle(candidate, self._server.level)
        except BaseException:
            candidate.close()
            raise
        return candidate

    def _observe(self, session: ProblemSession, candidate: TimedContestant) -> None:
        """Watch one call of the candidate's; refuse or credit what the rules need no measurement for."""
        if session.observed is None:
            self._references.release(session, self._references.take(session))
        with self._turns.beside_others(LONGEST_TURN_S):
            self._observed = observe(candidate)
        self._refuse_by_rules(session, last=self.config.device == "cpu")

    def _time(
        self, session: ProblemSession, candidate: TimedContestant, *, fresh: bool, streams: bool, shown: float,
        rest_s: float,
    ) -> Measurement:  # fmt: skip
        """``fresh``: against a reference in a process of its own; ``shown``: see `measure`; ``rest_s``: see
        `Turns.alone`.
        """
        try:
            reference = self._references.take(session, fresh=fresh, streams=streams)
        except ProblemFault as fault:
            raise self._whose_fault(session, candidate, fault) from None
        try:
            with favoured(self.config, reference, candidate) as core:
                turn = partial(self._turns.beside_others, LONGEST_TURN_S)
                pairs = Pairs(session, reference, candidate, self._chance, core.stay_fast, turn)
                try:
                    with self._turns.alone(rest_s=rest_s), in_a_hurry(), core.shared():
                        measured = measure(pairs, self._shortest.of(pairs.calls), shown, streams=streams)
                        measured = replace(measured, core_s=core.pace_s)
                        self._shortest.saw(pairs.calls, measured.beside_s)
                finally:
                    with judging_turn(session.own[0], self._turns):
                        pairs.judge_kept()  # a wrong output says more than what it did to the clocks
                with self._turns.beside_others(LONGEST_TURN_S):
                    pairs.judge_held()
                    pairs.ask_the_rest()
        except ReferenceFailed as failure:
            self._references.release(session, reference)
            raise self._whose_fault(session, candidate, failure) from None
        finally:
            self._references.release(session, reference)
        if candidate.handle.watch.family():
            raise Misbehaviour("leftover_process", "a process of the candidate's outlives its call")
        return measured

    def _give_memory_back(self, most: int) -> None:
        """To others on the device: what comparing took, where that is more than ``most`` bytes."""
        if self.config.device != "cpu" and torch.cuda.memory_reserved(self.config.device) > most:
            torch.cuda.empty_cache()

    def _whose_fault(
        self, session: ProblemSession, candidate: TimedContestant, failure: ProblemFault | ReferenceFailed
    ) -> Exception:
        """The reference failed beside a candidate: does it without it? ProblemFault if it does."""
        candidate.close()
        self._references.release(session, self._references.take(session))
        detail = f"the reference runs without it and fails beside it: {failure.detail}"
        return Misbehaviour("resource_exhaustion", detail)

    def _extensions(self, problem: Any, code: str) -> Extensions:
        """The candidate's compiled extensions. Misbehaviour compile_error when they do not build."""
        if "cpp_extension" not in code:
            return Extensions()
        if self._compiler is None:
            self._compiler = Compiler(self.config)
        result = self._compiler.compile(code, problem.source)
        if not result.ok:
            raise Misbehaviour(result.reason, result.detail)
        return result.open()

    def _known_degenerate(self, problem: Any) -> bool:
        """False for a problem that was never opened: a candidate may fall to the static gate before that."""
        key = session_key(problem)
        fault, session = self._faults.get(key), self._sessions.get(key)
        return fault is not None and fault.reason == "degenerate_input" or session is not None and session.degenerate

    def _session(self, problem: Any, has_room: bool) -> ProblemSession:
        key = session_key(problem)
        if key in self._faults:
            raise self._faults[key]
        if key in self._sessions:
            self._sessions.move_to_end(key)
            return self._sessions[key]
        session = self._sessions[key] = self._open(problem, has_room)
        while len(self._sessions) > 1 and (
            len(self._sessions) > self.config.live_references
            or sum(one.nbytes for one in self._sessions.values()) > self.config.live_mib << 20
        ):
            self._sessions.popitem(last=False)[1].close()
        return session

    def _open(self, problem: Any, has_room: bool) -> ProblemSession:
        """ProblemFault, which is remembered, where it cannot be opened in a process that had no other before either."""
        used = self._keeps and self._maker.used
        maker = self._maker.take() if self._keeps else self._server.spawn(role="maker", cores=[])
        try:
            draws = session_key(problem) not in self._handed_over
            session = open_problem(
                maker, problem, self.config, self._chance, self._turns, has_room=has_room, draws=draws
            )
            maker.regions_mib = session.shared_mib
            return session
        except ProblemFault as fault:
            failed = fault.reason == "reference_error"
            if failed:  # who knows in what state it left the process
                self._maker.drop()
            if not (failed and used):
                self._faults[session_key(problem)] = fault
                raise
        finally:
            if self._keeps:
                self._maker.clear()
            else:
                maker.close()
        return self._open(problem, has_room)

    def _forget_problem(self, problem: Any) -> None:
        session = self._sessions.pop(session_key(problem), None)
        if session is not None:
            session.close()
        self._maker.drop()
        self._references.drop()

    def _forget_processes(self) -> None:
        self._maker.forget()
        self._references.forget()
        self._references.give_up(self._sessions.values(), all_of_them=True)

    def close(self) -> None:
        """Ends every process and gives the memory back; calling it twice is fine."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        self._maker.drop()
        self._references.drop()
        self._server.close()
        self._turns.close()
        self._shortest.close()
        self._cores.close()
        if self._own_compiler and self._compiler is not None:
            self._compiler.close()
            self._compiler = None

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
