"""Inline extensions inside a contestant: loaded from what the compile step built, or built in private scratch.

`torch.utils.cpp_extension.load_inline` and `load` are replaced before the candidate is imported. A build is known by
the hash of all its arguments, so two extensions of one name cannot meet, and the folder is the contestant's own.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from typing import Any


class ExtensionBuildError(Exception):
    """The compiler said no."""


# How torch begins what the compiler said. Anything else may be this process's: it has no GPU, or no room.
_REFUSAL = "Error building extension"
_SOURCES = (
    "cpp_sources", "cuda_sources", "sycl_sources", "functions", "extra_cflags", "extra_cuda_cflags",
    "extra_ldflags",
    "extra_include_paths", "with_cuda", "with_pytorch_error_handling", "use_pch", "no_implicit_headers",
)  # fmt: skip


def build_key(name: str, options: dict[str, Any]) -> str:
    """Hash of everything that shapes the binary, torch's version included."""
    import torch

    digest = hashlib.sha256(f"{torch.__version__}|{sys.version_info[:2]}|{name}".encode())
    for option in sorted(options):
        if option in _SOURCES or option == "file_texts":
            digest.update(f"|{option}={options[option]!r}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def install_extension_loader(
    scratch: str,
    built: dict[str, int],
    failed: dict[str, str],
    on_build: Callable[[str, str], None] | None = None,
    on_failure: Callable[[str, str], None] | None = None,
) -> None:
    """``built``: key -> descriptor of the finished library; ``failed``: key -> what the compiler said, of builds that
    need not be tried again. ``on_build(key, path)`` and ``on_failure(key, message)`` are told of each new one.
    """
    import torch
    import torch.utils.cpp_extension as cpp_extension

    original_inline, original_load = cpp_extension.load_inline, cpp_extension.load
    load_library = torch.ops.load_library
    loaded: dict[str, Any] = {}

    def provide(name: str, options: dict[str, Any], build: Callable[[str], Any]) -> Any:
        if not str(name).isidentifier():
            raise ExtensionBuildError(f"extension name {name!r} is no identifier")
        key = build_key(name, options)
        if key in loaded:
            return loaded[key]
        if key in failed:
            raise ExtensionBuildError(failed[key])
        if key in built:
            path = os.path.join(scratch, f"{key}.so")
            with os.fdopen(os.dup(built[key]), "rb") as source, open(path, "wb") as target:
                source.seek(0)
                target.write(source.read())
            # Without a Python module in it, as those have that register operators, it is only to be loaded.
            module = _import_library(name, path) if options.get("is_python_module", True) else load_library(path)
        else:
            folder = os.path.join(scratch, f"build-{key}")
            os.makedirs(folder, exist_ok=True)
            try:
                module = build(folder)
            except (RuntimeError, OSError) as error:
                said = _gist(str(error))
                if str(error).startswith(_REFUSAL):
                    failed[key] = said
                    if on_failure is not None:
                        on_failure(key, said)
                raise ExtensionBuildError(said) from error
            if on_build is not None:
                on_build(key, os.path.join(folder, f"{name}.so"))
        loaded[key] = module
        return module

    def load_inline(name: str, cpp_sources: Any = None, cuda_sources: Any = None, **options: Any) -> Any:
        options.pop("build_directory", None)
        options.pop("verbose", None)
        every = {**options, "cpp_sources": cpp_sources, "cuda_sources": cuda_sources}
        return provide(
            name,
            every,
            lambda folder: original_inline(name, cpp_sources, cuda_sources, **options, build_directory=folder),
        )

    def load(name: str, sources: Any, **options: Any) -> Any:
        options.pop("build_directory", None)
        options.pop("verbose", None)
        paths = [sources] if isinstance(sources, str) else list(sources)
        texts = []
        for path in paths:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
        every = {**options, "file_texts": texts}
        return provide(name, every, lambda folder: original_load(name, paths, **options, build_directory=folder))

    cpp_extension.load_inline, cpp_extension.load = load_inline, load


def _import_library(name: str, path: str) -> Any:
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def _gist(text: str) -> str:
    """The compiler's first errors; whole logs are long and say little."""
    lines = [line.strip() for line in text.splitlines() if re.search(r"\berror: |: error\b|undefined", line)]
    return " | ".join(lines[:6])[:1500] or text[-500:]
