"""Norms whose statistics run over channels, 36, or over batch and image, 33."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.member import Member, Problem, drafts_of
from benchmarks.corpus.record import Draft

RMS = """
@triton.jit
def rms_kernel(x_ptr, out_ptr, channels, spatial, eps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base = tl.program_id(1).to(tl.int64) * channels * spatial
    total = tl.zeros([BLOCK], tl.float32)
    where = base + at
    for channel in range(0, channels):
        x = tl.load(x_ptr + where, mask=at < spatial, other=0.0)
        total += x * x
        where += spatial
    rms = tl.sqrt(total / channels + eps)
    where = base + at
    for channel in range(0, channels):
        x = tl.load(x_ptr + where, mask=at < spatial, other=0.0)
        tl.store(out_ptr + where, x / rms, mask=at < spatial)
        where += spatial
"""
RMS_TILE = """
@triton.jit
def rms_kernel(x_ptr, out_ptr, channels, spatial, eps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base = tl.program_id(1).to(tl.int64) * channels * spatial
    channel = tl.arange(0, CHANNELS)
    inside = (channel[:, None] < channels) & (at[None, :] < spatial)
    where = base + channel[:, None].to(tl.int64) * spatial + at[None, :]
    x = tl.load(x_ptr + where, mask=inside, other=0.0)
    rms = tl.sqrt(tl.sum(x * x, 0) / channels + eps)
    tl.store(out_ptr + where, x / rms[None, :], mask=inside)
"""
RMS_MODEL = """
class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.num_features = num_features
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        batch, channels = x.shape[:2]
        spatial = x[0, 0].numel()
        out = torch.empty_like(x)
        rms_kernel[(triton.cdiv(spatial, $block), batch)](
            x, out, channels, spatial, self.eps,
            CHANNELS=triton.next_power_of_2(channels), BLOCK=$block, num_warps=$warps,
        )
        return out
"""
RMS_TEXT = """1. The channels of one pixel are spatial-size floats apart, so a program takes $block neighbouring
pixels and all
    their channels: each channel's slice is a coalesced access.

    2. $how

    3. Mean of squares, epsilon, square root and division follow in registers; none of the reference's five
    intermediate tensors is written.

    4. $cost"""
BATCH_NORM = """
@triton.jit
def partial_kernel(x_ptr, part_ptr, channels, spatial, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    row, chunk = tl.program_id(0), tl.program_id(1)
    base = row.to(tl.int64) * spatial
    last = min((chunk + 1) * CHUNK, spatial)
    origin = tl.load(x_ptr + (row % channels).to(tl.int64) * spatial)
    total = tl.zeros([BLOCK], tl.float32)
    square = tl.zeros([BLOCK], tl.float32)
    for start in range(chunk * CHUNK, last, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < last, other=0.0) - origin
        x = tl.where(at < last, x, 0.0)
        total += x
        square += x * x
    to = part_ptr + ((row % channels) * (tl.num_programs(0) // channels) + row // channels) * tl.num_programs(1) * 2
    tl.store(to + chunk * 2, tl.sum(total, 0))
    tl.store(to + chunk * 2 + 1, tl.sum(square, 0))


@triton.jit
def statistics_kernel(x_ptr, part_ptr, mean_ptr, scale_ptr, running_mean_ptr, running_var_ptr, parts, count, spatial,
                      momentum, eps, PARTS: tl.constexpr):
    channel = tl.program_id(0)
    part = tl.arange(0, PARTS)
    come = part_ptr + (channel * parts + part) * 2
    origin = tl.load(x_ptr + channel.to(tl.int64) * spatial)
    shift = tl.sum(tl.load(come, mask=part < parts, other=0.0), 0) / count
    variance = tl.sum(tl.load(come + 1, mask=part < parts, other=0.0), 0) / count - shift * shift
    variance = tl.maximum(variance, 0.0)
    mean = origin + shift
    tl.store(mean_ptr + channel, mean)
    tl.store(scale_ptr + channel, 1.0 / tl.sqrt(variance + eps))
    old_mean = tl.load(running_mean_ptr + channel)
    old_var = tl.load(running_var_ptr + channel)
    tl.store(running_mean_ptr + channel, old_mean + momentum * (mean - old_mean))
    tl.store(running_var_ptr + channel, old_var + momentum * (variance * count / (count - 1) - old_var))


@triton.jit
def apply_kernel(x_ptr, out_ptr, mean_ptr, scale_ptr, weight_ptr, bias_ptr, channels, spatial, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    channel = row % channels
    mean = tl.load(mean_ptr + channel)
    scale = tl.load(scale_ptr + channel) * tl.load(weight_ptr + channel)
    bias = tl.load(bias_ptr + channel)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    base = row.to(tl.int64) * spatial
    x = tl.load(x_ptr + base + at, mask=at < spatial)
    tl.store(out_ptr + base + at, (x - mean) * scale + bias, mask=at < spatial)
"""
BATCH_NORM_MODEL = """
class ModelNew(nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.bn = nn.BatchNorm2d(num_features)

    def forward(self, x):
        x, bn = x.contiguous(), self.bn
        batch, channels = x.shape[:2]
        spatial = x[0, 0].numel()
        rows, count = batch * channels, batch * spatial
        out = torch.empty_like(x)
        if self.training:
            chunks = triton.cdiv(spatial, $chunk)
            part = torch.empty(rows * chunks * 2, device=x.device)
            mean = torch.empty(channels, device=x.device)
            scale = torch.empty_like(mean)
            partial_kernel[(rows, chunks)](x, part, channels, spatial, CHUNK=$chunk, BLOCK=$block, num_warps=$warps)
            statistics_kernel[(channels,)](
                x, part, mean, scale, bn.running_mean, bn.running_var, batch * chunks, count, spatial,
                bn.momentum, bn.eps, PARTS=triton.next_power_of_2(batch * chunks),
            )
            bn.num_batches_tracked.add_(1)
        else:
            mean, scale = bn.running_mean, torch.rsqrt(bn.running_var + bn.eps)
        apply_kernel[(rows, triton.cdiv(spatial, $block))](
            x, out, mean, scale, bn.weight, bn.bias, channels, spatial, BLOCK=$block, num_warps=$warps
        )
        return out
"""
PROBLEMS = [
    Problem(
        36,
        """This RMS norm divides every pixel by the root mean square over its 64 channels. As written it is a chain
        of tensor
        operations: square, mean over dimension 1, add epsilon, square root, divide. The square writes a temporary as
        large as the input, the mean reads it with a stride of a whole plane, and the division reads the input again:
        20 bytes per element, dominated by DRAM. One kernel that owns a pixel's channels needs a read and a write.""",
        (
            *(
                Member(
                    f"two_pass{block}",
                    RMS,
                    RMS_MODEL,
                    RMS_TEXT,
                    ("operation fusion", "memory coalescing", "thread-block configuration"),
                    constants={
                        "block": block,
                        "warps": warps,
                        "how": "A first loop over the channels adds up squares per pixel; a second one reads the "
                        "channels again and divides. The second read comes from L2 as long as a program's slices fit.",
                        "cost": "No registers are spent on keeping channels, whatever their number; the price is a "
                        "second set of load instructions.",
                    },
                )
                for block, warps in ((256, 4), (1024, 4))
            ),
            *(
                Member(
                    f"tile{block}",
                    RMS_TILE,
                    RMS_MODEL,
                    RMS_TEXT,
                    ("operation fusion", "memory coalescing", "register/shared-memory use"),
                    constants={
                        "block": block,
                        "warps": warps,
                        "how": "Load the whole tile of channels by pixels at once and keep it in registers, padded to "
                        "a power of two: all its loads are in flight together and every element is read exactly once.",
                        "cost": "Traffic is the floor of 8 bytes per element; registers per thread grow with the "
                        "tile, which bounds how many pixels a program can take.",
                    },
                )
                for block, warps in ((64, 4), (128, 8), (32, 2))
            ),
        ),
    ),
    Problem(
        33,
        """Batch normalisation in training mode needs each channel's mean and variance over batch and image before it
        can
        touch an element, so two reads and one write of the tensor, 12 bytes per element, are the floor. The library
        reduces a channel with few blocks; 64 channels do not fill the device's SMs evenly, and that phase takes longer
        than the normalisation itself although it moves less. The running statistics must be updated too, with the
        unbiased variance.""",
        tuple(
            Member(
                f"split{chunk // 1024}k",
                BATCH_NORM,
                BATCH_NORM_MODEL,
                """1. Split every (image, channel) plane into chunks of $chunk elements and reduce each in a program of
                its own: sums of x and x^2, both relative to the channel's first element, which keeps the difference of
                the two from cancelling when the mean is large.

                2. One program per channel adds the partial sums in a fixed order, derives mean and inverse deviation,
                and updates running mean and (unbiased) running variance in place.

                3. A last kernel applies (x - mean)*scale*weight + bias with coalesced blocks of $block; in evaluation
                mode it is the only one, with the running statistics.

                4. The reduction runs on thousands of programs instead of one block per channel.""",
                ("split reduction", "operation fusion", "memory coalescing", "thread-block configuration"),
                constants={"chunk": chunk, "block": block, "warps": warps},
            )
            for chunk, block, warps in ((8192, 1024, 4), (32768, 4096, 8), (65536, 2048, 8))
        ),
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of these norms."""
    for problem in PROBLEMS:
        yield from drafts_of(problem)
