"""Messages between the trusted side and the processes behind the walls; every answer is checked as it is read.

A request knows the type of its answer (`Request.answer`). Any other answer raises ValueError in the reader. Files
(regions, libraries) travel beside a message as descriptors.
"""

from __future__ import annotations

from contextlib import suppress
from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct

from cudal1_ray.evaluation.exchange.placed_outputs import PlacedOutput
from cudal1_ray.evaluation.exchange.server_messages import Failure, Request
from cudal1_ray.evaluation.exchange.tensors import Shape, Size, TensorSpec
from cudal1_ray.evaluation.exchange.variant import Variant

Picks = list[float]  # positions, from 0 to 1, of the windows of a large tensor that are compared
Name = Annotated[str, Meta(max_length=256)]
Key = Annotated[str, Meta(pattern=r"^[0-9a-f]{16,64}\Z")]  # of a build: a hash, which names files
# Global switches, by their names in `CpuDevice.state`, that make arithmetic less precise than its type.
COARSER = ("matmul", "tf32", "cudnn_tf32", "fp16_reduction")


class DeviceSettings(Struct):
    """How a process opens its device."""

    device: str
    threads: int
    flush_mib: int = 0
    gpu_memory_share: float = 1.0


class Attach(Request):
    """Hands over the shared memory of one problem: descriptors of the pool of inputs and of the outputs' region."""

    pool: int
    out: int


class Forget(Request):
    """Drops all state of the last model and its calls."""


class Opened(Struct):
    """What contestants need to build their models as the problem's model was built."""

    state: list[tuple[str, TensorSpec]]
    init: bytes
    init_tensors: list[TensorSpec]
    arguments: bytes
    flat: bool  # arguments are tensors only
    in_place: bool  # the model could be built on the device itself
    nbytes: Size  # of everything written to the out region
    io_bytes: Size  # of one call's inputs and outputs
    dtype: str = "torch.float32"  # the default one, once the problem's text was executed


class Load(Request):
    """Opens the device, executes the code, builds the model and loads the weights. Answer: names of the reference's
    weights that have no counterpart in the model.
    """

    answer: ClassVar[Any] = list[str]

    role: str
    code: str
    neutralised: list[tuple[int, int]]  # (line, column) of handlers that re-raise
    device: DeviceSettings
    definitions: str  # the problem file, where arguments contain objects that it defines
    opened: Opened
    drawing: bytes
    eval_mode: bool
    resets_tf32: bool
    outputs: str
    in_order: bool
    model_seed: int
    against: str
    extensions: list[str]  # build keys, whose descriptors are sent along
    failed_extensions: dict[str, str]
    dressing: str = ""  # the text of a user's own baseline


class Reset(Request):
    """Restores the state at the start, for the next candidate's measurement."""


class Space(Request):
    """Moves later allocations in memory: see `Contestant.space`."""

    before: int
    after: int
    reuse: bool
    spoil: bool


class Prepare(Request):
    """Prepares the inputs of every call: see `Contestant.prepare`."""

    calls: list[Variant]
    seeds: list[int] | None
    reuse: bool
    late: bool
    ready: bool
    unclocked: bool
    gap: int
    spoil: bool


class Scatter(Request):
    mib: int
    reserve_mib: int


class Go(Request):
    """Runs the prepared calls. Answer: nanoseconds of each call, or of all together, by the process's own clock."""

    answer: ClassVar[Any] = list[Annotated[int, Meta(ge=0, lt=1 << 62)]]

    unclocked: bool
    queued: bool
    turn: int | None


class HandOver(Request):
    picks: Picks
    room: int


class Where(Request):
    answer: ClassVar[Any] = list[PlacedOutput]

    first: int


class Output(Struct):
    """One call's output: nesting, tensors in the outputs' region, and the shapes of the whole tensors."""

    structure: Any
    tensors: list[TensorSpec]
    shapes: list[Shape]


class Fetch(Request):
    answer: ClassVar[Any] = Output

    call: int
    picks: Picks | None


class FetchedInputs(Struct):
    tensors: list[TensorSpec]
    aliased: bool
    borrowed: Name


class FetchInputs(Request):
    answer: ClassVar[Any] = FetchedInputs

    call: int
    picks: Picks


class Inspect(Request):
    """Answer: names of global state that differs from the state at the start."""

    answer: ClassVar[Any] = list[Name]


class Observed(Struct):
    """The result of `observing.observe`."""

    changed: list[Name]  # see Inspect
    operations: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")]
    own: list[str]
    own_s: Annotated[float, Meta(ge=0)]
    call_s: Annotated[float, Meta(ge=0)]
    timed: bool
    compiled: bool


class Observe(Request):
    answer: ClassVar[Any] = Observed


class Profile(Request):
    """Answer: name and microseconds of each kernel."""

    answer: ClassVar[Any] = list[tuple[str, Annotated[float, Meta(ge=0)]]]


class Lock(Request):
    """Forbids new processes from now on."""


# To and from a problem's maker process.


class Open(Request):
    answer: ClassVar[Any] = Opened

    source: str
    seed: int
    model_seed: int
    device: DeviceSettings
    coarse_products: bool
    eval_mode: bool
    resets_tf32: bool
    alone: bool  # no other evaluator uses the device: memory that is short now will be so again


class Traits(Struct):
    """What the maker finds out about a problem's model and inputs."""

    stateful: bool
    stochastic: bool
    fixed_inputs: bool
    still: list[int]  # numbers of the tensors whose values stay as the problem draws them
    drawing: bytes  # a plan by which any process draws its inputs; empty where there is none


class Character(Request):
    answer: ClassVar[Any] = Traits

    seed: int
    picks: Picks | None
    draws: bool


class Tried(Struct):
    skip: bool = False  # this kind of inputs is useless for the problem
    finite: bool | None = None  # the result of a probe


class ComputeTrial(Request):
    """Computes the expected outputs for inputs of `kind`: see `Maker.compute_trial`."""

    answer: ClassVar[Any] = Tried

    kind: str
    seed: int
    model_seed: int
    probe: bool
    most_bytes: int
    picks: Picks | None


class Tensors(Struct):
    """A trial in the out region."""

    inputs: list[TensorSpec]
    windows: list[tuple[Size, Size]]  # (offset, bytes), of inputs that other processes draw themselves
    structure: Any
    native: list[TensorSpec]
    exact: list[TensorSpec]
    shapes: list[Shape]
    coarse: list[tuple[float, float]]
    mutated: bool
    in_order: bool


class FetchTrial(Request):
    answer: ClassVar[Any] = Tensors

    input_picks: Picks | None


# To and from a builder and a screener.


class Build(Request):
    """Answer: key, offset and bytes of each library in the given file; the compiler's messages for failed builds."""

    answer: ClassVar[Any] = tuple[list[tuple[Key, Size, Size]], list[tuple[Key, str]]]

    code: str
    problem_source: str
    architecture: str


class Construction(Request):
    """Answer: whether a model can be constructed here as it is later."""

    answer: ClassVar[Any] = bool

    source: str
    threads: int


class Screen(Request):
    code: str
    device: str
    extensions: list[str]
    failed_extensions: dict[str, str]


AnyRequest = reduce(or_, Request.__subclasses__())


def read_answer(data: bytes, request: Request) -> Any:
    """Return the answer to `request`, or a Failure; raise ValueError for anything else."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(data, type=Failure)
    try:
        return msgspec.json.decode(data, type=request.answer)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None
