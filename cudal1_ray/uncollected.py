"""Imports of large packages without garbage collections in between, and left out of later ones."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Run the block without cyclic garbage collections.

    An import makes hundreds of thousands of objects that stay, and Python looks for cycles among all of them again and
    again: CPU seconds with and without are 3.9 and 3.0 for what `cudal1 train` imports, 3.4 and 2.7 for `cudal1 serve`.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def imported_to_stay() -> Iterator[None]:
    """Run imports without cyclic garbage collections, and leave what they make out of all later ones.

    Each of the first three collections would look at every object: CPU seconds of them are 0.9 after the imports of
    `cudal1 train`, 1.4 after those of vLLM. A block that imports nothing new leaves out nothing: its process may have
    garbage by then.
    """
    modules = len(sys.modules)
    with uncollected():
        yield
        if len(sys.modules) > modules:
            gc.freeze()
