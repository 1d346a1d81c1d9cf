"""The level 2 problems with a GroupNorm between pointwise operations behind a convolution."""

from __future__ import annotations

from benchmarks.corpus.level2.groupnorm import GroupNorm

PROBLEMS = (
    GroupNorm(
        problem=19,
        name="gelu_group_norm",
        arguments="in_channels, out_channels, kernel_size, stride, groups, num_groups",
        body=(
            "self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=stride)",
            "self.group_norm = nn.GroupNorm(num_groups=num_groups, num_channels=out_channels)",
        ),
        call="F.conv_transpose2d(x, self.conv_transpose.weight, None, self.conv_transpose.stride)",
        channel={"conv_bias": "self.conv_transpose.bias"},
        before="v = gelu(x + conv_bias)",
        after="y = n",
        before_cuda="const float v = gelu_f(x + conv_bias);",
        after_cuda="const float y = n;",
        functions=("gelu",),
        functions_cuda=("gelu",),
        analysis="""Behind the transposed convolution the reference adds the bias (read, write), applies exact GELU
(read, write) and normalises eight groups of eight channels, for which GroupNorm reads the map for its statistics
and reads and writes it again: seven transfers of a 64-channel map of large images. The statistics are those of
GELU's result, so at least two reads and one write are needed once the convolution's output lies in memory. GELU is
cheap to compute twice, cheaper than a store and a reload, so three transfers replace seven.""",
        note="GELU is evaluated in both sweeps, because an erf costs less than writing and reading its result.",
    ),
    GroupNorm(
        problem=21,
        name="sigmoid_group_norm",
        arguments="in_channels, out_channels, kernel_size, num_groups, bias_shape, scale_shape",
        body=(
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
            "self.scale = nn.Parameter(torch.randn(scale_shape))",
            "self.group_norm = nn.GroupNorm(num_groups, out_channels)",
        ),
        call="F.conv2d(x, self.conv.weight, None)",
        channel={"conv_bias": "self.conv.bias", "shift": "self.bias", "factor": "self.scale"},
        before="v = tl.sigmoid((x + conv_bias + shift) * factor)",
        after="y = n",
        before_cuda="const float v = sigmoid_f((x + conv_bias + shift) * factor);",
        after_cuda="const float y = n;",
        functions=(),
        functions_cuda=("sigmoid",),
        analysis="""With 8 input channels the convolution is light, and its 32-channel map of large images then goes
through a bias pass for cuDNN, a second bias, a scale, a sigmoid and GroupNorm: four pointwise passes with two
transfers each and GroupNorm with three, eleven in all. Everything before the norm is a function of one element and
three numbers of its channel, so it can be recomputed wherever it is needed. The floor with an unfused convolution
is one read for the statistics, one read and one write to normalise.""",
        note="Both biases and the scale enter as three scalars per channel, and the sigmoid is recomputed.",
    ),
    GroupNorm(
        problem=60,
        name="swish_norm_hardswish",
        arguments="in_channels, out_channels, kernel_size, stride, padding, groups, eps, bias=True",
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=bias",
            ")",
            "self.group_norm = nn.GroupNorm(num_groups=groups, num_channels=out_channels, eps=eps)",
        ),
        call=(
            "F.conv_transpose3d(\n    x, self.conv_transpose.weight, None, "
            "self.conv_transpose.stride, self.conv_transpose.padding\n)"
        ),
        channel={"conv_bias": "self.conv_transpose.bias"},
        before="v = silu(x + conv_bias)",
        after="y = hardswish(n)",
        before_cuda="const float v = silu_f(x + conv_bias);",
        after_cuda="const float y = hardswish_f(n);",
        functions=("silu", "hardswish"),
        functions_cuda=("silu", "hardswish"),
        analysis="""Three input channels and stride 2: the transposed convolution is tiny beside its 16-channel
output, which has eight times the positions. Swish is written as sigmoid and a product (five transfers), the layer's
bias takes two, GroupNorm three, hardswish two: twelve transfers of the volume. Statistics of swish's result have to
be complete before any value can be normalised, so the minimum after the convolution is a read, then a read and a
write. Swish is recomputed rather than stored, and hardswish is applied to the normalised value in its register.""",
        note="Swish enters the statistics and is recomputed; hardswish acts on the normalised value before the store.",
    ),
    GroupNorm(
        problem=61,
        name="relu_group_norm",
        arguments="in_channels, out_channels, kernel_size, groups, bias=False",
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, bias=bias)",
            "self.group_norm = nn.GroupNorm(num_groups=groups, num_channels=out_channels)",
        ),
        call="F.conv_transpose3d(x, self.conv_transpose.weight, self.conv_transpose.bias)",
        before="v = relu(x)",
        after="y = n",
        before_cuda="const float v = relu_f(x);",
        after_cuda="const float y = n;",
        functions=("relu",),
        functions_cuda=("relu",),
        analysis="""The transposed convolution (64 to 128 channels, 3x3x3) carries the flops; behind it ReLU reads
and writes the volume and GroupNorm reads it for its statistics and reads and writes it again, five transfers where
three are the minimum. A group is 16 channels of a whole volume, some hundreds of thousands of contiguous floats,
too large for shared memory, so the two sweeps cannot be merged; but ReLU can ride on both of them at no cost. The
gain is bounded by the convolution's share of the time.""",
        note="ReLU is applied on the fly in both sweeps, and the layer has no bias to fold.",
    ),
)
