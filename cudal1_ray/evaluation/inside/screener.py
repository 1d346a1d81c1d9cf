"""The process of the screening stage: imports a candidate and constructs its model before any problem is opened."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import torch

from cudal1_ray.evaluation.exchange import messages
from cudal1_ray.evaluation.exchange.server_messages import Failure
from cudal1_ray.evaluation.inside.constructing import construct_unfilled, constructor_arguments
from cudal1_ray.evaluation.inside.cpu_device import CpuDevice
from cudal1_ray.evaluation.inside.executing import execute
from cudal1_ray.evaluation.inside.harness import MISSING_MODEL, Contestant

_NAME, _OF_A_PROBLEM = "reference", b"reference"  # a problem's module, which a pickle names with each of its types


class Screener(Contestant):
    """Operations `construction` and `screen`. It holds only the problem's text, which every candidate knows."""

    _given: tuple[list[Any], dict[str, Any]] = ([], {})

    def construction(self, request: messages.Construction, fds: list[int]) -> bool:
        """Execute the problem's text for its constructor arguments. Return False where that changed global state, or
        the arguments are of the text's own types: a candidate would not be constructed as it is later.
        """
        self.device = CpuDevice(request.threads)
        before = self.device.state()
        module = execute(request.source, self.scratch, _NAME)
        self._given = constructor_arguments(module.get_init_inputs())
        own_types = _OF_A_PROBLEM in pickle.dumps(self._given, protocol=4)
        sys.modules.pop(_NAME)
        after = self.device.state()
        return not own_types and all(before[name] == after[name] for name in before)

    def screen(self, request: messages.Screen, fds: list[int]) -> Failure | None:
        """Import the candidate and construct its model on the CPU, with its own initial weights. As soon as it wants a
        GPU's context (`device` is not the CPU), answer None and end the process: making a context takes half a second,
        and the timed process makes one anyway.
        """
        if request.device != "cpu":
            torch.cuda._lazy_init = self._end_undecided
        self.provide_extensions(request, fds)
        kind = getattr(execute(request.code, self.scratch, "candidate"), "ModelNew", None)
        if not isinstance(kind, type):
            return MISSING_MODEL
        positional, named = self._given
        construct_unfilled(kind, positional, named)
        return None

    def _end_undecided(self) -> None:
        self.channel.send(None)
        os._exit(0)
