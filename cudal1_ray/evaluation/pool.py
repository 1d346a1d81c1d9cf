"""Several evaluators of one device side by side: while one measures alone, the others prepare their candidates."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import zip_longest
from multiprocessing import popen_spawn_posix, spawn
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from types import FunctionType, SimpleNamespace
from typing import Any

from cudal1_ray.closable import Closable
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.hardware import device_name, prepared
from cudal1_ray.evaluation.opening.keys import session_key
from cudal1_ray.evaluation.screening.static_check import check_static
from cudal1_ray.evaluation.scrutiny.confirmation import BestSpeedups
from cudal1_ray.evaluation.sharing.cores import leave_measuring_cores, measuring_cores
from cudal1_ray.evaluation.sharing.schedule import PATIENCE_S, Schedule, Work
from cudal1_ray.evaluation.verdict import Verdict, candidate_hash
from cudal1_ray.files import OwnedFolder
from cudal1_ray.problems import Problem
from cudal1_ray.uncollected import imported_to_stay

# What a caller that stops nothing gives as `stopped`.
NEVER = threading.Event()
_served: Any = None  # what this process serves, where it is a worker


def _preparation_data(name: str) -> dict[str, Any]:
    """Return what multiprocessing sends to a new process, without the script that it would import there."""
    data = spawn.get_preparation_data(name)
    return {key: value for key, value in data.items() if not key.startswith("init_main_")}


class _Popen(popen_spawn_posix.Popen):
    """Starts a process by multiprocessing's own code, which takes `_preparation_data` for its own function: it has no
    argument for it, and to change its module, or `__main__`, would reach processes that other threads start.
    """

    _launch = FunctionType(
        popen_spawn_posix.Popen._launch.__code__,  # type: ignore[attr-defined]
        vars(popen_spawn_posix)
        | {"spawn": SimpleNamespace(**(vars(spawn) | {"get_preparation_data": _preparation_data}))},
    )


class _Process(SpawnProcess):
    """A worker to be, which does not import the script that starts it: one without a guard would run again there. No
    interrupt reaches it before it can ignore them: its imports take seconds.
    """

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> _Popen:
        return _Popen(process_obj)

    def start(self) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Context(SpawnContext):
    Process = _Process


def _open(config: EvaluationConfig, turns_file: str, cores: Sequence[int], stored: Connection) -> None:
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # comparing needs one queue, see `ForkServer.spawn`
    with imported_to_stay():
        from cudal1_ray.evaluation.evaluator import Evaluator  # torch comes in here: the pool's own process needs none

    _serve(lambda: Evaluator(config, turns_file=turns_file, measuring_cores=cores, stored=stored.send), cores)


def _open_compiler(config: EvaluationConfig, turns_file: str, cores: Sequence[int], stored: Connection) -> None:
    os.nice(10)
    with imported_to_stay():
        from cudal1_ray.evaluation.compiling.compiler import Compiler

    _serve(lambda: Compiler(config), cores)


def _serve(make: Callable[[], Any], spared: Sequence[int]) -> None:
    """Make this process a worker, which ends when its owner is killed (the executor alone would leave it waiting) and
    ignores interrupts: its owner handles them.
    """
    global _served
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    owner = multiprocessing.parent_process()
    assert owner is not None
    sentinel = owner.sentinel

    def end_with_owner() -> None:
        wait_for([sentinel])
        os._exit(1)

    threading.Thread(target=end_with_owner, daemon=True).start()
    leave_measuring_cores(spared)
    _served = make()
    Finalize(None, _served.close, exitpriority=1)  # otherwise an executor's worker ends without closing it


def _compile(code: str, problem_source: str) -> None:
    _served.compile(code, problem_source)


def _evaluate(problem: Problem, code: str, best_speedup: float) -> Verdict:
    return _served.evaluate(problem, code, best_speedup)


def _opens(verdict: Verdict) -> bool:
    """Return whether the problem was opened for a verdict; the static gate and the compiler open none."""
    return verdict.reference_ms > 0 or verdict.degenerate or "reference_error" in verdict.reasons


def _in_turn(pairs: Iterable[tuple[str, Problem, str]], at_once: int) -> Iterator[tuple[str, Problem, str]]:
    """Yield pairs of long problems first, one pair of each of `at_once` problems in turn."""
    groups: dict[str, list[tuple[str, Problem, str]]] = {}
    for pair in sorted(pairs, key=lambda pair: len(pair[1].source), reverse=True):
        groups.setdefault(session_key(pair[1]), []).append(pair)
    problems = list(groups.values())
    for start in range(0, len(problems), at_once):
        for turn in zip_longest(*problems[start : start + at_once]):
            yield from (pair for pair in turn if pair is not None)


class EvaluatorPool(Closable):
    """`config.slots` evaluators, each a process, on one device that they own together; a context manager.

    Separate processes compile candidates, so that no slot waits for a compiler. A candidate goes to a slot that has its
    problem open, if there is one. When a worker is killed, its candidate is evaluated a second time.

    Args:
        turns_file: path that other evaluators of the device use too; empty = there are none.

    Raises (constructor): UserError for a configuration that this machine cannot provide.
    """

    def __init__(self, config: EvaluationConfig | None = None, *, turns_file: str = "") -> None:
        self.config = prepared(config)
        if self.config.slots < 1:
            raise UserError(f"evaluation.slots is {self.config.slots}: it must be 1 or more")
        self._folder = OwnedFolder("evaluators")
        if self.config.slots > 1 and not turns_file:
            turns_file = str(self._folder.path / "turns")
        if not self.config.compile_cache:  # shared by the slots
            self.config.compile_cache = str(self._folder.path / "extensions")
        if self.config.slots > 1 and not self.config.problem_cache:
            self.config.problem_cache = str(self._folder.path / "problems")
        self._cores = None if self.config.device == "cpu" else measuring_cores()
        # Workers send the key of each problem that they put into the store. Several processes write to one pipe: a key
        # is far shorter than what the kernel writes atomically.
        self._keys, self._stored = multiprocessing.get_context("spawn").Pipe(duplex=False)
        self._shared = turns_file, self._cores.numbers if self._cores else [], self._stored
        self._hardware = device_name(self.config.device)
        self._degenerate: set[str] = set()  # keys of degenerate problems
        self._schedule = Schedule(remembered=self.config.live_references, patience_s=PATIENCE_S)
        self._change = threading.Condition()  # notified when the schedule or the workers change
        self._workers = [self._start(1, _open) for _ in range(self.config.slots)]
        for worker in self._workers:
            worker.submit(os.getpid)  # starts all workers now, side by side
        self._compilers = self._start(max(1, self.config.compilers), _open_compiler)
        self._listener = threading.Thread(target=self._receive_stored, daemon=True)
        self._listener.start()

    def _receive_stored(self) -> None:
        """Let candidates begin as soon as their problem can be read, however long its first candidate takes."""
        while key := self._keys.recv():
            with self._change:
                self._schedule.opened(key)
                self._change.notify_all()

    def _start(self, count: int, opener: Callable[..., None]) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(count, _Context(), initializer=opener, initargs=(self.config, *self._shared))

    def evaluate(
        self, problem: Problem, code: str, best_speedup: float = 0.0, stopped: threading.Event = NEVER
    ) -> Verdict:
        """Return what `Evaluator.evaluate` does; several threads may call it at once.

        Raises:
            CancelledError: `stopped` is set while no worker has the candidate.
        """
        key = session_key(problem)
        common = {
            "device": self.config.device, "hardware": self._hardware, "candidate_hash": candidate_hash(code),
            "degenerate": key in self._degenerate,
        }  # fmt: skip
        finding = check_static(code, self.config.rules, gate=self.config.check.static_gate).refusal
        if finding is not None:  # a static refusal needs no process
            return Verdict.rejected(problem.problem_id, finding.reason, finding.detail, **common)
        self._build_ahead(problem, code, stopped)
        work = Work(problem.problem_id, key)
        with self._change:
            self._schedule.submit(work)
        opened = False
        try:
            while True:
                worker = self._worker_for(work, stopped)
                try:
                    verdict = self._submit(worker, problem, code, best_speedup).result()
                except BrokenProcessPool as error:
                    with self._change:
                        self._replace(worker)
                        given_up = self._schedule.lost(worker)
                    if given_up:
                        detail = f"an evaluator process died: {error}"
                        return Verdict.rejected(problem.problem_id, "evaluator_error", detail, **common)
                    continue
                opened = _opens(verdict)
                if verdict.degenerate:
                    self._degenerate.add(key)
                return verdict
        finally:
            with self._change:
                self._schedule.done(work, opened=opened)
                self._change.notify_all()

    def _worker_for(self, work: Work, stopped: threading.Event = NEVER) -> int:
        """Wait until the schedule gives the candidate to a worker; return that worker's number. Raise CancelledError
        once `stopped` is set.
        """
        with self._change:
            while work.worker is None:
                if stopped.is_set():
                    raise CancelledError
                if self._schedule.assign(range(len(self._workers))):
                    self._change.notify_all()
                else:
                    self._change.wait(PATIENCE_S / 5)
            return work.worker

    def _submit(self, number: int, *arguments: Any) -> Future[Verdict]:
        try:
            return self._workers[number].submit(_evaluate, *arguments)
        except BrokenProcessPool:  # the worker died while idle, which counts as no attempt
            self._replace(number)
            return self._workers[number].submit(_evaluate, *arguments)

    def _replace(self, number: int) -> None:
        self._workers[number].shutdown(wait=False, cancel_futures=True)
        self._workers[number] = self._start(1, _open)

    def _build_ahead(self, problem: Problem, code: str, stopped: threading.Event) -> None:
        """Fill the cache of extensions; the evaluator reports what does not build. Raise CancelledError once `stopped`
        is set.
        """
        if "cpp_extension" not in code:
            return
        compilers = self._compilers
        try:
            build = compilers.submit(_compile, code, problem.source)
            while not wait([build], PATIENCE_S / 5).done:
                if stopped.is_set():
                    build.cancel()
                    raise CancelledError
            build.result()
        except BrokenProcessPool:
            with self._change:
                if self._compilers is compilers:
                    compilers.shutdown(wait=False, cancel_futures=True)
                    self._compilers = self._start(max(1, self.config.compilers), _open_compiler)

    def evaluate_all(
        self, pairs: Iterable[tuple[str, Problem, str]], best: BestSpeedups | None = None
    ) -> Iterator[tuple[str, Verdict]]:
        """Yield (id, verdict) of every (id, problem, code), in the order in which verdicts are ready. Each candidate is
        compared to the best of its problem so far, by `best` and by the verdicts before it.

        Long problems come first: a network's text is longer than an operator's, and a long evaluation at the end leaves
        all other slots idle. As many problems as there are slots take turns, so that they are opened side by side.

        A caller that stops iterating waits for the candidates that workers have; the others never begin. After an
        interrupt while this waits the verdicts on those are yielded before KeyboardInterrupt is raised.
        """
        ordered, stopped = _in_turn(pairs, self.config.slots), threading.Event()
        speedups = best or BestSpeedups()

        def evaluate(problem: Problem, code: str) -> Verdict:
            verdict = self.evaluate(problem, code, speedups.of(problem), stopped)
            speedups.saw(problem, verdict)
            return verdict

        waiting: dict[Future[Verdict], str] = {}

        def stop() -> None:
            for future in waiting:
                future.cancel()
            with self._change:
                stopped.set()
                self._change.notify_all()

        with ThreadPoolExecutor(self.config.in_flight) as threads:
            try:
                for identity, problem, code in ordered:
                    waiting[threads.submit(evaluate, problem, code)] = identity
                for done in as_completed(waiting):
                    yield waiting.pop(done), done.result()
            except KeyboardInterrupt:
                stop()
                for done in as_completed([future for future in waiting if not future.cancelled()]):
                    if done.exception() is None:
                        yield waiting[done], done.result()
                raise
            finally:
                stop()

    def close(self) -> None:
        """End every process; a second call does nothing."""
        for worker in self._workers:
            worker.shutdown(wait=True, cancel_futures=True)
        self._compilers.shutdown(wait=True, cancel_futures=True)
        if not self._stored.closed:
            self._stored.send("")
            self._listener.join()
            self._stored.close()
            self._keys.close()
        if self._cores is not None:
            self._cores.close()
        self._folder.close()
