"""Several evaluators of one device side by side: while one measures alone, the others get their candidates ready."""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from multiprocessing.util import Finalize

from ..errors import UserError
from ..files import OwnedFolder
from ..problems import Problem
from .baselines import check_baseline
from .compiling.compiler import Compiler
from .config import EvaluationConfig
from .confirmation import BestSpeedups
from .cores import MeasuringCores, leave_measuring_cores
from .evaluator import Evaluator
from .hardware import device_name, require_device, visible_architecture
from .host.handles import ATTEMPTS
from .referee.session import session_key
from .rules import check_static
from .slots import Slots
from .verdict import Verdict, candidate_hash

_evaluator: Evaluator | None = None
_compiler: Compiler | None = None


def _open(config: EvaluationConfig) -> None:
    global _evaluator
    _follow_owner()
    leave_measuring_cores(config.measuring_cores)
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # comparing needs no more, see `ForkServer.spawn`
    _evaluator = Evaluator(config)
    Finalize(None, _evaluator.close, exitpriority=1)  # a worker of an executor ends without it otherwise


def _open_compiler(config: EvaluationConfig) -> None:
    global _compiler
    _follow_owner()
    leave_measuring_cores(config.measuring_cores)
    os.nice(10)
    _compiler = Compiler(config)
    Finalize(None, _compiler.close, exitpriority=1)


def _follow_owner() -> None:
    """A worker ends when its owner is killed (the executor alone would leave it waiting), and only its owner's
    interrupt counts.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    owner = multiprocessing.parent_process()
    if owner is None:
        return

    def end_with_it() -> None:
        wait_for([owner.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True).start()


def _compile(code: str, problem_source: str) -> None:
    if _compiler is not None:
        _compiler.compile(code, problem_source)


def _evaluate(problem: Problem, code: str, best_speedup: float) -> Verdict:
    if _evaluator is None:
        raise RuntimeError("this worker was never opened")
    return _evaluator.evaluate(problem, code, best_speedup)


def _opens(verdict: Verdict) -> bool:
    """Did that verdict take its problem? One of the gate or of a compiler does not."""
    return verdict.reference_ms > 0 or verdict.degenerate or "reference_error" in verdict.reasons


class EvaluatorPool:
    """As many evaluators as ``config.slots``, a process each, on one device that they own together; a context manager.

    Candidates are compiled in processes beside them, so that no slot waits for a compiler, and go to a slot that has
    their problem open, where there is one. A worker that is killed costs its candidate a second attempt.

    Raises (constructor): UserError for a configuration that cannot be had on this machine.
    """

    _measuring_cores: MeasuringCores | None = None

    def __init__(self, config: EvaluationConfig | None = None) -> None:
        self.config = copy.deepcopy(config or EvaluationConfig())
        require_device(self.config.device)
        if complaint := check_baseline(self.config.against, self.config.device):
            raise UserError(f"evaluation.against: {complaint}")
        if self.config.slots < 1:
            raise UserError(f"evaluation.slots is {self.config.slots}: it must be 1 or more")
        self._folder = OwnedFolder("evaluators")
        if self.config.slots > 1 and not self.config.turns_file:
            self.config.turns_file = str(self._folder.path / "turns")
        if not self.config.compile_cache:  # shared by the slots
            self.config.compile_cache = str(self._folder.path / "extensions")
        if self.config.slots > 1 and not self.config.problem_cache:
            self.config.problem_cache = str(self._folder.path / "problems")
        if self.config.device != "cpu" and not self.config.cuda_arch_list:
            self.config.cuda_arch_list = visible_architecture()
        if self.config.device != "cpu" and not self.config.measuring_cores:
            self._measuring_cores = MeasuringCores()
            self.config.measuring_cores = self._measuring_cores.numbers
        self._hardware = device_name(self.config.device)
        self._lock = threading.Lock()
        self._degenerate: set[str] = set()  # problems that were found to be
        self._slots = Slots(self.config.slots, lambda: self._start(1, _open), self.config.live_references, _opens)
        self._compilers = self._start(max(1, self.config.compilers), _open_compiler)

    def _start(self, count: int, opener: Callable[[EvaluationConfig], None]) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(count, context, initializer=opener, initargs=(self.config,))

    def evaluate(self, problem: Problem, code: str, best_speedup: float = 0.0) -> Verdict:
        """Like `Evaluator.evaluate`; may be called by several threads at once."""
        trouble, key = "", session_key(problem)
        common = {
            "device": self.config.device, "hardware": self._hardware, "candidate_hash": candidate_hash(code),
            "degenerate": key in self._degenerate,
        }  # fmt: skip
        finding = check_static(code, self.config.rules, gate=self.config.check.static_gate).refusal
        if finding is not None:  # what needs no process waits for none
            return Verdict.rejected(problem.problem_id, finding.reason, finding.detail, **common)
        self._build_ahead(problem, code)
        for _ in range(ATTEMPTS):
            try:
                verdict = self._slots.run(key, _evaluate, problem, code, best_speedup)
                if verdict.degenerate:
                    self._degenerate.add(key)
                return verdict
            except BrokenProcessPool as error:
                trouble = f"an evaluator process died: {error}"
        return Verdict.rejected(problem.problem_id, "evaluator_error", trouble, **common)

    def _build_ahead(self, problem: Problem, code: str) -> None:
        """Fills the cache of extensions; what does not build, the evaluator will say."""
        if "cpp_extension" not in code:
            return
        compilers = self._compilers
        try:
            compilers.submit(_compile, code, problem.source).result()
        except BrokenProcessPool:
            with self._lock:
                if self._compilers is compilers:
                    compilers.shutdown(wait=False, cancel_futures=True)
                    self._compilers = self._start(max(1, self.config.compilers), _open_compiler)

    def evaluate_all(
        self, pairs: Iterable[tuple[str, Problem, str]], best: BestSpeedups | None = None
    ) -> Iterator[tuple[str, Verdict]]:
        """(id, verdict) of every (id, problem, code), in the order in which they are ready. Each is held against the
        best of its problem so far, as ``best`` knows it, and as those before it have shown.

        Long problems come first: a network's text is longer than an operator's, and one that takes long at the end
        keeps all other slots waiting for it.

        A caller that stops listening before the end waits for those in flight; the others are never begun.
        """
        ordered = sorted(pairs, key=lambda one: len(one[1].source), reverse=True)
        known = best or BestSpeedups()

        def judge(problem: Problem, code: str) -> Verdict:
            verdict = self.evaluate(problem, code, known.of(problem))
            known.saw(problem, verdict)
            return verdict

        with ThreadPoolExecutor(self.config.in_flight) as threads:
            waiting: dict[Future[Verdict], str] = {
                threads.submit(judge, problem, code): identity for identity, problem, code in ordered
            }
            try:
                for done in as_completed(waiting):
                    yield waiting[done], done.result()
            finally:
                for future in waiting:
                    future.cancel()

    def close(self) -> None:
        """Ends every process; calling it twice is fine."""
        self._slots.close()
        self._compilers.shutdown(wait=True, cancel_futures=True)
        if self._measuring_cores is not None:
            self._measuring_cores.close()
        self._folder.close()

    def __enter__(self) -> EvaluatorPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
