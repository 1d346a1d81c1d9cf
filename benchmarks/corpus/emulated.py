"""Inline CUDA of candidates without a GPU: compiled by nvcc for Hopper, and run by threads of the CPU.

`install()` puts both behind `torch.utils.cpp_extension.load_inline` and `torch.cuda._compile_kernel`, as far as the
corpus uses them: kernels on raw pointers, launchers on integers and floats.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch

HEADER = Path(__file__).parent / "emulation.h"
CTYPES = {"size_t": ctypes.c_size_t, "long": ctypes.c_long, "int": ctypes.c_int, "float": ctypes.c_float}

_LAUNCH = re.compile(r"(\w+)<<<(.+?)>>>\((.*?)\);", re.DOTALL)
_LAUNCHER = re.compile(r"^void (\w+)\(([^)]*)\);$", re.MULTILINE)


class CudaError(Exception):
    """A kernel that does not compile. The message holds the compiler's."""


def install(folder: Path, runs: bool = True, nvcc: str = "nvcc") -> None:
    """Replace PyTorch's two ways to inline CUDA in this process. Builds go to `folder` and are made once.

    Without `runs` kernels are compiled only, and calling them does nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def load_inline(name, cpp_sources, cuda_sources, **others):
        if set(others) - {"no_implicit_headers", "extra_cuda_cflags"}:
            raise CudaError(f"{name}: load_inline with {sorted(others)} is not emulated")
        compile_for_hopper(cuda_sources, folder, nvcc)
        if not runs:
            return SimpleNamespace(**{name: _nothing for name, _ in _LAUNCHER.findall(cpp_sources)})
        library = ctypes.CDLL(str(_shared_library(cuda_sources, folder)))
        functions = {}
        for function, parameters in _LAUNCHER.findall(cpp_sources):
            types = [CTYPES[parameter.split()[0]] for parameter in parameters.split(",")]
            functions[function] = _typed(getattr(library, function), types)
        return SimpleNamespace(**functions)

    def compile_kernel(kernel_source, kernel_name, **others):
        compile_for_hopper(kernel_source, folder, nvcc)
        return _runtime_kernel(kernel_source, kernel_name, folder) if runs else _nothing

    torch.utils.cpp_extension.load_inline = load_inline
    torch.cuda._compile_kernel = compile_kernel


def _nothing(*arguments, **others) -> None:
    pass


def compile_for_hopper(source: str, folder: Path, nvcc: str = "nvcc") -> str:
    """Return registers, shared memory and spills of each kernel, as ptxas reports them. Raises CudaError."""
    build = _build_folder(source, folder)
    report = build / "ptxas.txt"
    if not report.exists():
        (build / "kernel.cu").write_text(source)
        command = [nvcc, "-arch=sm_90", "-std=c++17", "-Xptxas=-v", "-c", "kernel.cu", "-o", "kernel.o"]
        ended = subprocess.run(command, cwd=build, capture_output=True, text=True)
        if ended.returncode:
            raise CudaError(f"nvcc: {ended.stderr[-1500:]}")
        report.write_text(ended.stderr)
    lines = re.findall(r"\d+ registers|[1-9]\d* bytes spill stores|\d+ bytes smem", report.read_text())
    return ", ".join(lines)


def _build_folder(source: str, folder: Path) -> Path:
    build = folder / hashlib.sha256(HEADER.read_bytes() + source.encode()).hexdigest()[:16]
    build.mkdir(exist_ok=True)
    return build


def _shared_library(source: str, folder: Path, extra: str = "") -> Path:
    build = _build_folder(source + extra, folder)
    library = build / "kernel.so"
    if not library.exists():
        text = re.sub(r"#include\s*<[^>]*>", "", source)
        text = _LAUNCH.sub(_emulated_launch, text)
        text = re.sub(r"^void (\w+)\(", r'extern "C" void \1(', text, flags=re.MULTILINE)
        text = text.replace('extern "C" __global__', "__global__")
        (build / "kernel.cpp").write_text(f'#include "{HEADER}"\n{text}\n{extra}\n')
        command = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-w", "-pthread", "kernel.cpp", "-o", "kernel.so"]
        ended = subprocess.run(command, cwd=build, capture_output=True, text=True)
        if ended.returncode:
            raise CudaError(f"g++: {ended.stderr[:1500]}")
    return library


def _emulated_launch(match: re.Match) -> str:
    kernel, launch, arguments = match.groups()
    parts, depth = [""], 0
    for character in launch:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return f"launch_({parts[0]}, {parts[1]}, [=] {{ {kernel}({arguments}); }});"


def _typed(function: Callable, types: list) -> Callable:
    function.argtypes, function.restype = types, None
    return function


def _runtime_kernel(source: str, name: str, folder: Path) -> Callable:
    """Return a kernel that is called as `torch.cuda._compile_kernel` has it: `kernel(grid=, block=, args=)`."""
    signature = re.search(
        r"__global__\s+void(?:\s+__launch_bounds__\s*\([^)]*\))?\s+" + name + r"\s*\(([^)]*)\)", source
    )
    types = [re.sub(r"__restrict__|\b\w+$", "", part.strip()).strip() for part in signature.group(1).split(",")]
    arguments = ", ".join(f"*({kind}*)values[{index}]" for index, kind in enumerate(types))
    extra = (
        'extern "C" void run(long gx, long gy, long gz, long bx, long by, long bz, void** values) {\n'
        f"    launch_(dim3(gx, gy, gz), dim3(bx, by, bz), [=] {{ {name}({arguments}); }});\n}}"
    )
    library = ctypes.CDLL(str(_shared_library(source, folder, extra)))

    def kernel(grid=(1, 1, 1), block=(1, 1, 1), args=(), shared_mem=0, stream=None):
        if len(args) != len(types):
            raise CudaError(f"{name}: {len(args)} arguments for {len(types)} parameters")
        values = []
        for value, kind in zip(args, types, strict=True):
            plain = kind.replace("const", "").strip()
            if isinstance(value, torch.Tensor) and "*" in kind:
                values.append(ctypes.c_void_p(value.data_ptr()))
            elif type(value) is int and plain == "int":
                values.append(ctypes.c_int(value))
            elif type(value) is float and plain == "double":
                values.append(ctypes.c_double(value))
            else:
                raise CudaError(f"{name}: {type(value).__name__} for a parameter of type {kind}")
        pointers = [ctypes.cast(ctypes.pointer(value), ctypes.c_void_p) for value in values]
        library.run(*(ctypes.c_long(extent) for extent in (*grid, *block)), (ctypes.c_void_p * len(values))(*pointers))

    return kernel
