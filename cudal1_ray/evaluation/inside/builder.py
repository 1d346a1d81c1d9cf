"""The process of the compile step: imports a candidate so that its inline extensions are built, and hands them over."""

from __future__ import annotations

import os
from typing import Any

import torch

from .constructing import constructor_arguments
from .executing import execute
from .extensions import ExtensionBuildError, install_extension_loader
from .harness import Contestant


def _say_that_there_is_a_gpu(architecture: str) -> None:
    """Many candidates build only where they see one; this process builds for one that others will see."""
    capability = tuple(int(part) for part in architecture.split(";")[0].rstrip("af+PTX").split("."))
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_capability = lambda device=None: capability


class Builder(Contestant):
    """Operation `build`; it runs where no GPU is visible."""

    def build(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Builds what importing the code and constructing its model builds.

        Libraries are written, one after another, into the given file.
        """
        built: list[tuple[str, str]] = []
        failed: list[tuple[str, str]] = []  # which a candidate may catch, to go on without
        if message["architecture"]:
            _say_that_there_is_a_gpu(message["architecture"])
        install_extension_loader(
            self.scratch, {}, {}, lambda key, path: built.append((key, path)), lambda *failure: failed.append(failure)
        )
        try:
            candidate = execute(message["code"], self.scratch, "candidate")
            if message["problem_source"]:
                problem = execute(message["problem_source"], self.scratch, "reference")
                given, named = constructor_arguments(problem.get_init_inputs())
                candidate.ModelNew(*given, **named)
        except ExtensionBuildError:
            raise
        except Exception:  # it may want the GPU that is hidden here: what it is worth shows in the contestant
            pass
        entries, offset = [], 0
        for key, path in built:
            with open(path, "rb") as file:
                data = file.read()
            written = 0
            while written < len(data):
                written += os.pwrite(fds[0], data[written:], offset + written)
            entries.append([key, offset, len(data)])
            offset += len(data)
        return {"libraries": entries, "failed": failed}
