"""Messages of every process, and those of the fork server, which reads its first one before torch is imported."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from msgspec import Struct

# Failures that a process may report of itself; any other kind in an answer is forged.
OwnFailure = Literal[
    "runtime_error", "memory_limit", "resource_exhaustion", "compile_error", "lazy_tensor", "missing_model",
    "output_dtype",
]  # fmt: skip


class Failure(Struct):
    """An error in place of an answer."""

    error: str
    kind: OwnFailure = "runtime_error"


class Request(Struct, tag_field="op", tag=lambda name: re.sub("(?<!^)(?=[A-Z])", "_", name).lower()):
    """A request names its operation by the class's name in lower case, and knows the type of its answer."""

    answer: ClassVar[Any] = None


class Walls(Struct):
    """The settings of a fork server for the sandbox of its contestants."""

    root: str  # an empty folder that becomes the mount point of the new root
    readable: tuple[str, ...]  # folders and files that contestants may read
    package: str  # this package's own folder: readable while the server starts, hidden from contestants
    device: str  # cpu or cuda
    nodes: tuple[str, ...]  # devices that contestants may open beside those that every process needs


class Greeting(Struct):
    """The first message to a server, which answers with its level."""

    walls: Walls
    level: str  # of the sandbox; "": the strongest that the server finds


class Limits(Struct):
    """The part of `LimitConfig` that the kernel enforces."""

    memory_mib: int
    processes: int
    files: int
    scratch_mib: int


class Spawn(Request):
    """Starts a contestant. Answer: the supervisor's process id."""

    answer: ClassVar[Any] = int

    role: str
    cores: list[int]
    limits: Limits
    scratch: str
    queues: int  # hardware queues of a GPU; 0 = the driver's default


class Kill(Request):
    supervisor: int


def operation(request: Request | type[Request]) -> str:
    """Return the name of a request's operation."""
    return str(request.__struct_config__.tag)
