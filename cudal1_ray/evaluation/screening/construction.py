"""The first stage of an evaluation, which opens no problem: whether the candidate builds, imports and constructs."""

from __future__ import annotations

from cudal1_ray.closable import Closable
from cudal1_ray.evaluation.compiling.compiler import Compiler, Extensions
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.exchange.messages import Construction, Screen
from cudal1_ray.evaluation.host.handles import ContestantHandle, ForkServer, Misbehaviour
from cudal1_ray.evaluation.screening.slow_references import SlowReferences
from cudal1_ray.problems import Problem

# Failures that a process with the device would show as well. Others (memory, a crash) may be due to its absence.
_DECISIVE = frozenset(("runtime_error", "compile_error", "missing_model", "timeout"))


class Screening(Closable):
    """Builds candidates' extensions, and imports and constructs candidates in a forked process on the CPU, which takes
    about 0.05 s each.

    A candidate that cannot be decided there passes on to the process with the device: it wants a GPU, its problem
    changes global state, or the problem's own text fails.
    """

    def __init__(self, config: EvaluationConfig, server: ForkServer) -> None:
        self._config, self._server, self._references = config, server, SlowReferences(config)
        self._compiler: Compiler | None = None  # created for the first candidate with extensions

    def build(self, problem: Problem, code: str) -> Extensions:
        """Return the candidate's compiled extensions, which the caller closes; raise Misbehaviour (compile_error) where
        they do not build.
        """
        if "cpp_extension" not in code:
            return Extensions()
        if self._compiler is None:
            self._compiler = Compiler(self._config)
        result = self._compiler.compile(code, problem.source)
        if not result.ok:
            raise Misbehaviour(result.reason, result.detail)
        return Extensions.of(result)

    def construct(self, problem: Problem, code: str, extensions: Extensions) -> None:
        """Import and construct the candidate in a process of its own.

        Raises:
            Misbehaviour: when that fails.
            ServerDied: when the fork server dies.
        """
        request = Screen(code, self._config.device, list(extensions.libraries), extensions.failed)
        fds, limit_s = tuple(extensions.libraries.values()), self._config.limits.load_timeout_s

        def attempt(alone_s: float) -> None:
            screener = self._server.spawn(role="screener", cores=[])
            try:
                if self._has_arguments(screener, problem):
                    screener.ask(request, limit_s, doing="import and construction", fds=fds, alone_s=alone_s)
            finally:
                screener.close()

        try:
            self._references.with_time(self._server, problem.source, code, attempt)
        except Misbehaviour as error:
            if error.reason in _DECISIVE:
                raise

    def _has_arguments(self, screener: ContestantHandle, problem: Problem) -> bool:
        """Return whether the problem defines the model's constructor arguments and leaves global state as it was."""
        request = Construction(problem.source, self._config.threads)
        try:
            return screener.ask(request, self._config.limits.load_timeout_s, doing="the problem's import")
        except Misbehaviour:
            return False

    def close(self) -> None:
        """End the compiler; a second call does nothing."""
        if self._compiler is not None:
            self._compiler.close()
            self._compiler = None
