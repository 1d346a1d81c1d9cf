"""A fork server for a GPU has Triton in memory, and its contestants can use CUDA all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_suite import cuda_config, read_samples
from evaluator_settings import quick_config

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.host import handles

PRELOAD = """
import json, os, sys
import torch
from cudal1_ray.evaluation.inside.preloading import furnish_cache, preload
threads = len(os.listdir("/proc/self/task"))
for folder in json.loads(sys.argv[1]):
    sys.path.insert(0, folder)
    files = preload()
    print(json.dumps({
        "files": sorted(map(os.path.basename, files)), "triton": sys.modules.get("triton") is not None,
        "threads": len(os.listdir("/proc/self/task")) - threads,
    }), flush=True)
"""
NOTHING = {"files": [], "triton": False, "threads": 0}
USE_CUDA_IN_A_FORK = """
fork = os.fork()
if fork == 0:
    os.environ["TRITON_CACHE_DIR"] = sys.argv[2]
    furnish_cache(sys.argv[2], files)
    os.environ["CC"] = "/bin/false"
    torch.zeros(1, device="cuda").add_(1).item()
    sys.modules["triton.backends.nvidia.driver"].CudaUtils()
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]))
"""
DRIVER = """
import os
class CudaUtils:
    def __init__(self):
        os.mkdir(os.environ["TRITON_CACHE_DIR"] + "/KEY")
        with open(os.environ["TRITON_CACHE_DIR"] + "/KEY/cuda_utils.so", "w") as file:
            file.write("built")
        raise ImportError("no driver here")
"""
COUNTS_DEVICES = """
import os, torch
os.register_at_fork(after_in_child=lambda: setattr(torch.cuda, "_is_in_bad_fork", lambda: True))
"""
OPENS_A_DEVICE = """
import os
os.mkdir(os.path.dirname(__file__) + "/dev")
device = open(os.path.dirname(__file__) + "/dev/nvidiactl", "w")
"""
SPOILT = "a process forked after its import could not use CUDA"


def stub(folder: Path, at_import: str = "") -> str:
    """Write a package of Triton's form that runs `at_import` when it is imported; return the folder of the package."""
    texts = {
        "__init__.py": at_import, "language.py": "", "compiler/code_generator.py": "",
        "backends/nvidia/driver.py": DRIVER, "runtime/cache.py": "def triton_key(): pass",
        "runtime/build.py": "def platform_key(): pass",
    }  # fmt: skip
    for name, text in texts.items():
        path = folder / "triton" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def run(code: str, folders: list[str], *arguments: str) -> tuple[list[dict], str]:
    """Return the states that a process prints that runs `code`, one for each folder on Python's path, and its log."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code, json.dumps(folders), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_preload_when_forks_stay_usable_imports_triton_and_returns_its_built_module(tmp_path):
    states, log = run(PRELOAD, [stub(tmp_path)])
    assert states == [{"files": ["cuda_utils.so"], "triton": True, "threads": 0}] and not log


def test_preload_when_the_import_spoils_forks_or_fails_imports_nothing_and_logs_why(tmp_path):
    reasons = {
        COUNTS_DEVICES: SPOILT, OPENS_A_DEVICE: SPOILT, "raise OSError": "it cannot be imported",
        "import os; os.abort()": "its import ends with -6",
    }  # fmt: skip
    states, log = run(PRELOAD, [stub(tmp_path / str(n), at_import) for n, at_import in enumerate(reasons)])
    assert states == [NOTHING] * len(reasons)
    lines = [line for line in log.splitlines() if line.startswith("fork server: ")]
    assert lines == [f"fork server: Triton is not preloaded: {reason}" for reason in reasons.values()]


def test_preload_when_there_is_no_triton_changes_nothing():
    states, log = run("import sys; sys.modules['triton'] = None\n" + PRELOAD, [""])
    assert states == [NOTHING] and not log


def test_contestant_when_its_server_is_for_a_gpu_has_the_built_module_in_a_cache_of_its_own(tmp_path, monkeypatch):
    folder, environment = stub(tmp_path), handles.ForkServer._environment
    monkeypatch.setattr(handles.ForkServer, "_environment", lambda self, paths: environment(self, [folder, *paths]))
    monkeypatch.setattr(handles, "gpu_for_contestants", lambda device: ("", ()))
    server = handles.ForkServer(quick_config(sandbox="seccomp"))
    server.device = "cuda"
    try:
        first, second = (server.spawn(role="candidate", cores=[]) for _ in range(2))
        assert first.scratch != second.scratch
        for contestant in (first, second):
            assert Path(contestant.scratch, "triton", "KEY", "cuda_utils.so").read_text() == "built"
    finally:
        server.close()


@pytest.mark.gpu
def test_fork_when_triton_is_preloaded_uses_the_gpu_and_needs_no_compiler(tmp_path):
    pytest.importorskip("triton")
    (state,), log = run(PRELOAD + USE_CUDA_IN_A_FORK, [""], str(tmp_path))
    assert state["triton"] and state["threads"] == 0 and "not preloaded" not in log
    assert [name.partition(".")[0] for name in state["files"]] == ["cuda_utils"]


@pytest.mark.gpu
def test_triton_candidate_when_triton_is_preloaded_is_accepted(capfd):
    pytest.importorskip("triton")
    (sample,) = (sample for sample in read_samples("honest") if sample.name == "triton_pointwise")
    with Evaluator(cuda_config("honest")) as evaluator:
        verdict = evaluator.evaluate(sample.problem, sample.code)
    assert verdict.accepted, verdict
    assert "not preloaded" not in capfd.readouterr().err
