"""The process of the compile step: imports a candidate so that its inline extensions are built, and hands them over."""

from __future__ import annotations

import os
import shutil

import torch

from cudal1_ray.evaluation.exchange import messages
from cudal1_ray.evaluation.inside.constructing import construct_unfilled, constructor_arguments
from cudal1_ray.evaluation.inside.executing import execute
from cudal1_ray.evaluation.inside.extensions import ExtensionBuildError, install_extension_loader
from cudal1_ray.evaluation.inside.harness import Contestant


def _pretend_gpu(architecture: str) -> None:
    """Pretend that a GPU is visible, for candidates that build their extensions only then."""
    capability = tuple(int(part) for part in architecture.split(";")[0].rstrip("af+PTX").split("."))
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_capability = lambda device=None: capability


class Builder(Contestant):
    """Operation `build`, in a process that sees no GPU."""

    def build(
        self, request: messages.Build, fds: list[int]
    ) -> tuple[list[tuple[str, int, int]], list[tuple[str, str]]]:
        """Build what importing the code and constructing its model builds; write the libraries to the given file."""
        failed: dict[str, str] = {}  # a candidate may catch these failures and go on
        if request.architecture:
            _pretend_gpu(request.architecture)
        built = install_extension_loader(self.scratch, {}, failed)
        try:
            candidate = execute(request.code, self.scratch, "candidate")
            if request.problem_source:
                problem = execute(request.problem_source, self.scratch, "reference")
                positional, named = constructor_arguments(problem.get_init_inputs())
                construct_unfilled(candidate.ModelNew, positional, named)
        except ExtensionBuildError:
            raise
        except Exception:  # it may need the GPU that is hidden here; the contestant's process shows whether it works
            pass
        entries = []
        with os.fdopen(fds[0], "wb", closefd=False) as file:
            for key, path in list(built.items()):  # a thread of the candidate may still build
                start = file.tell()
                with open(path, "rb") as library:
                    shutil.copyfileobj(library, file)
                entries.append((key, start, file.tell() - start))
        return entries, list(failed.items())
