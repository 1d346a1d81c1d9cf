"""The references that candidates are timed against: which process runs them, and which are kept."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from cudal1_ray.evaluation.baselines import coarse_products, is_file
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.correctness.observation import observe
from cudal1_ray.evaluation.correctness.trials import ask_trial, compare_call, errors_of, first_turn
from cudal1_ray.evaluation.exchange.messages import Lock
from cudal1_ray.evaluation.host.handles import ForkServer, Misbehaviour
from cudal1_ray.evaluation.host.kept_process import KeptProcess
from cudal1_ray.evaluation.host.timed_contestant import ReferenceFailed, TimedContestant
from cudal1_ray.evaluation.opening.session import ProblemFault, ProblemSession
from cudal1_ray.evaluation.sandbox.process_watch import in_a_hurry
from cudal1_ray.evaluation.sharing.cores import Cores, LaunchCore
from cudal1_ray.evaluation.sharing.turns import Turns
from cudal1_ray.evaluation.timing.clocks import Batch
from cudal1_ray.evaluation.timing.inputs import Inputs
from cudal1_ray.evaluation.timing.pace import fastest_core
from cudal1_ray.evaluation.timing.steady import undisturbed
from cudal1_ray.evaluation.timing.stopwatch import WARM_UP_CALLS, Stopwatch, batch_calls, measure_overhead_s, warm_up

# Seconds for which a reference that seems slower than it was is timed alone: longer than another's first call takes.
_ALONE_S = 2.0
# Share of the GPU's memory in use above which no baseline other than eager is kept running: each holds a context, its
# weights and its libraries' workspace, up to some GiB.
_MOST_MEMORY_SHARE = 0.5


@dataclass(frozen=True)
class Machinery:
    """The parts of an evaluator with which all problems are opened and all candidates measured."""

    config: EvaluationConfig
    server: ForkServer
    cores: Cores
    chance: random.Random
    turns: Turns
    measuring_cores: Sequence[int]

    @property
    def keeps(self) -> bool:
        """Return whether processes of eager references and makers are reused from problem to problem."""
        return self.config.device != "cpu" and self.config.trust_problems


def favoured(machinery: Machinery, *contestants: TimedContestant) -> LaunchCore:
    """Give contestants precedence over other processes; on a GPU, where launches count, run them on one core."""
    watches = [contestant.handle.watch for contestant in contestants]
    for watch in watches:
        watch.prioritise()
    if machinery.config.device == "cpu":
        return LaunchCore(watches, [])
    return LaunchCore(watches, machinery.measuring_cores or [fastest_core(os.sched_getaffinity(0))])


class Redrawn(Exception):
    """Another process draws different inputs from the same seed: the inputs have to be handed over."""


class References:
    """The timed reference of each session: same fork, same locks and same state of memory as the candidate.

    A compiled baseline takes long to make, so it is kept from candidate to candidate and reset to its first state. On a
    GPU the eager reference runs in the process of earlier ones (`Machinery.keeps`), or in a process of its own: no
    place in memory should favour one side throughout a measurement.
    """

    def __init__(self, machinery: Machinery) -> None:
        self._machinery, self._config, self._server = machinery, machinery.config, machinery.server
        self._process = KeptProcess(machinery.server, "reference", lives_on=machinery.keeps)

    def take(self, session: ProblemSession, *, fresh: bool = False, streams: bool = False) -> TimedContestant:
        """Return a reference that is ready to be timed; `release` takes it back.

        Args:
            fresh: an eager reference gets a process of its own.
            streams: a fresh reference may run several streams; one that is not eager always may.

        Raises:
            ProblemFault: where the reference fails even in a process that ran none before it.
        """
        kept = self._kept(session, fresh)
        lent = self._process.lives_on and self._eager and not fresh
        try:
            if kept is not None:
                kept.reset()
                return kept
            return self._start(session, self._process if lent else None, streams)
        except Misbehaviour as error:
            if kept is None and not lent:
                whose = f"the baseline {self._config.against}: " if is_file(self._config.against) else ""
                raise ProblemFault.of_reference(error, self._config.limits, whose) from None
        if kept is not None:
            kept.close()
        return self.take(session, fresh=True, streams=streams)  # earlier problems may have spoilt the shared process

    def release(self, session: ProblemSession, reference: TimedContestant) -> None:
        """Keep a reference that can serve again, and end any other."""
        if reference.failed or (self._eager and reference.process is None):
            reference.close()
        else:
            session.reference = reference

    def give_up(self, sessions: Iterable[ProblemSession], *, all_of_them: bool = False) -> None:
        """End the references that these problems keep, in order: eager ones always, others while the device's memory is
        too full, and all with `all_of_them`. An eager reference in the shared process belongs to no problem.
        """
        for session in sessions:
            if all_of_them or self._eager or self._is_full():
                session.drop_reference()

    def _is_full(self) -> bool:
        if self._config.device == "cpu":
            return False
        free, total = torch.cuda.mem_get_info(self._config.device)
        return total - free > _MOST_MEMORY_SHARE * total

    def time_alone(self, session: ProblemSession) -> None:
        """Time a reference while no other process uses the device, for `session.solo_ms`: the slowest of many moments,
        since cores change their speed, but none during another process's first call. Raise ProblemFault if it fails.
        """
        reference, inputs = self.take(session), Inputs(session, self._machinery.chance)
        batches: list[Batch] = []
        known_s, watch = 1e-3 * session.reference_ms, Stopwatch(reference)
        calls = batch_calls(known_s, known_s, inputs, self._config.timing.batch_ms)
        try:
            with (
                favoured(self._machinery, reference) as core,
                self._machinery.turns.alone(),
                in_a_hurry(),
                core.shared(),
            ):
                end = time.monotonic() + _ALONE_S
                while not batches or time.monotonic() < end:
                    batches.append(watch.run(*inputs.renew(calls), None)[0])
        except ReferenceFailed as failure:
            raise ProblemFault.of_reference(failure, self._config.limits) from None
        finally:
            self.release(session, reference)
        alone_s = max(batch.inner / calls for batch in undisturbed(batches))
        session.solo_ms = max(session.solo_ms, 1e3 * alone_s)

    def drop(self) -> None:
        """End the process that is reused; a second call does nothing."""
        self._process.drop()

    @property
    def _eager(self) -> bool:
        return self._config.against == "eager"

    def _kept(self, session: ProblemSession, fresh: bool) -> TimedContestant | None:
        kept, session.reference = session.reference, None
        if kept is None:
            return None
        if (fresh and self._eager) or kept.generation != self._server.generation or not self._server.alive:
            kept.close()
            return None
        return kept

    def _start(self, session: ProblemSession, process: KeptProcess | None, streams: bool) -> TimedContestant:
        source, cores, config = session.source, self._machinery.cores.numbers, self._config
        streams = streams or not self._eager
        reference = TimedContestant(self._server, session, source, "reference", cores, process=process, streams=streams)
        try:
            reference.call_limit_s = config.limits.first_call_timeout_s
            inputs = Inputs(session, self._machinery.chance)
            # It computes a trial first, like every candidate that is timed: a process's earlier work affects its time.
            turn, request = first_turn(session, self._machinery.turns), session.ask(session.own[0])
            own = session.own[0]
            answered = ask_trial(reference, own, request, self._machinery.chance, briefly=True, turn=turn)
            if request.drawn is not None and not own.mutated and answered.inputs != own.values:
                raise Redrawn
            if is_file(config.against) and (wrong := compare_call(answered, own, config)) is not None:
                raise Misbehaviour(wrong.reason, f"it gives something else than the reference: {wrong.detail}")
            if coarse_products(config.against, config.device):
                session.reference_off = errors_of(answered, own, config)
            with self._machinery.turns.beside_others():  # a compiled one takes longer, mostly on the CPU
                seconds = warm_up(reference, inputs, WARM_UP_CALLS)
                if not session.reference_seen:
                    last = reference.fetch(0, [0.0])
                    reference.fetch_inputs(0, [0.0], last)
                    session.saw_reference(last.aliased, bool(last.borrowed))
            if session.observed is None:
                with self._machinery.turns.beside_others():
                    session.observed = observe(reference)
            reference.ask(Lock(), 30.0, "locking")
            if not session.reference_ms:  # no candidate has run beside it yet
                session.solo_ms = 1e3 * seconds
                session.overhead_s = measure_overhead_s(reference)
            session.reference_ms = 1e3 * seconds
        except BaseException:
            reference.close()
            raise
        return reference
