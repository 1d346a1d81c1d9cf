"""The level 2 problems whose 2D convolution is followed by pointwise operations only."""

from __future__ import annotations

from benchmarks.corpus.level2.pointwise import Pointwise

_CONV2D = "F.conv2d(x, self.conv.weight, BIAS)"
_PARTS = "self.conv_transpose.stride, self.conv_transpose.padding"
_TRANSPOSED2D = (
    f"F.conv_transpose2d(\n    x, self.conv_transpose.weight, BIAS,\n"
    f"    {_PARTS}, self.conv_transpose.output_padding\n)"
)

PROBLEMS = [
    Pointwise(
        problem=1,
        name="relu_bias",
        arguments="in_channels, out_channels, kernel_size, bias_shape",
        body=[
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
        ],
        layer="conv",
        call=_CONV2D,
        functions=["relu"],
        channel={"bias": "self.bias"},
        triton=["y = relu(x) + bias"],
        cuda=["const float y = relu_f(x) + bias;"],
        analysis="""After the 3x3 convolution the reference makes three passes over a 128-channel feature map:
cuDNN's result gets its bias added in place, ReLU reads it and writes a new tensor, and the second bias is a
broadcast add into a third one. Each pass moves the whole map twice (a read and a write), six map-sized transfers
for three flops per element. The convolution costs 1152 flops per output and is left to cuDNN; what can be removed
is four of the six transfers and two allocations of the size of the output.""",
        note="The order matters: ReLU comes between the two biases, so they cannot be merged into one.",
        members=("plane", "flat", "float4", "persistent"),
    ),
    Pointwise(
        problem=2,
        name="clamp_scale",
        arguments=(
            "in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape, scaling_factor"
        ),
        body=[
            "self.conv_transpose = nn.ConvTranspose2d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding",
            ")",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
            "self.scaling_factor = scaling_factor",
        ],
        layer="conv_transpose",
        call=_TRANSPOSED2D,
        functions=["clamp"],
        channel={"bias": "self.bias"},
        scalars={"scale": "self.scaling_factor"},
        triton=["y = clamp(clamp(x + bias, 0.0, 1.0) * scale, 0.0, 1.0) / scale"],
        cuda=["const float y = clamp_f(clamp_f(x + bias, 0.0f, 1.0f) * scale, 0.0f, 1.0f) / scale;"],
        analysis="""A stride-2 transposed convolution quadruples the number of positions, so the tail works on the
largest tensor of the model. Eager PyTorch walks over it six times: the layer's own bias, the extra bias, clamp,
multiply, clamp, divide, each a read and a write of the full map, twelve transfers in all where two are enough. The
arithmetic is a handful of flops per element and entirely memory-bound; for a stride-2 layer with 64 input channels
these passes cost as much as the transposed convolution itself.""",
        note="""The chain of clamps is kept as written, because a negative scaling factor would change what it
collapses to.""",
        members=("plane", "flat", "float4", "persistent"),
    ),
    Pointwise(
        problem=4,
        name="mish_mish",
        arguments="in_channels, out_channels, kernel_size",
        body=["self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)"],
        layer="conv",
        call=_CONV2D,
        functions=["mish"],
        triton=["y = mish(mish(x))"],
        cuda=["const float y = mish_f(mish_f(x));"],
        analysis="""The tail is two Mish activations in a row on a map of 128 channels. PyTorch runs a bias pass
behind cuDNN and then two Mish kernels, each of which reads and writes the map and evaluates exp, log1p and tanh per
element. That is six transfers of a tensor far larger than L2, and six transcendental functions. Fusing leaves two
transfers; writing tanh(softplus(x)) as a ratio of polynomials in e^x also cuts the special functions to one
exponential and one division for each Mish, so that the kernel stays bound by memory.""",
        note="""With e = exp(x), tanh(log(1 + e)) is e(e + 2) / (e(e + 2) + 2): one exponential and one division
each.""",
        members=("plane", "flat", "float4"),
        block=1024,
    ),
    Pointwise(
        problem=5,
        name="subtract_tanh",
        arguments="in_channels, out_channels, kernel_size, bias_shape, stride=2, padding=1, output_padding=1",
        body=[
            "self.conv_transpose = nn.ConvTranspose2d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding",
            ")",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
        ],
        layer="conv_transpose",
        call=_TRANSPOSED2D,
        functions=["tanh"],
        channel={"bias": "self.bias"},
        triton=["y = tanh(x - bias)"],
        cuda=["const float y = tanh_f(x - bias);"],
        analysis="""The transposed convolution has stride 2 and a 4x4 kernel: each output sums only 4 taps of 64
channels, so it is cheap for the size of what it writes. Behind it come the layer's bias, a broadcast subtraction
and tanh, three elementwise kernels and six map-sized transfers. Two would do. The output has four times as many
positions as the input, and nothing of it survives in L2 between two kernels, so every pass saved is a pass over
DRAM saved; the tail is a large part of the model's time.""",
        note="The layer's bias and the subtracted one both fold into the argument of a single tanh.",
        members=("plane", "float4", "persistent"),
    ),
    Pointwise(
        problem=16,
        name="mish_hardtanh",
        arguments="in_channels, out_channels, kernel_size, stride, padding, output_padding, add_value, scale",
        body=[
            "self.conv_transpose = nn.ConvTranspose2d(",
            "    in_channels, out_channels, kernel_size, stride, padding, output_padding",
            ")",
            "self.add_value = add_value",
            "self.scale = scale",
        ],
        layer="conv_transpose",
        call=_TRANSPOSED2D,
        functions=["mish", "clamp"],
        scalars={"add_value": "self.add_value", "scale": "self.scale"},
        triton=["y = clamp(mish(x) + add_value, -1.0, 1.0) * scale"],
        cuda=["const float y = clamp_f(mish_f(x) + add_value, -1.0f, 1.0f) * scale;"],
        analysis="""Upsampling by a stride-2 transposed convolution, then Mish, a constant added, hardtanh, a
constant factor. Counting the layer's bias, five elementwise kernels run over the upsampled map and make ten
transfers of it. Only Mish does real arithmetic; the others are one instruction on data that has to come from DRAM
and go back each time. Everything is local to one element, so the five collapse to one read and one write, a fifth
of the traffic, and the temporaries disappear as well.""",
        note="""Mish needs one exponential through its rational form; the rest are two additions and a clamp in
registers.""",
        members=("plane", "flat", "float4"),
    ),
    Pointwise(
        problem=31,
        name="min_bias_scale",
        arguments="in_channels, out_channels, kernel_size, constant_value, bias_shape, scaling_factor",
        body=[
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.constant_value = constant_value",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
            "self.scaling_factor = scaling_factor",
        ],
        layer="conv",
        call=_CONV2D,
        channel={"bias": "self.bias"},
        scalars={"limit": "self.constant_value", "scale": "self.scaling_factor"},
        triton=["y = (tl.where(x > limit, limit, x) + bias) * scale"],
        cuda=["const float y = ((x > limit ? limit : x) + bias) * scale;"],
        analysis="""torch.min against a constant builds a one-element tensor on the host at each call and hands it
to a broadcasting kernel; then come the bias and the scale. With cuDNN's bias there are four passes over the
128-channel map, eight transfers, plus the host-side allocation of the constant. The comparison, the add and the
multiply are three instructions on an element that is already in a register after the first read, so two transfers
are enough and the constant becomes a launch argument.""",
        note="The constant arrives as a scalar argument, so no tensor is made for it.",
        members=("plane", "flat", "float4"),
    ),
    Pointwise(
        problem=47,
        name="mish_tanh",
        arguments="in_channels, out_channels, kernel_size, stride=1, padding=0",
        body=["self.conv = nn.Conv3d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)"],
        layer="conv",
        call="F.conv3d(x, self.conv.weight, BIAS, self.conv.stride, self.conv.padding)",
        functions=["mish", "tanh"],
        triton=["y = tanh(mish(x))"],
        cuda=["const float y = tanh_f(mish_f(x));"],
        analysis="""The 3x3x3 convolution over 32 channels costs 1728 flops per output and stays with cuDNN. Its
tail is a bias pass, Mish and tanh: six transfers of a 64-channel volume, and per element exp, log1p and two tanh.
Fused, the volume is read and written once. Two special functions remain, one exponential for Mish in its rational
form and one for tanh; at some forty instructions per 8 bytes the kernel is still bound by memory on a device with
tens of flops per byte.""",
        note="Mish and tanh each become one exponential and one division, chained in registers.",
        members=("plane", "flat", "float4"),
    ),
    Pointwise(
        problem=54,
        name="multiply_leaky_gelu",
        arguments="in_channels, out_channels, kernel_size, multiplier_shape",
        body=[
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.multiplier = nn.Parameter(torch.randn(multiplier_shape))",
            "self.leaky_relu = nn.LeakyReLU()",
        ],
        layer="conv",
        call=_CONV2D,
        functions=["leaky_relu", "gelu"],
        channel={"multiplier": "self.multiplier"},
        scalars={"slope": "self.leaky_relu.negative_slope"},
        triton=["y = gelu(leaky_relu(x * multiplier, slope))"],
        cuda=["const float y = gelu_f(leaky_relu_f(x * multiplier, slope));"],
        analysis="""A 3x3 convolution from 64 to 64 channels on large images is followed by four passes: cuDNN's
bias, a per-channel multiplier, LeakyReLU and exact GELU, eight transfers of the map. The multiplier could be folded
into the weights, but that is only one of the passes and costs a kernel on the weights at each call; fusing all four
behind the convolution needs two transfers and no change to the weights. The erf of GELU is the only expensive
instruction, well below what memory allows.""",
        note="The multiplier applies to the convolution's result with its bias, so the bias is added first.",
        members=("plane", "flat", "float4"),
    ),
    Pointwise(
        problem=57,
        name="relu_hardswish",
        arguments="in_channels, out_channels, kernel_size",
        body=["self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)"],
        layer="conv",
        call=_CONV2D,
        functions=["relu", "clamp"],
        triton=["v = relu(x)", "y = v * clamp((v + 3.0) * 0.16666666666666666, 0.0, 1.0)"],
        cuda=["const float v = relu_f(x);", "const float y = v * clamp_f((v + 3.0f) * 0.16666667f, 0.0f, 1.0f);"],
        analysis="""HardSwish is written out, so each of its parts is a kernel: add 3, divide by 6, clamp, multiply.
With ReLU and the pass for cuDNN's bias that is six kernels and thirteen transfers of a 64-channel map, behind a
convolution over only 8 channels (144 flops per output) that is itself close to memory-bound. The written-out
activation therefore costs several times the convolution. All of it depends on a single element: one read, one
write, half a dozen instructions.""",
        note="The division by 6 becomes a multiplication by 1/6, exact to the last bit or two.",
        members=("plane", "flat", "float4", "persistent"),
    ),
    Pointwise(
        problem=69,
        name="hardswish_relu",
        arguments="in_channels, out_channels, kernel_size",
        body=["self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)"],
        layer="conv",
        call=_CONV2D,
        functions=["hardswish", "relu"],
        triton=["y = relu(hardswish(x))"],
        cuda=["const float y = relu_f(hardswish_f(x));"],
        analysis="""With 8 input channels the 3x3 convolution needs 144 flops per output, so writing its 64-channel
map already takes about as long as computing it. Three elementwise passes follow (cuDNN's bias, hardswish, ReLU),
six further transfers of the map, which is three times what the convolution writes and reads. ReLU after hardswish
only removes the small negative dip between -3 and 0. One kernel with one read and one write replaces all three
passes and both temporaries.""",
        note="ReLU of hardswish is zero below zero, so the two clamps are a few comparisons per element.",
        members=("plane", "flat", "float4"),
    ),
    Pointwise(
        problem=71,
        name="divide_leaky",
        arguments="in_channels, out_channels, kernel_size, divisor",
        body=["self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)", "self.divisor = divisor"],
        layer="conv",
        call=_CONV2D,
        functions=["leaky_relu"],
        scalars={"divisor": "self.divisor"},
        triton=["y = leaky_relu(x / divisor, 0.01)"],
        cuda=["const float y = leaky_relu_f(x / divisor, 0.01f);"],
        analysis="""A light convolution (8 input channels, 144 flops per output) feeds a division by a constant and
LeakyReLU. PyTorch makes three passes over the 64-channel map: the convolution's bias in place, the division into a
new tensor, LeakyReLU into another, six transfers where two suffice. The convolution itself writes the map once, so
the tail moves more bytes than the operation that produces them. Fusing also halves the memory that is allocated, as
no temporary of the map's size is needed.""",
        note="Division and slope are two multiplications at most; the kernel does nothing but stream.",
        members=("plane", "flat", "float4", "persistent"),
    ),
    Pointwise(
        problem=87,
        name="subtract_mish",
        arguments="in_channels, out_channels, kernel_size, subtract_value_1, subtract_value_2",
        body=[
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.subtract_value_1 = subtract_value_1",
            "self.subtract_value_2 = subtract_value_2",
        ],
        layer="conv",
        call=_CONV2D,
        functions=["mish"],
        scalars={"first_value": "self.subtract_value_1", "second_value": "self.subtract_value_2"},
        triton=["y = mish(x - first_value - second_value)"],
        cuda=["const float y = mish_f(x - first_value - second_value);"],
        analysis="""Two constants are subtracted one after the other and Mish follows. Each subtraction is a kernel
that reads and writes a 64-channel map for one flop per element; with cuDNN's bias pass and Mish there are four
passes and eight transfers. The convolution has only 8 input channels, so those passes take longer than it does.
Since all of bias, constants and Mish act on one element, the map needs to be read once and written once: a quarter
of the tail's traffic.""",
        note="""The constants are subtracted in the reference's order, which costs nothing and keeps its rounding.""",
        members=("plane", "flat", "float4"),
    ),
    Pointwise(
        problem=93,
        name="add_min_gelu",
        arguments="in_channels, out_channels, kernel_size, stride, add_value, multiply_value",
        body=[
            "self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=stride)",
            "self.add_value = add_value",
            "self.multiply_value = multiply_value",
        ],
        layer="conv_transpose",
        call="F.conv_transpose2d(x, self.conv_transpose.weight, BIAS, self.conv_transpose.stride)",
        functions=["gelu"],
        scalars={"add_value": "self.add_value", "factor": "self.multiply_value"},
        triton=["v = x + add_value", "y = gelu(tl.where(v > 0.0, 0.0, v)) * factor"],
        cuda=["const float v = x + add_value;", "const float y = gelu_f(v > 0.0f ? 0.0f : v) * factor;"],
        analysis="""The transposed convolution (4x4 kernel, stride 2) is followed by a constant added, a minimum
with zero, GELU and a constant factor. The minimum is taken against a tensor that is made on the device at each
call, a launch of its own. With the layer's bias five kernels pass over a 128-channel map that is four times as
large as the input's, ten transfers. Fused, two remain, the zero is a literal, and a fifth of the bytes moves;
GELU's erf is hidden behind them.""",
        note="""GELU sees only values up to zero, where its result is small and bounded; the formula needs no
special case.""",
        members=("plane", "flat", "float4"),
    ),
]
