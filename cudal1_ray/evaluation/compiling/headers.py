"""Torch's C++ headers, precompiled once for all builds: reading them takes most of an inline extension's build time.

The compiler finds precompiled headers by CPATH, takes the one made with a build's own flags, and reads the plain
headers where there is none. The trusted side makes them, of torch's header alone; builders can only read them. nvcc
preprocesses its files, for which no precompiled header serves: a CUDA extension saves only the time of its C++ part.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shlex
import subprocess
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from cudal1_ray.files import lock_file, write_atomically
from cudal1_ray.source.extensions import flags_of

# Builds with the same flags after which a header is made: it takes as long as three builds save, 49 s and 15 s of one
# core of an EPYC, where builds go from 25 to 10 s.
_FEWEST_BUILDS = 3
# Most precompiled headers; each takes 755 MB.
_MOST_HEADERS = 3


class PrecompiledHeaders:
    """Precompiled headers of one version of torch in `folder`, which several processes may share."""

    def __init__(self, folder: Path) -> None:
        import torch

        self.path = folder / torch.__version__.replace("+", "-")  # for CPATH, and for builders to read
        self._made = self.path / "torch" / "extension.h.gch"
        self._made.mkdir(parents=True, exist_ok=True)
        again = self._made.with_suffix("")  # opened by a text's second #include, for which no precompiled header serves
        if not again.exists():
            write_atomically(again, "#include_next <torch/extension.h>\n")
        self._builds: Counter[tuple[str, ...]] = Counter()
        self._process: subprocess.Popen[bytes] | None = None

    def note(self, code: str) -> None:
        """Count a build; start `make` for its flags at the build number `_FEWEST_BUILDS`."""
        flags = flags_of(code)
        if flags is None:
            return
        self._builds[flags] += 1
        if self._builds[flags] == _FEWEST_BUILDS and len(list(self._made.iterdir())) < _MOST_HEADERS:
            threading.Thread(target=self.make, args=(flags,), daemon=True).start()

    def make(self, flags: tuple[str, ...]) -> bool:
        """Make the header for builds with these flags, unless another process does; return whether it exists now."""
        path = self._made / hashlib.sha256(repr(flags).encode()).hexdigest()[:16]
        unfinished = self.path / path.name  # the compiler tries whatever lies beside finished ones
        # These errors are raised where no compiler is installed.
        with suppress(OSError, ValueError, LookupError), open(f"{unfinished}.lock", "w") as lock:
            if lock_file(lock, wait=False) and not path.exists():  # else another process makes it
                command, null = ["nice", *_command(flags, unfinished)], subprocess.DEVNULL
                self._process = subprocess.Popen(command, stdin=null, stdout=null, stderr=null)
                if self._process.wait() == 0:
                    os.rename(unfinished, path)
        return path.exists()

    def close(self) -> None:
        """End a compiler that is running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _command(flags: tuple[str, ...], target: Path) -> list[str]:
    """Return the command with which torch compiles an extension's C++ with these flags, for torch's own header."""
    import torch
    from torch.utils import cpp_extension

    write = cpp_extension._write_ninja_file_to_build_library
    arguments: dict[str, Any] = dict.fromkeys(inspect.signature(write).parameters, [])
    arguments |= {"name": "header", "sources": ["header.cpp"], "extra_cflags": list(flags), "path": f"{target}.ninja"}
    arguments |= {name: False for name in arguments if name.startswith(("with_", "is_"))}
    write(**arguments)
    text = Path(f"{target}.ninja").read_text()
    Path(f"{target}.ninja").unlink()
    lines = dict(line.split(" = ", 1) for line in text.splitlines() if line.startswith(("cxx = ", "cflags = ")))
    options = [word for word in shlex.split(lines["cflags"]) if not word.startswith("-DTORCH_EXTENSION_NAME=")]
    header = Path(torch.__file__).parent / "include" / "torch" / "extension.h"
    return [*shlex.split(lines["cxx"]), *options, "-x", "c++-header", str(header), "-o", str(target)]
