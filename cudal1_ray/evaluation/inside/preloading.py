"""Triton in the memory of a fork server for a GPU: work that the first kernels of all candidates have in common.

Every contestant is a process with its own cache. Without preloading, each imports Triton, hashes its library of 400 MB
for the name of its first kernel, and builds the same driver module from C.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path

# Seconds; a third of the time that the evaluator waits for a server. `preload` takes 1.2 s of CPU time (Triton 3.6).
_LONGEST_PROBE_S = 60
_DRIVER = "triton.backends.nvidia.driver"
_FAILED, _SPOILT = 1, 3  # exit codes of the probe
_REASONS = {
    _FAILED: "it cannot be imported", _SPOILT: "a process forked after its import could not use CUDA",
    -signal.SIGALRM: f"its import takes more than {_LONGEST_PROBE_S} s",
}  # fmt: skip


def preload() -> dict[str, bytes]:
    """Import Triton, where it is installed; return files of its cache by path: the built module for its driver.

    A fork tries that first. If it fails, or its own forks cannot use CUDA then, this process imports nothing, and each
    candidate imports Triton by itself, which only takes time.
    """
    if importlib.util.find_spec("triton") is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        probe = os.fork()
        if probe == 0:
            _probe(folder)
        code = os.waitstatus_to_exitcode(os.waitpid(probe, 0)[1])
        if code:
            reason = _REASONS.get(code, f"its import ends with {code}")
            print(f"fork server: Triton is not preloaded: {reason}", file=sys.stderr, flush=True)
            return {}
        _import_triton()
        return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*.so")}


def furnish_cache(folder: str, files: dict[str, bytes]) -> None:
    """Write the files of a cache, by path, to a contestant's own folder."""
    for name, data in files.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _import_triton() -> None:
    """Import what a first kernel needs, and have Triton compute the hashes that it caches.

    torch.utils.cpp_extension and torch._inductor stay out: both count the devices when they are imported.
    """
    for name in ("triton.language", "triton.compiler.code_generator", _DRIVER):
        importlib.import_module(name)
    importlib.import_module("triton.runtime.cache").triton_key()
    importlib.import_module("triton.runtime.build").platform_key()


def _probe(folder: str) -> None:
    """Import Triton, test whether forks can use CUDA then, and build the module for the driver in `folder`; then exit.

    The module loads the driver, so it is built in no process from which contestants are forked.
    """
    code = _FAILED
    try:
        signal.alarm(_LONGEST_PROBE_S)
        devices = _open_devices()
        _import_triton()
        code = 0 if _open_devices() == devices and _torch_lets_forks_use_cuda() else _SPOILT
        if code == 0:
            os.environ["TRITON_CACHE_DIR"] = folder
            importlib.import_module(_DRIVER).CudaUtils()
    except Exception:  # without a driver the module is built, but cannot be loaded
        if code:
            traceback.print_exc()
    finally:
        os._exit(code)


def _torch_lets_forks_use_cuda() -> bool:
    """Return whether a fork of this process may use CUDA: torch refuses once the process has counted devices."""
    import torch

    fork = os.fork()
    if fork == 0:
        os._exit(torch.cuda._is_in_bad_fork())
    return os.waitpid(fork, 0)[1] == 0


def _open_devices() -> set[str]:
    """Return the GPU devices that this process has open: the driver opens them when it is initialised."""
    paths = map(os.path.realpath, Path("/proc/self/fd").iterdir())
    return {path for path in paths if "/dev/nvidia" in path}
