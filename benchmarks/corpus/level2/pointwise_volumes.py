"""The level 2 problems whose 3D convolution is followed by pointwise operations only."""

from __future__ import annotations

from benchmarks.corpus.level2.pointwise import Pointwise

_CONV3D = "F.conv3d(x, self.conv.weight, BIAS)"
_PARTS = "self.conv_transpose.stride, self.conv_transpose.padding"
_TRANSPOSED3D = (
    f"F.conv_transpose3d(\n    x, self.conv_transpose.weight, BIAS,\n"
    f"    {_PARTS}, self.conv_transpose.output_padding\n)"
)

PROBLEMS = [
    Pointwise(
        problem=7,
        name="activations_bias",
        arguments="in_channels, out_channels, kernel_size, bias_shape",
        body=[
            "self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
        ],
        layer="conv",
        call=_CONV3D,
        functions=["relu", "gelu"],
        channel={"bias": "self.bias"},
        triton=["y = tl.sigmoid(gelu(relu(x))) + bias"],
        cuda=["const float y = sigmoid_f(gelu_f(relu_f(x))) + bias;"],
        analysis="""Eight input channels make the 3D convolution light (432 flops per output), while the tail has
five elementwise steps: ReLU, LeakyReLU, GELU, sigmoid and a broadcast bias, plus the pass in which PyTorch adds the
convolution's own bias. Twelve transfers of a 32-channel volume where two suffice: the tail dominates the run time.
LeakyReLU behind ReLU does nothing, since its argument is never negative; it can be dropped for every input, which
leaves one erf and one exponential per element.""",
        note="LeakyReLU after ReLU is the identity and is left out.",
        functions_cuda=["relu", "gelu", "sigmoid"],
        members=("plane", "flat", "float4", "persistent"),
    ),
    Pointwise(
        problem=20,
        name="residual_chain",
        arguments="in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape",
        body=[
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding",
            ")",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
        ],
        layer="conv_transpose",
        call=_TRANSPOSED3D,
        channel={"bias": "self.bias"},
        triton=["y = ((x + bias) + x) * x + x"],
        cuda=["const float y = ((x + bias) + x) * x + x;"],
        analysis="""The reference keeps the transposed convolution's output as a residual: it clones the volume,
adds a bias, adds the clone, multiplies by it and adds it again. With the layer's bias that is six kernels; the
binary ones read two volumes, so altogether fifteen volume-sized transfers flow for a polynomial in one variable, y
= x (2x + b + 1). The volume has eight times the positions of the input, which makes these passes heavier than the
stride-2 transposed convolution itself. One read and one write are all that is needed.""",
        note="The clone disappears: the residual is the register that holds x, used three times.",
        members=("plane", "flat", "float4", "persistent"),
    ),
    Pointwise(
        problem=26,
        name="add_hardswish",
        arguments="in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape",
        body=[
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding",
            ")",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
        ],
        layer="conv_transpose",
        call=_TRANSPOSED3D,
        functions=["hardswish"],
        same_shape="add_input",
        triton=["v = x + add_input", "y = v * hardswish(v)"],
        cuda=["const float v = x + add_input;", "const float y = v * hardswish_f(v);"],
        analysis="""A second input as large as the upsampled volume is added to the transposed convolution's output,
and the sum is multiplied by its hardswish. Passes of the reference: layer bias (2 transfers), add (3), hardswish
(2), multiply (3), ten transfers of the volume. The lower bound is three: read the convolution's result, read the
added input, write the output. The parameter called bias takes no part in the forward pass, but has to exist so that
weights load by name.""",
        note="The sum is formed once in a register and used both as the factor and as hardswish's argument.",
        members=("plane", "flat", "float4"),
    ),
    Pointwise(
        problem=48,
        name="scale_tanh_sigmoid",
        arguments="in_channels, out_channels, kernel_size, scaling_factor, bias_shape",
        body=[
            "self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)",
            "self.scaling_factor = nn.Parameter(torch.randn(bias_shape))",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
        ],
        layer="conv",
        call=_CONV3D,
        functions=["tanh"],
        channel={"scaling": "self.scaling_factor", "gain": "self.bias"},
        triton=["y = tl.sigmoid(tanh(x * scaling) * gain)"],
        cuda=["const float y = sigmoid_f(tanh_f(x * scaling) * gain);"],
        functions_cuda=["tanh", "sigmoid"],
        analysis="""Three input channels: the convolution does 162 flops per output, so the model is almost nothing
but its tail. That tail multiplies by a per-channel factor, takes tanh, multiplies by a second per-channel parameter
(named bias, used as a gain) and takes the sigmoid, after the pass for the convolution's bias: five kernels and ten
transfers of a 16-channel volume. One kernel with two transfers cuts the traffic by five, and since the convolution
is light most of that shows in the total.""",
        note="""Both per-channel parameters multiply, one before tanh and one after; tanh and sigmoid cost an
exponential each.""",
        members=("plane", "flat", "float4", "persistent"),
    ),
    Pointwise(
        problem=90,
        name="leaky_add_clamp_gelu",
        arguments="in_channels, out_channels, kernel_size, sum_tensor_shape",
        body=[
            "self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)",
            "self.sum_tensor = nn.Parameter(torch.randn(sum_tensor_shape))",
        ],
        layer="conv",
        call=_CONV3D,
        functions=["leaky_relu", "clamp", "gelu"],
        channel={"shift": "self.sum_tensor"},
        triton=["y = gelu(clamp(leaky_relu(x, 0.2) + shift, -1.0, 1.0))"],
        cuda=["const float y = gelu_f(clamp_f(leaky_relu_f(x, 0.2f) + shift, -1.0f, 1.0f));"],
        analysis="""Five passes follow a 3D convolution with 8 input and 64 output channels: its bias, LeakyReLU, a
per-channel sum tensor, clamp and GELU, which is ten transfers of a volume eight times the size of the input. The
convolution does 432 flops per output value, so the elementwise kernels are the larger part of the time. Nothing
couples two elements, and the only parameters are two numbers per channel, so one kernel with a read and a write
does it, with about a fifth of the bytes.""",
        note="After the clamp, erf's argument lies in [-0.71, 0.71], where it is cheap and accurate.",
        members=("plane", "flat", "float4", "persistent"),
    ),
    Pointwise(
        problem=100,
        name="clamp_divide",
        arguments="in_channels, out_channels, kernel_size, stride, padding, min_value, divisor",
        body=[
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding",
            ")",
            "self.min_value = min_value",
            "self.divisor = divisor",
        ],
        layer="conv_transpose",
        call=f"F.conv_transpose3d(x, self.conv_transpose.weight, BIAS, {_PARTS})",
        scalars={"minimum": "self.min_value", "divisor": "self.divisor"},
        triton=["y = tl.where(x < minimum, minimum, x) / divisor"],
        cuda=["const float y = (x < minimum ? minimum : x) / divisor;"],
        analysis="""A 3D transposed convolution with stride 2 from 64 to 128 channels produces a volume of odd
extents (2D - 1), then its bias is added, it is clamped from below and divided by a constant: three passes, six
transfers of the largest tensor in the model. The arithmetic per element is trivial. What remains after fusion is
one read and one write. Odd extents mean that a channel's volume is no multiple of four floats, so vector accesses
are not aligned to it, which a kernel has to allow for.""",
        note="A channel's volume has an odd number of elements here, so masks cover the end of every plane.",
        members=("plane", "flat", "float4"),
    ),
]
