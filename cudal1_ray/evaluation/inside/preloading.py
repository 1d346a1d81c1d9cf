"""What a fork server for a GPU has in memory beside torch: the compilers that candidates import, as far as their first
kernel needs what is the same for all.

Every candidate with a Triton kernel has a process and a cache of its own. Without this each imported Triton twice
(screening, measurement), hashed its library of 400 MB for the name of its first kernel, and built the same helper from
C: 0.71 s until a simple kernel was compiled, of which 0.06 s are left (Triton 3.6, one idle core; with six slots beside
an H100 no first call took less than 1.0 s).
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
from contextlib import suppress

# Functions of Triton's that remember what they give: hashes of itself (in one place or the other) and the platform.
_REMEMBERED = (
    ("triton.runtime.cache", "triton_key"), ("triton.compiler.compiler", "triton_key"),
    ("triton.runtime.build", "platform_key"),
)  # fmt: skip
_LONGEST_BUILD_S = 30  # of the helper, which takes 0.3 s


def preload() -> dict[str, bytes]:
    """Import what candidates do, where it is there; return files of Triton's cache, by path: its helper for the driver,
    built from Triton's own text. Nothing here opens a GPU or starts a thread: contestants are forked from this process.
    """
    with suppress(Exception):
        importlib.import_module("torch.utils.cpp_extension")
    with suppress(Exception):
        for name in ("triton.language", "triton.compiler.code_generator", "triton.backends.nvidia.driver"):
            importlib.import_module(name)
        for module, name in _REMEMBERED:
            with suppress(KeyError, AttributeError):
                getattr(sys.modules[module], name)()
        return _driver_helper()
    return {}


def _driver_helper() -> dict[str, bytes]:
    """Build in a process that ends, since the helper loads the driver, which must not be there before a fork."""
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            signal.alarm(_LONGEST_BUILD_S)
            try:
                os.environ["TRITON_CACHE_DIR"] = folder
                sys.modules["triton.backends.nvidia.driver"].CudaUtils()
            finally:  # without a driver it is built and cannot be loaded
                os._exit(0)
        os.waitpid(child, 0)
        return {
            os.path.relpath(path, folder): _read(path)
            for parent, _, names in os.walk(folder)
            for path in (os.path.join(parent, name) for name in names if name.endswith(".so"))
        }


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def furnish_cache(folder: str, files: dict[str, bytes]) -> None:
    """Write files of a cache to a contestant's own."""
    for name, data in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
