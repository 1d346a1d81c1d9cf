"""A fork server for a GPU: compilers are in memory before the fork, the driver and its threads are not."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from cudal1_ray.evaluation.inside.preloading import furnish_cache

LOOK = """
import json, os, sys
import torch
before = len(os.listdir("/proc/self/task"))
from cudal1_ray.evaluation.inside.preloading import furnish_cache, preload
files = preload()
maps = open("/proc/self/maps").read()
print(json.dumps({
    "files": sorted(map(os.path.basename, files)), "threads": len(os.listdir("/proc/self/task")) - before,
    "driver": "libcuda.so" in maps, "triton": "triton.compiler.code_generator" in sys.modules,
    "extensions": "torch.utils.cpp_extension" in sys.modules,
}))
"""
WITHOUT_A_COMPILER = """
import os, tempfile
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
furnish_cache(os.environ["TRITON_CACHE_DIR"], files)
os.environ["CC"] = "/bin/false"
sys.modules["triton.backends.nvidia.driver"].CudaUtils()
print(json.dumps("loaded"))
"""


def run(code: str) -> list:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_preload_when_there_is_a_triton_or_none_starts_no_thread_and_opens_no_driver():
    (state,) = run(LOOK)
    there = importlib.util.find_spec("triton") is not None
    assert state["threads"] <= 0 and state["extensions"] and state["triton"] is there
    assert not (there and state["driver"]) and (there or state["files"] == [])


@pytest.mark.gpu
def test_a_process_with_a_furnished_cache_when_it_wants_the_driver_needs_no_compiler():
    pytest.importorskip("triton")
    state, loaded = run(LOOK + WITHOUT_A_COMPILER)
    assert [name.partition(".")[0] for name in state["files"]] == ["cuda_utils"] and loaded == "loaded"


def test_furnish_cache_when_given_files_writes_each_at_its_path(tmp_path):
    furnish_cache(str(tmp_path / "triton"), {"KEY/helper.so": b"built", "OTHER/helper.so": b"too"})
    written = {
        os.path.relpath(os.path.join(folder, name), tmp_path)
        for folder, _, names in os.walk(tmp_path)
        for name in names
    }
    assert written == {"triton/KEY/helper.so", "triton/OTHER/helper.so"}
    assert (tmp_path / "triton" / "KEY" / "helper.so").read_bytes() == b"built"
