"""The compile step: separate from evaluation, without a GPU, once per text.

Plain Python is only parsed. A sandboxed builder that sees no GPU imports a candidate with inline extensions; the
resulting libraries are stored under the hash of the candidate's whole text, torch's version and the configuration.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import sys
from dataclasses import dataclass, field
from functools import partial

import msgspec

from cudal1_ray.closable import Closable
from cudal1_ray.evaluation.compiling.cache import CompileCache, CompileResult, without_building
from cudal1_ray.evaluation.compiling.headers import PrecompiledHeaders
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.exchange.messages import Build
from cudal1_ray.evaluation.hardware import visible_architecture
from cudal1_ray.evaluation.host.handles import ForkServer, Misbehaviour, NoAnswer, ServerDied
from cudal1_ray.evaluation.screening.slow_references import SlowReferences
from cudal1_ray.evaluation.sharing.schedule import ATTEMPTS

# Version of the format of a cache's entries.
_FORM = "2"
_LARGEST_BUILD = 1 << 30
_MOST_FAILURES, _LONGEST_TEXT = 64, 2000
# Only results that the text itself decides are remembered; a timeout may be due to the machine.
_REMEMBERED = ("", "compile_error", "runtime_error")
# Libraries whose kernels a candidate may legitimately go on with.
_OTHER_KERNELS = re.compile(r"\b(triton|cupy|numba)\b")


@dataclass(frozen=True)
class Extensions:
    """Compiled libraries, which the contestants of one candidate get instead of a compiler."""

    libraries: dict[str, int] = field(default_factory=dict)  # build key -> open descriptor
    failed: dict[str, str] = field(default_factory=dict)  # build key -> the compiler's message

    @classmethod
    def of(cls, result: CompileResult) -> Extensions:
        """Open the libraries; the caller closes them."""
        libraries = {key: os.open(path, os.O_RDONLY | os.O_CLOEXEC) for key, path in result.libraries.items()}
        return cls(libraries, result.failed)

    def close(self) -> None:
        for fd in self.libraries.values():
            os.close(fd)


class Compiler(Closable):
    """Compiles candidates on a machine that needs no GPU; a context manager. Not for several threads at once."""

    def __init__(self, config: EvaluationConfig | None = None) -> None:
        self.config = copy.deepcopy(config or EvaluationConfig())
        if self.config.device != "cpu" and not self.config.cuda_arch_list:
            self.config.cuda_arch_list = visible_architecture()
        self.cache = CompileCache(self.config.compile_cache)
        self._headers = PrecompiledHeaders(self.cache.folder / "headers")
        self._server: ForkServer | None = None
        self._references = SlowReferences(self.config)

    def build_for(self, architecture: str) -> None:
        """Build for GPUs of this architecture ("9.0a"), unless the configuration or a visible GPU names one."""
        if self.config.device != "cpu" and architecture and not self.config.cuda_arch_list:
            self.config.cuda_arch_list = architecture
            self._stop_server()

    def compile(self, code: str, problem_source: str = "") -> CompileResult:
        """Return the result of the candidate's builds; nothing that the candidate does raises an error.

        With the problem's source the candidate's model is constructed as well, since many build their extensions then.
        A candidate that catches the failures of all its builds, and has no kernels of another kind, has nothing of its
        own left: compile_error, or silent_fallback, unless `rules.fallbacks` allows it.
        """
        if (result := without_building(code)) is not None:
            return result
        key = self._key(code, problem_source)
        result = self.cache.get(key)
        if result is None:
            result, libraries = self._build(code, problem_source)
            self._headers.note(code)
            if result.reason not in _REMEMBERED:
                return result
            self.cache.put(key, result, libraries)
            result = msgspec.structs.replace(self.cache.get(key) or result, cached=False)
        fallbacks = self.config.rules.fallbacks
        refused = fallbacks != "allow" and not _OTHER_KERNELS.search(code)
        if result.ok and result.failed and not result.libraries and refused:
            reason = "silent_fallback" if fallbacks == "reject" else "compile_error"
            detail = f"goes on without its extension, which does not build: {next(iter(result.failed.values()))}"
            return msgspec.structs.replace(result, reason=reason, detail=detail)
        return result

    def _key(self, code: str, problem_source: str) -> str:
        import torch

        parts = (_FORM, torch.__version__, str(sys.version_info[:3]), self.config.cuda_arch_list, problem_source, code)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def _build(self, code: str, problem_source: str) -> tuple[CompileResult, dict[str, bytes]]:
        for _ in range(ATTEMPTS):
            try:
                if self._server is None:
                    self._server = ForkServer(self.config, headers=str(self._headers.path))
                attempt = partial(self._build_once, self._server, code, problem_source)
                return self._references.with_time(self._server, problem_source, code, attempt)
            except ServerDied as error:
                trouble = str(error)
            except Misbehaviour as error:
                return CompileResult(error.reason, error.detail), {}
        return CompileResult("evaluator_error", trouble), {}

    def _build_once(
        self, server: ForkServer, code: str, problem_source: str, alone_s: float
    ) -> tuple[CompileResult, dict[str, bytes]]:
        builder = server.spawn(role="builder", cores=[])
        build = os.memfd_create("build", os.MFD_CLOEXEC)
        try:
            architecture = self.config.cuda_arch_list if self.config.device != "cpu" else ""
            request = Build(code, problem_source, architecture)
            limit_s = self.config.limits.load_timeout_s * 2
            built, refused = builder.ask(request, limit_s, doing="the build", fds=(build,), alone_s=alone_s)
            libraries = _libraries(built, build)
            failed = {key: text[:_LONGEST_TEXT] for key, text in refused[:_MOST_FAILURES]}
            return CompileResult(failed=failed), libraries
        finally:
            builder.close()
            os.close(build)

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def close(self) -> None:
        self._stop_server()
        self._headers.close()
        self.cache.close()


def _libraries(entries: list[tuple[str, int, int]], build: int) -> dict[str, bytes]:
    """Return the libraries in the file `build`, by key; raise NoAnswer where `entries` claim more bytes than it has."""
    if sum(length for _, _, length in entries) > min(os.fstat(build).st_size, _LARGEST_BUILD):
        raise NoAnswer("more than was built")
    return {key: os.pread(build, length, offset) for key, offset, length in entries}
