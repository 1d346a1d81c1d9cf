"""Design texts of the pointwise members: several ways to describe each, so that a corpus does not repeat one."""

from __future__ import annotations

# member -> texts; NAMES: the parameters, MATH: the expression of the tail, NOTE: the problem's own remark.
DESIGNS = {
    "plane": (
        """The convolution runs without its bias, because PyTorch adds that bias in a pass of its own; one Triton
kernel then evaluates MATH in place on the convolution's output: a single read and a single write. Programs are laid
out as (image x channel, tile), so a program lies in one channel's plane and loads NAMES once as a scalar instead of
dividing each index by the plane's size. NOTE BLOCK = SIZE gives each thread two aligned 16-byte loads in flight.""",
        """Everything behind the convolution becomes one in-place kernel computing MATH. The layer is called with
bias=None, since its bias would otherwise be a separate read and write of the whole output; here it is one addition
in a register. The first grid axis enumerates planes, the second tiles of SIZE within a plane: NAMES are read with
one scalar load, no element needs an integer division, and only the last tile of a plane is masked. NOTE Traffic is
the minimum for an unfused convolution, one read and one write.""",
        """Two launches in all: the library's convolution, bias left out, and a Triton kernel that applies MATH and
writes back to the same addresses, so that no second tensor is allocated. NAMES depend on the channel only; giving
every program a tile of a single (image, channel) plane turns them into scalars held for SIZE elements. NOTE The
tile is large enough for 16-byte accesses by every thread and small enough that thousands of programs keep the
memory system busy.""",
    ),
    "flat": (
        """The simplest fusion: the library's convolution with its bias, then one Triton kernel over the flattened
tensor that evaluates MATH with 1024 elements a program and an output of its own. INDEX NOTE It removes the passes
between the pointwise operations but leaves the separate pass in which PyTorch adds the convolution's bias, so it
moves twice the bytes of a version that folds the bias in.""",
        """A one-dimensional kernel treats the convolution's output as a long array, 1024 elements for a program of
4 warps, and computes MATH in registers before it stores to a fresh tensor. INDEX NOTE The bias is left to the
library, whose extra read and write of the map remain; what goes away are the temporaries between the steps of the
tail. It is easy to get right for any shape, and a baseline for layouts that know more about the tensor.""",
    ),
    "float4": (
        """A CUDA kernel on raw pointers, compiled at run time, computes MATH and replaces the whole tail and the
pass that adds the convolution's bias. A block belongs to one (image, channel) plane: the block keeps NAMES in
registers, and 256 threads stream the plane with float4 loads and stores, four elements to an instruction, in place.
Planes whose size is no multiple of 4 start unaligned, so these take a scalar path. NOTE About sixteen elements per
thread keep several loads in flight without exhausting registers.""",
        """Written in CUDA without torch's headers, so that it compiles in half a second. blockIdx.x names the
(image, channel) plane, blockIdx.y shares a plane among blocks, and the tail MATH is an inlined device function
applied to the four lanes of a float4. Each thread keeps NAMES for its whole life. NOTE A warp moves 512 contiguous
bytes per instruction in each direction; where plane_size % 4 != 0 the kernel uses 4-byte accesses, which are still
coalesced. The convolution's bias is part of the kernel, and the output is the convolution's own buffer.""",
    ),
    "persistent": (
        """The tail MATH, with the convolution's bias folded in, runs in a grid of eight programs for each
multiprocessor rather than one for each tile: a program takes planes in strides of the grid, reads NAMES once per
plane, and streams the plane in blocks of 1024. Scheduling tens of thousands of short blocks is avoided, and loads
are marked evict_first because nothing is read twice. NOTE The balance suffers when the number of planes is not a
multiple of the grid, the last round being partly empty.""",
        """A fixed number of programs, eight per multiprocessor, loops over all (image, channel) planes and computes
MATH in place. For every plane the program fetches NAMES and then runs an inner loop of 1024-element blocks with
addresses that only increase, so index arithmetic is amortised over a whole plane. NOTE evict_first on loads and
stores tells L2 that the map streams through. Compared with one program per tile it trades scheduling overhead for
less parallel slack: a thread waits for its own loads in the loop.""",
    ),
}


def design(member: str, number: int, **words: str) -> str:
    """Return the member's text for the problem of this number, with its words filled in."""
    texts = DESIGNS[member]
    text = " ".join(texts[number % len(texts)].split())
    for word, value in words.items():
        text = text.replace(word, value)
    return " ".join(text.split())
