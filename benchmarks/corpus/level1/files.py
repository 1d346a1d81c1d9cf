"""The texts that candidates of level 1 share: imports, the CUDA wrapper, and how constants are filled in."""

from __future__ import annotations

import textwrap

TRITON_HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"
CUDA_HEAD = "import torch\nimport torch.nn as nn\nfrom torch.utils.cpp_extension import load_inline\n"


def fill(text: str, /, **constants: object) -> str:
    """Return the text without common indentation, each `$name` replaced by its constant. Longer names first."""
    text = textwrap.dedent(text).strip("\n")
    for name in 2 * sorted(constants, key=len, reverse=True):  # a constant's own text may name others
        text = text.replace(f"${name}", str(constants[name]))
    return text


def triton_file(kernels: str, model: str, /, **constants: object) -> str:
    """Return a candidate's file with Triton kernels."""
    parts = [TRITON_HEAD.strip(), fill(kernels, **constants), fill(model, **constants)]
    return "\n\n\n".join(parts) + "\n"


def cuda_file(extension: str, cuda: str, launcher: str, model: str, /, **constants: object) -> str:
    """Return a candidate's file with one inline CUDA launcher, built without torch's headers.

    `cuda` ends with the launcher's definition; `launcher` is its declaration without the semicolon, e.g.
    `void relu(size_t x, size_t out, long n, size_t stream)`.
    """
    function = launcher.partition("(")[0].split()[-1]
    source = fill(cuda, **constants)
    binding = (
        f"#include <pybind11/pybind11.h>\n{launcher};\n"
        f'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{function}", &{function}); }}'
    )
    inline = (
        f'CUDA = r"""\n{source}\n"""\nCPP = r"""\n{binding}\n"""\n'
        f'kernels = load_inline("{extension}", CPP, CUDA, no_implicit_headers=True)'
    )
    return "\n\n".join([CUDA_HEAD.strip(), inline]) + "\n\n\n" + fill(model, **constants) + "\n"


def prose(text: str, /, **constants: object) -> str:
    """Return one paragraph, or numbered steps with one step a line."""
    lines = [" ".join(part.split()) for part in fill(text, **constants).split("\n\n")]
    return "\n".join(line for line in lines if line)
