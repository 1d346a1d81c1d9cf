"""Convolutions whose averaging tail is folded into the convolution itself, for all inputs."""

from __future__ import annotations

from benchmarks.corpus.level2.folded_kernels import (
    DEPTH_FORWARD,
    DEPTH_SUM,
    FOLD_POOL2D,
    FOLD_POOL2D_FORWARD,
    FOLD_POOL3D,
    FOLD_POOL3D_FORWARD,
    MEAN_LSE,
    MEAN_LSE_FORWARD,
    MEAN_SOFTMAX,
    MEAN_SOFTMAX_FORWARD,
    PLANE_ATOMIC,
    PLANE_ATOMIC_CALL,
    PLANE_SUM,
    PLANE_SUM_CALL,
    POOL3D,
    POOL3D_FORWARD,
    POOL_SIGMOID_SUM,
    POOL_SIGMOID_SUM_FORWARD,
    SHORT,
    SOFTMAX_TANH,
)
from benchmarks.corpus.level2.members import Member, Problem, drafts

__all__ = ["PROBLEMS", "drafts"]

PROBLEMS = (
    Problem(
        problem=42,
        arguments="in_channels, out_channels, kernel_size, bias_shape",
        body=(
            "self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size)",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
        ),
        analysis="""A transposed convolution on large images is followed at once by the mean over all positions.
Without padding each kernel tap meets each input position exactly once, so the sum over the output factorises:
sum(y_o) = sum_c (sum of x_c) (sum of the taps of W_co). The convolution and its huge output are not needed at all;
one read of x for its plane sums and a product of two small matrices per image remain, then bias, logsumexp over 128
channels and a factor of 10. A model bound by convolution becomes a reduction bound by reading x.""",
        members=(
            Member(
                "plane",
                PLANE_SUM + MEAN_LSE,
                MEAN_LSE_FORWARD,
                """Kernel one sums each (image, channel) plane of x with a program of 8 warps in blocks of 4096,
fully coalesced, one read of the input and one float out. Kernel two gives each image a program: it adds up the nine
taps of every weight, multiplies by the plane sums, accumulates over input channels in registers, divides by the
number of output positions, adds both biases and computes a stable logsumexp over the channels. Taps are summed at
every call from the current weights; they are a few hundred kilobytes that stay in L2.""",
                (*SHORT, "memory coalescing"),
                constants={"NEW": "new_empty", "CALL_SUM": PLANE_SUM_CALL},
            ),
            Member(
                "atomic",
                PLANE_ATOMIC + MEAN_LSE,
                MEAN_LSE_FORWARD,
                """The plane sums are built by short programs of 8192 elements, each ending in one atomic
addition to its plane's sum, so the grid holds tens of thousands of equal pieces and the last wave costs little;
with a thousand planes of a megabyte a grid of one program per plane is less even. The second kernel is a small
matrix product of plane sums and summed taps for each image, followed by mean, biases, logsumexp and the factor in
registers. The order of additions may vary in the last bits.""",
                (*SHORT, "thread-block configuration"),
                constants={"NEW": "new_zeros", "CALL_SUM": PLANE_ATOMIC_CALL},
            ),
        ),
    ),
    Problem(
        problem=13,
        arguments="in_channels, out_channels, kernel_size, stride, padding, scaling_factor",
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding",
            ")",
            "self.bias = nn.Parameter(torch.randn(1, out_channels, 1, 1, 1))",
            "self.scaling_factor = scaling_factor",
        ),
        analysis="""A stride-1 transposed 3D convolution is averaged over depth before anything nonlinear happens.
The mean over depth is linear, so it can be taken on the input: for each of the three depth taps, sum the slabs that
this tap carries to an existing output slab, and apply the tap as a 2D transposed convolution. That is one 2D
convolution with three times the input channels instead of a 3D one over all 32 slabs, about 1/32 of the flops, and
the output of the full volume is never written. Softmax over 64 channels, tanh and scale then act on one slab.""",
        members=(
            Member(
                "depth_sums",
                DEPTH_SUM + SOFTMAX_TANH,
                DEPTH_FORWARD,
                """A Triton kernel sums slabs over depth for each input channel and each depth tap (a tap at the
border misses one slab, which its loop bounds express), giving an image with 3 x 16 channels. cuDNN applies the
rearranged weights as a 2D transposed convolution. A last kernel takes all 64 channels by 64 positions as a tile,
divides by the depth, adds both biases, and does the stable softmax, tanh and scale in registers, in place. x is
read once per tap, mostly from L2 after the first, and everything after that is small.""",
                (*SHORT, "register/shared-memory use"),
                ("tanh",),
            ),
            Member(
                "fused_tail",
                MEAN_SOFTMAX,
                MEAN_SOFTMAX_FORWARD,
                """Only the tail is fused: after cuDNN's 3D transposed convolution, without its bias, a program
takes 64 channels by 64 positions, accumulates the 32 slabs of the volume into a tile of registers, divides, adds
the layer's bias and the extra one, and goes on to softmax over channels, tanh and scale without leaving registers.
The volume is read once and one slab is written, where eager code reads it three times and writes it once more. It
keeps all of the convolution's flops, which algebra could avoid.""",
                ("operation fusion", "register/shared-memory use", "warp-level reduction"),
                ("tanh",),
            ),
        ),
    ),
    Problem(
        problem=50,
        arguments="in_channels, out_channels, kernel_size, stride, padding, scale1, scale2, bias_shape",
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding",
            ")",
            "self.scale1 = nn.Parameter(torch.tensor(scale1))",
            "self.avg_pool = nn.AvgPool3d(kernel_size=2)",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
            "self.scale2 = nn.Parameter(torch.tensor(scale2))",
        ),
        analysis="""Up by two with a stride-2 transposed convolution (kernel 3, padding 1), then down by two with
average pooling, and only affine steps between and after. The whole model is therefore one linear map: averaging
pairs of outputs joins taps 1 and 2 on x[p] and leaves tap 0 on x[p + 1], in each dimension, so it is an ordinary
convolution with a 2x2x2 kernel. The upsampled volume, eight times the result, need not exist. Eager code writes it,
and passes over it for bias, scale and pooling; here even fusing those would still write and read it.""",
        members=(
            Member(
                "folded",
                FOLD_POOL3D,
                FOLD_POOL3D_FORWARD,
                """A one-warp program for each (output, input) channel pair folds the 27 taps of the current
weights into eight, with 1/8 and both scales multiplied in, and the biases into one per output channel. cuDNN
convolves x with the 2x2x2 kernel at stride 1, an eighth of the outputs and of the multiplications of the original,
and a plane-wise kernel adds the bias in place. Folding costs microseconds for 48 channel pairs and is repeated at
each call, since weights may have changed.""",
                (*SHORT, "memory coalescing"),
                constants={
                    "LAST": """y = F.conv3d(x, folded, None).contiguous()
batch, channels = y.shape[:2]
plane_size = y[0, 0].numel()
bias_kernel[(batch * channels, triton.cdiv(plane_size, 1024))](
    y, folded_bias, channels, plane_size, BLOCK=1024, num_warps=4
)
return y"""
                },
            ),
            Member(
                "folded_library_bias",
                FOLD_POOL3D.split("\n\n\n@triton.jit\ndef bias")[0] + "\n",
                FOLD_POOL3D_FORWARD,
                """The same folding of transposed convolution, scales and average pooling into an ordinary 2x2x2
convolution by a small Triton kernel over the weights; the folded bias is handed to F.conv3d, which adds it in a
pass of its own over the small result. That is one read and one write more than needed, on a tensor that has an
eighth of the size of what the reference passes over, and one kernel less to write. It shows that algebra on the
weights does nearly all of the work.""",
                SHORT,
                constants={"LAST": "return F.conv3d(x, folded, folded_bias)"},
            ),
            Member(
                "fused_tail",
                POOL3D,
                POOL3D_FORWARD,
                """The transposed convolution stays, without its bias; one kernel does the rest. Each lane owns a
pooled position, adds the eight values of its window in an unrolled loop, and applies the affine chain once to the
mean: scaling and bias commute with averaging, so eight multiplications become one. The volume is read once and an
eighth is written, against seven transfers of the volume in eager mode. The upsampled volume still has to be written
by cuDNN and read back, which is what remains of the cost.""",
                ("operation fusion", "memory coalescing"),
            ),
        ),
    ),
    Problem(
        problem=65,
        arguments="in_channels, out_channels, kernel_size, pool_kernel_size",
        body=(
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.avg_pool = nn.AvgPool2d(pool_kernel_size)",
        ),
        analysis="""The convolution's 64-channel map of large images is averaged over 4x4 windows before the
sigmoid, so 15 of 16 values exist only to be averaged. Averaging is linear: a 3x3 convolution followed by a 4x4 mean
at stride 4 is one 6x6 convolution at stride 4, whose taps are window sums of the 3x3 taps. It has a quarter of the
multiplications and writes a sixteenth of the outputs. The reference moves the full map four times (write, bias read
and write, pooling read); sigmoid and the sum over everything but the batch are cheap on what is left.""",
        members=(
            Member(
                "folded",
                FOLD_POOL2D,
                FOLD_POOL2D_FORWARD,
                """A one-warp program per (output, input) channel pair builds the 6x6 kernel from the current 3x3
weights: each of its 36 taps sums the original taps whose pooling window covers it, divided by 16. cuDNN runs the
6x6 convolution with stride 4. A last kernel takes one plane per program, adds the bias, applies the sigmoid, sums,
and adds the plane's sum to the image's result by one atomic; 64 planes share an address, which is harmless. The map
at full resolution is never formed.""",
                (*SHORT, "warp-level reduction"),
            ),
            Member(
                "fused_tail",
                POOL_SIGMOID_SUM,
                POOL_SIGMOID_SUM_FORWARD,
                """Convolution as it is, without its bias, then one kernel: a program makes one row of pooled
values of a plane, reading the four input rows as tiles (output column x window column) that are contiguous in
memory, averages, adds the bias once per window (it commutes with the mean), takes the sigmoid, and reduces to one
atomic addition per row of windows. The map is read exactly once and nothing but one float per image is written. The
convolution's own write of the map and its flops remain.""",
                ("operation fusion", "memory coalescing", "warp-level reduction"),
            ),
        ),
    ),
)
