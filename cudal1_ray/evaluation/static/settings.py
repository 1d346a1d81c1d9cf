"""Global switches: setting one to its default or to something stricter is honest, loosening it is not.

What a switch was is compared again when the candidate has run (contestants/cpu_device.py); this sees what is put back
by then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .names import Names

_Allowed = tuple[object, ...]
# Attributes and variables by the last part of their name, with the values that loosen nothing. These are so named
# nowhere else, so they count whatever they are reached through.
_ANYWHERE: dict[str, _Allowed] = {
    "allow_tf32": (False,), "allow_fp16_accumulation": (False,), "fp32_precision": ("ieee", "none"),
    "NVIDIA_TF32_OVERRIDE": ("0",), "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": ("0",),
}  # fmt: skip
# Of torch.backends only.
_OF_BACKENDS: dict[str, _Allowed] = {"enabled": (True,)}
# Convolutions may be TF32 unless one asks for more: torch's own default.
_OF_CUDNN: dict[str, _Allowed] = {"allow_tf32": (True, False), "fp32_precision": ("ieee", "none", "tf32")}
# Functions by full name, and what their last argument may be; all but these may only put back what was.
_FUNCTIONS: dict[str, _Allowed] = {
    "torch.set_float32_matmul_precision": ("highest",), "torch._C._set_float32_matmul_precision": ("highest",),
    "torch.set_default_dtype": ("torch.float32", "torch.float"), "torch._C._set_default_dtype": ("torch.float32",),
    "torch.set_default_tensor_type": ("torch.FloatTensor",), "torch._C._set_default_tensor_type": (),
    "torch.set_default_device": (), "torch.set_num_threads": (1,), "torch.set_num_interop_threads": (1,),
    "torch.set_flush_denormal": (False,), "torch._C._set_cublas_allow_tf32": (False,),
    "torch._C._set_cublas_allow_fp16_accumulation": (False,), "torch._C._set_onednn_allow_tf32": (False,),
    "torch._C._set_cudnn_enabled": (True,), "torch._C._set_mkldnn_enabled": (True,),
    "torch._C._set_fp32_precision_setter": ("ieee", "none"), "torch.set_autocast_enabled": (False,),
    "torch.set_autocast_gpu_dtype": (), "torch.set_autocast_cpu_dtype": (), "torch.set_autocast_dtype": (),
}  # fmt: skip
_SET_STREAM = ("torch.cuda.set_stream", "torch._C._cuda_setStream", "torch.accelerator.set_stream")
_FOUND_STREAM = ("torch.cuda.current_stream", "torch.cuda.default_stream", "torch.accelerator.current_stream")


class Settings:
    """Judges values by the syntax tree: a value that cannot be read there loosens."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._back: dict[ast.AST, bool] = {}

    def loosens(self, base: str, last: str, value: ast.expr | None) -> bool:
        """Does ``base.last = value`` loosen a global switch? ``base`` is a dotted name, empty when it has none."""
        allowed = _ANYWHERE.get(last)
        if base.startswith("torch.backends.cudnn"):
            allowed = _OF_CUDNN.get(last)
        if allowed is None and base.startswith("torch.backends"):
            allowed = _OF_BACKENDS.get(last)
        if allowed is None or base in ("self", "cls"):
            return False
        return value is None or not self._keeps(value, allowed, last)

    def called(self, node: ast.Call, name: str) -> Iterator[str]:
        """The settings that a call of ``name`` loosens."""
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        if name in _FUNCTIONS and not (values and self._keeps(values[-1], _FUNCTIONS[name], name)):
            yield f"{name}()"
        if name in _SET_STREAM and not self._goes_back(self.names.scope[node]):
            yield f"{name}()"
        base, _, last = name.rpartition(".")
        if base.startswith("torch.backends.") and last in ("flags", "set_flags"):
            for keyword in node.keywords:
                if self.loosens(base, (keyword.arg or "").lstrip("_"), keyword.value):
                    yield f"{name}({keyword.arg}=...)"
        if name in ("os.putenv", "os.environ.setdefault") and len(values) == 2 and isinstance(values[0], ast.Constant):
            if self.loosens("os.environ", str(values[0].value), values[1]):
                yield f"{name}({values[0].value!r})"

    def _keeps(self, value: ast.expr, allowed: _Allowed, setting: str) -> bool:
        """Is this one of the values allowed, or what the same setting was before?"""
        value = self.names.origin(value)
        if isinstance(value, ast.Constant):
            return any(type(value.value) is type(one) and value.value == one for one in allowed)
        if isinstance(value, ast.Call):
            return self.names.name(value.func) == setting.replace("set_", "get_")
        if isinstance(value, ast.Attribute) and value.attr == setting:
            return True
        return self.names.name(value) in allowed

    def _goes_back(self, function: ast.AST) -> bool:
        """Does the function that sets a stream also set the one it found?"""
        if function not in self._back:
            self._back[function] = any(map(self._restores, self.names.nodes[function]))
        return self._back[function]

    def _restores(self, node: ast.AST) -> bool:
        if not (isinstance(node, ast.Call) and node.args and self.names.name(node.func) in _SET_STREAM):
            return False
        found = self.names.origin(node.args[0])
        return isinstance(found, ast.Call) and self.names.name(found.func) in _FOUND_STREAM
