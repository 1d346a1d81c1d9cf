"""Convolutions followed by pointwise operations: one kernel for everything after the convolution. The members of a
problem differ in how positions are dealt to programs: whole planes with the channel's parameters in scalars
(`plane`), a flat index with a division per element (`flat`), vectorised CUDA (`float4`), a fixed number of programs
that walk over the planes (`persistent`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from benchmarks.corpus.level2.parts import cuda_file, model, triton_file
from benchmarks.corpus.level2.pointwise_designs import design
from benchmarks.corpus.record import Draft


@dataclass(frozen=True)
class Pointwise:
    """A problem whose tail is pointwise: `triton` and `cuda` compute `y` from the convolution's output `x`.
    `channel` names the parameters with one value for each channel: name in the kernel -> attribute of the model.
    `scalars`: name -> attribute. `same_shape` names a further input of the output's shape. `x` includes the
    convolution's bias in every member but `flat`, where the library adds it."""

    problem: int
    name: str
    arguments: str
    body: list[str]
    layer: str
    call: str
    triton: list[str]
    cuda: list[str]
    analysis: str
    note: str
    functions: list[str] = field(default_factory=list)
    channel: dict[str, str] = field(default_factory=dict)
    scalars: dict[str, str] = field(default_factory=dict)
    functions_cuda: list[str] | None = None
    same_shape: str = ""
    layer_bias: bool = True
    members: tuple[str, ...] = ("plane", "flat", "float4")
    block: int = 2048


def drafts(spec: Pointwise) -> Iterator[Draft]:
    """Yield the problem's candidates, one for each of its members."""
    for member in spec.members:
        draft = {"plane": plane, "flat": flat, "float4": float4, "persistent": persistent}[member](spec)
        yield replace(draft, analysis=" ".join(draft.analysis.split()), design=" ".join(draft.design.split()))


def _call(spec: Pointwise, with_bias: bool) -> str:
    return spec.call.replace("BIAS", f"self.{spec.layer}.bias" if with_bias else "None")


def _parameters(spec: Pointwise) -> dict[str, str]:
    """Return the kernel's per-channel parameters, the convolution's bias among them."""
    own = {"conv_bias": f"self.{spec.layer}.bias"} if spec.layer_bias else {}
    return own | spec.channel


def _inputs(spec: Pointwise) -> str:
    return f"x, {spec.same_shape}" if spec.same_shape else "x"


def _joined(*groups: list[str]) -> str:
    return ", ".join(item for group in groups for item in group)


def plane(spec: Pointwise) -> Draft:
    """Return the member with one program for a tile of one channel's plane, in place."""
    parameters = _parameters(spec)
    loads = "\n    ".join(f"{name} = tl.load({name}_ptr + channel)" for name in parameters)
    first = "x = tl.load(y_ptr + offsets, mask=mask)" + (" + conv_bias" if spec.layer_bias else "")
    extra = f"\n    {spec.same_shape} = tl.load({spec.same_shape}_ptr + offsets, mask=mask)" if spec.same_shape else ""
    signature = _joined(
        ["y_ptr"],
        [f"{spec.same_shape}_ptr"] * bool(spec.same_shape),
        [f"{name}_ptr" for name in parameters],
        list(spec.scalars),
        ["channels", "plane_size", "BLOCK: tl.constexpr"],
    )
    math = "\n    ".join(spec.triton)
    kernel = f"""@triton.jit
def {spec.name}_kernel({signature}):
    plane = tl.program_id(0)
    channel = plane % channels
    {loads}
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = within < plane_size
    offsets = plane.to(tl.int64) * plane_size + within
    {first}{extra}
    {math}
    tl.store(y_ptr + offsets, y, mask=mask)"""
    arguments = _joined(
        ["y"],
        [spec.same_shape] * bool(spec.same_shape),
        list(parameters.values()),
        list(spec.scalars.values()),
        ["channels", "plane_size"],
    )
    more = f"{spec.same_shape} = {spec.same_shape}.contiguous()\n" if spec.same_shape else ""
    forward = f"""y = {_call(spec, False)}.contiguous()
{more}batch, channels = y.shape[:2]
plane_size = y[0, 0].numel()
grid = (batch * channels, triton.cdiv(plane_size, {spec.block}))
{spec.name}_kernel[grid](
    {arguments}, BLOCK={spec.block}, num_warps={8 if spec.block >= 2048 else 4}
)
return y"""
    return Draft(
        spec.problem,
        "plane",
        triton_file(spec.functions, kernel, model(spec.arguments, spec.body, _inputs(spec), forward)),
        spec.analysis,
        design("plane", spec.problem, **_words(spec)),
        ("operation fusion", "memory coalescing", "thread-block configuration"),
        "triton",
    )


def _words(spec: Pointwise) -> dict[str, str]:
    """Return what the texts of `pointwise_designs` leave open."""
    steps = "; ".join(line.removeprefix("y = ") for line in spec.triton)
    return {
        "MATH": f"`{steps}`",
        "NAMES": _named(_parameters(spec)),
        "NOTE": spec.note,
        "SIZE": str(spec.block),
    }


def _named(parameters: dict[str, str]) -> str:
    names = [f"`{value}`" for value in parameters.values()]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def flat(spec: Pointwise) -> Draft:
    """Return the member with a flat index, the library's bias and a new output."""
    loads = "".join(f"\n    {name} = tl.load({name}_ptr + channel, mask=mask)" for name in spec.channel)
    channel = "\n    channel = (offsets // plane_size) % channels" if spec.channel else ""
    extra = f"\n    {spec.same_shape} = tl.load({spec.same_shape}_ptr + offsets, mask=mask)" if spec.same_shape else ""
    sizes = ["channels", "plane_size"] if spec.channel else []
    signature = _joined(
        ["x_ptr", "y_ptr"],
        [f"{spec.same_shape}_ptr"] * bool(spec.same_shape),
        [f"{name}_ptr" for name in spec.channel],
        list(spec.scalars),
        ["total", *sizes, "BLOCK: tl.constexpr"],
    )
    math = "\n    ".join(spec.triton)
    kernel = f"""@triton.jit
def {spec.name}_flat_kernel({signature}):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total{channel}
    x = tl.load(x_ptr + offsets, mask=mask){loads}{extra}
    {math}
    tl.store(y_ptr + offsets, y, mask=mask)"""
    arguments = _joined(
        ["x", "y"],
        [spec.same_shape] * bool(spec.same_shape),
        list(spec.channel.values()),
        list(spec.scalars.values()),
        ["total"],
        ["x.shape[1]", "x[0, 0].numel()"] if spec.channel else [],
    )
    more = f"{spec.same_shape} = {spec.same_shape}.contiguous()\n" if spec.same_shape else ""
    forward = f"""x = {_call(spec, True)}.contiguous()
{more}y = torch.empty_like(x)
total = x.numel()
{spec.name}_flat_kernel[(triton.cdiv(total, 1024),)](
    {arguments}, BLOCK=1024, num_warps=4
)
return y"""
    index = (
        "The channel of an element comes from its flat index by a division and a remainder in 64 bits, which cost some "
        "twenty integer instructions each; the arithmetic hides behind memory as long as it stays below it."
        if spec.channel
        else "No parameter depends on the channel, so the kernel never needs to know where in the tensor it is."
    )
    return Draft(
        spec.problem,
        "flat",
        triton_file(spec.functions, kernel, model(spec.arguments, spec.body, _inputs(spec), forward)),
        spec.analysis,
        design("flat", spec.problem, **_words(spec), INDEX=index),
        ("operation fusion", "memory coalescing"),
        "triton",
    )


def float4(spec: Pointwise) -> Draft:
    """Return the member in CUDA with 16-byte accesses."""
    parameters = _parameters(spec)
    kernel_parameters = _joined(
        ["float* __restrict__ y"],
        [f"const float* __restrict__ {spec.same_shape}"] * bool(spec.same_shape),
        [f"const float* __restrict__ {name}_of" for name in parameters],
        [f"double {name}_in" for name in spec.scalars],
        ["int channels", "int plane_size"],
    )
    loads = "\n    ".join(
        [f"const float {name} = {name}_of[channel];" for name in parameters]
        + [f"const float {name} = (float){name}_in;" for name in spec.scalars]
    )
    tail_parameters = _joined(
        ["float x"], ["float extra"] * bool(spec.same_shape), [f"float {n}" for n in [*spec.channel, *spec.scalars]]
    )
    tail_arguments = _joined([*spec.channel, *spec.scalars])
    tail_arguments = f", {tail_arguments}" if tail_arguments else ""
    bias = " + conv_bias" if spec.layer_bias else ""
    math = "\n    ".join(line.replace(spec.same_shape or "\0", "extra") for line in spec.cuda)
    row = f"{spec.same_shape}_row"
    rows = f"\n    const float* {row} = {spec.same_shape} + start;" if spec.same_shape else ""
    wide = f"\n            const float4 e = reinterpret_cast<const float4*>({row})[i];" if spec.same_shape else ""
    lanes = "\n".join(
        f"            v.{lane} = tail(v.{lane}{bias}{f', e.{lane}' if spec.same_shape else ''}{tail_arguments});"
        for lane in "xyzw"
    )
    single = f"tail(row[i]{bias}{f', {row}[i]' if spec.same_shape else ''}{tail_arguments})"
    cuda = f"""__device__ __forceinline__ float tail({tail_parameters}) {{
    {math}
    return y;
}}

// blockIdx.x: image x channel; the blocks along y share a plane.
extern "C" __global__ void {spec.name}({kernel_parameters}) {{
    const int channel = blockIdx.x % channels;
    {loads}
    const long long start = (long long)blockIdx.x * plane_size;
    float* row = y + start;{rows}
    const int step = gridDim.y * blockDim.x;
    const int first = blockIdx.y * blockDim.x + threadIdx.x;
    if (plane_size % 4 == 0) {{
        float4* wide = reinterpret_cast<float4*>(row);
        for (int i = first; i < plane_size / 4; i += step) {{
            float4 v = wide[i];{wide}
{lanes}
            wide[i] = v;
        }}
    }} else {{
        for (int i = first; i < plane_size; i += step) {{
            row[i] = {single};
        }}
    }}
}}"""
    arguments = _joined(
        ["y"],
        [spec.same_shape] * bool(spec.same_shape),
        list(parameters.values()),
        [f"float({value})" for value in spec.scalars.values()],
        ["channels", "plane_size"],
    )
    more = f"{spec.same_shape} = {spec.same_shape}.contiguous()\n" if spec.same_shape else ""
    forward = f"""y = {_call(spec, False)}.contiguous()
{more}batch, channels = y.shape[:2]
plane_size = y[0, 0].numel()
tiles = min(-(-plane_size // 4096), 1024)
{spec.name}()(
    grid=(batch * channels, tiles, 1),
    block=(256, 1, 1),
    args=[{arguments}],
)
return y"""
    return Draft(
        spec.problem,
        "float4",
        cuda_file(
            spec.functions_cuda or spec.functions,
            cuda,
            [spec.name],
            model(spec.arguments, spec.body, _inputs(spec), forward),
        ),
        spec.analysis,
        design("float4", spec.problem, **_words(spec)),
        ("operation fusion", "memory coalescing", "register/shared-memory use"),
        "cuda",
    )


def persistent(spec: Pointwise) -> Draft:
    """Return the member whose programs are as many as the device holds, each of which walks over many planes."""
    parameters = _parameters(spec)
    loads = "\n        ".join(f"{name} = tl.load({name}_ptr + channel)" for name in parameters)
    bias = " + conv_bias" if spec.layer_bias else ""
    extra = (
        f"\n            {spec.same_shape} = tl.load({spec.same_shape}_ptr + offsets, mask=mask)"
        if spec.same_shape
        else ""
    )
    signature = _joined(
        ["y_ptr"],
        [f"{spec.same_shape}_ptr"] * bool(spec.same_shape),
        [f"{name}_ptr" for name in parameters],
        list(spec.scalars),
        ["planes", "channels", "plane_size", "BLOCK: tl.constexpr"],
    )
    math = "\n            ".join(spec.triton)
    kernel = f"""@triton.jit
def {spec.name}_persistent_kernel({signature}):
    plane = tl.program_id(0).to(tl.int64)
    while plane < planes:
        channel = plane % channels
        {loads}
        base = plane * plane_size
        for start in range(0, plane_size, BLOCK):
            within = start + tl.arange(0, BLOCK)
            mask = within < plane_size
            offsets = base + within
            x = tl.load(y_ptr + offsets, mask=mask, eviction_policy="evict_first"){bias}{extra}
            {math}
            tl.store(y_ptr + offsets, y, mask=mask, eviction_policy="evict_first")
        plane += tl.num_programs(0)"""
    arguments = _joined(
        ["y"],
        [spec.same_shape] * bool(spec.same_shape),
        list(parameters.values()),
        list(spec.scalars.values()),
        ["planes", "channels", "plane_size"],
    )
    more = f"{spec.same_shape} = {spec.same_shape}.contiguous()\n" if spec.same_shape else ""
    forward = f"""y = {_call(spec, False)}.contiguous()
{more}batch, channels = y.shape[:2]
planes, plane_size = batch * channels, y[0, 0].numel()
programs = min(planes, 8 * torch.cuda.get_device_properties(y.device).multi_processor_count)
{spec.name}_persistent_kernel[(programs,)](
    {arguments}, BLOCK=1024, num_warps=4
)
return y"""
    return Draft(
        spec.problem,
        "persistent",
        triton_file(spec.functions, kernel, model(spec.arguments, spec.body, _inputs(spec), forward)),
        spec.analysis,
        design("persistent", spec.problem, **_words(spec)),
        ("operation fusion", "thread-block configuration", "memory coalescing"),
        "triton",
    )
