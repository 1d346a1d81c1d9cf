"""The first stage of an evaluation, which opens no problem: whether the candidate builds, imports and constructs."""

from __future__ import annotations

import time

from cudal1_ray.closable import Closable
from cudal1_ray.evaluation.compiling.compiler import Compiler, Extensions
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.exchange.messages import Construction, Screen
from cudal1_ray.evaluation.host.handles import ContestantHandle, ForkServer, Misbehaviour
from cudal1_ray.evaluation.screening.hints import longest_alone_s
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
        self._config, self._server = config, server
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
        limits, doing = self._config.limits, "import and construction"
        screener = self._server.spawn(role="screener", cores=[])
        try:
            start = time.monotonic()
            if self._has_arguments(screener, problem):
                alone_s = longest_alone_s(code, limits, time.monotonic() - start)
                request = Screen(code, self._config.device, list(extensions.libraries), extensions.failed)
                fds = tuple(extensions.libraries.values())
                screener.ask(request, limits.load_timeout_s, doing=doing, fds=fds, alone_s=alone_s)
        except Misbehaviour as error:
            if error.reason in _DECISIVE:
                raise
        finally:
            screener.close()

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
