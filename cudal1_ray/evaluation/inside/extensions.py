"""Inline extensions inside a contestant: loaded from what the compile step built, or built in private scratch.

`torch.utils.cpp_extension.load_inline` and `load` are replaced before the candidate is imported. The hash of all its
arguments identifies a build, so two extensions of one name stay apart, and each contestant has its own folder.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable
from typing import Any

# Python modules of extensions that this process has loaded.
LOADED: list[Any] = []


class ExtensionBuildError(Exception):
    """The compiler refused an extension."""


# Start of torch's message for a compiler error. Any other error may be due to this process: it has no GPU, or no room.
_REFUSAL = "Error building extension"


def build_key(name: str, options: dict[str, Any]) -> str:
    """Return a hash of everything that affects the binary, torch's version included."""
    import torch

    digest = hashlib.sha256(f"{torch.__version__}|{sys.version_info[:2]}|{name}".encode())
    for option in sorted(options):
        digest.update(f"|{option}={options[option]!r}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def install_extension_loader(scratch: str, built: dict[str, int], failed: dict[str, str]) -> dict[str, str]:
    """Replace torch's functions that build extensions by ones that load finished libraries, or build them in `scratch`.

    Args:
        built: key -> descriptor of the finished library.
        failed: key -> the compiler's message, of builds that need not be tried again; new failures are added.

    Returns:
        key -> path of each new library, filled as they are built.
    """
    import torch
    import torch.utils.cpp_extension as cpp_extension

    original_inline, original_load = cpp_extension.load_inline, cpp_extension.load
    load_library = torch.ops.load_library
    loaded: dict[str, Any] = {}
    new_paths: dict[str, str] = {}

    def import_new(name: str, key: str, path: str) -> Any:
        """Import a library under a full name of its own: pybind11 gives the first module of a name for all of them."""
        taken = any(getattr(module, "__name__", "") == name for module in loaded.values())
        return _import_library(f"{key}.{name}" if taken else name, path)

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
            # A library that only registers operators contains no Python module, and is only loaded.
            module = import_new(name, key, path) if options.get("is_python_module", True) else load_library(path)
        else:
            folder = os.path.join(scratch, f"build-{key}")
            os.makedirs(folder, exist_ok=True)
            # Another extension of this name has its own folder, so torch need not number its versions.
            cpp_extension.JIT_EXTENSION_VERSIONER.entries.pop(name, None)
            try:
                module = build(folder)
            except (RuntimeError, OSError) as error:
                message = _gist(str(error))
                if str(error).startswith(_REFUSAL):
                    failed[key] = message
                raise ExtensionBuildError(message) from error
            path = os.path.join(folder, f"{name}.so")
            if module is not None and any(module is other for other in loaded.values()):
                module = import_new(name, key, path)
            new_paths[key] = path
        loaded[key] = module
        if module is not None and hasattr(module, "__dict__"):
            LOADED.append(module)
        return module

    inline_parameters, load_parameters = inspect.signature(original_inline), inspect.signature(original_load)

    def load_inline(*args: Any, **kwargs: Any) -> Any:
        options = _options(inline_parameters, args, kwargs)
        name = options.pop("name")
        every = {"cpp_sources": None, "cuda_sources": None, **options}
        return provide(name, every, lambda folder: original_inline(name, **options, build_directory=folder))

    def load(*args: Any, **kwargs: Any) -> Any:
        options = _options(load_parameters, args, kwargs)
        name, sources = options.pop("name"), options.pop("sources")
        paths = [sources] if isinstance(sources, str) else list(sources)
        texts = []
        for path in paths:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
        every = {**options, "file_texts": texts}
        return provide(name, every, lambda folder: original_load(name, paths, **options, build_directory=folder))

    cpp_extension.load_inline, cpp_extension.load = load_inline, load
    return new_paths


def _options(parameters: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, except the build folder and the verbosity."""
    named = dict(parameters.bind(*args, **kwargs).arguments)
    return {name: value for name, value in named.items() if name not in ("build_directory", "verbose")}


def _import_library(name: str, path: str) -> Any:
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(name, loader, origin=path))
    loader.exec_module(module)
    return module


def _gist(text: str) -> str:
    """Return the compiler's first errors, since whole logs are long and hardly informative."""
    lines = [line.strip() for line in text.splitlines() if re.search(r"\berror: |: error\b|undefined", line)]
    return " | ".join(lines[:6])[:1500] or text[-500:]
