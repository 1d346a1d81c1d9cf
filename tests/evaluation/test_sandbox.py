"""What a contestant can do behind each level of the sandbox: candidates that try, and say what they achieved."""

from __future__ import annotations

import os

import pytest
import torch
from evaluator_settings import quick_config
from problems_for_tests import problem, renamed

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.contestants.handles import ForkServer, Misbehaviour
from cudal1_ray.evaluation.sandbox import LEVELS, sandbox_level

HONEST = renamed("chain").replace("torch.relu(self.a(x))", "self.a(x).relu_()")
PROBE = (
    """
import os, sys, socket, ctypes, signal
done = []
def attempt(name, action):
    try:
        action()
    except BaseException:
        return
    done.append(name)
{attempts}
raise RuntimeError("achieved: " + ",".join(done) + ".")
"""
    + HONEST
)
FILES = """
attempt("write_usr", lambda: open("/usr/evil", "w"))
attempt("write_prefix", lambda: open(os.path.join(sys.prefix, "evil"), "w"))
attempt("write_home", lambda: open(os.path.expanduser({home!r}) + "/evil", "w"))
attempt("read_home", lambda: os.listdir({home!r}))
attempt("read_tests", lambda: open({tests!r}).read())
attempt("read_project", lambda: open({project!r}).read())
attempt("shadow", lambda: open("/etc/shadow").read())
"""
CALLS = """
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno())
attempt("inet", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
attempt("ptrace", lambda: call("ptrace", 0, 0, 0, 0))
attempt("unshare", lambda: call("unshare", 0x10000000))
attempt("mount", lambda: call("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None))
attempt("affinity", lambda: os.sched_setaffinity(0, range(os.cpu_count())))
attempt("renice", lambda: os.setpriority(os.PRIO_PROCESS, 0, 5))
attempt("cpu_timer", lambda: signal.setitimer(signal.ITIMER_PROF, 1000))
attempt("kill_parent", lambda: os.kill({evaluator}, 0))
attempt("environment", lambda: os.environ["SECRET_OF_THE_EVALUATOR"])
"""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("role, op", [("reference", "load"), ("maker", "open")])
def test_a_gpu_is_looked_for_with_code_that_was_imported_before_the_walls(level, role, op):
    """Where torch has no CUDA that ends with torch's own refusal, and not with a file that nobody can see."""
    if torch.cuda.is_available():
        pytest.skip("it would be opened")
    server = ForkServer(quick_config(sandbox=level))
    server.start()
    contestant = server.spawn(role=role, cores=[])
    try:
        asked = {"op": op, "device": "cuda", "threads": 1, "flush_mib": 1, "gpu_memory_share": 0.5}
        with pytest.raises(Misbehaviour, match="_cuda_setDevice|CUDA|NVIDIA"):
            contestant.ask(asked, 60.0, doing="opening a GPU")
    finally:
        contestant.close()
        server.close()


def _achieved(level: str, attempts: str, gate: bool = False) -> str:
    config = quick_config(sandbox=level)
    config.check.static_gate = gate
    os.environ["SECRET_OF_THE_EVALUATOR"] = "x"
    try:
        with Evaluator(config) as made:
            values = {
                "home": os.path.expanduser("~"), "tests": os.path.abspath(__file__), "evaluator": os.getpid(),
                "project": __import__("cudal1_ray").__file__,
            }  # fmt: skip
            verdict = made.evaluate(problem("chain"), PROBE.replace("{attempts}", attempts.format(**values)))
            after = made.evaluate(problem("chain"), HONEST)
    finally:
        del os.environ["SECRET_OF_THE_EVALUATOR"]
    assert after.accepted, after
    assert "achieved: " in verdict.detail, verdict
    return verdict.detail.split("achieved: ")[1].split(".")[0]


def _require(level: str) -> None:
    if LEVELS.index(sandbox_level()) > LEVELS.index(level):
        pytest.skip(f"this machine allows {sandbox_level()} at most")


def test_namespaces_leave_nothing():
    _require("namespaces")
    assert _achieved("namespaces", FILES + CALLS) in ("", "read_home")  # an empty mount point may be listed


def test_landlock_without_namespaces_leaves_nothing():
    _require("landlock")
    assert _achieved("landlock", FILES + CALLS) in ("", "read_project")


def test_seccomp_alone_refuses_the_calls():
    _require("seccomp")
    assert _achieved("seccomp", CALLS) == ""


def test_process_level_still_hides_the_environment():
    assert "environment" not in _achieved(
        "process", 'attempt("environment", lambda: os.environ["SECRET_OF_THE_EVALUATOR"])'
    )


@pytest.mark.parametrize("level", LEVELS[:2])
def test_temporary_files_have_their_place(level):  # compilers make folders of them
    _require(level)
    attempts = """
import tempfile
attempt("folder", tempfile.mkdtemp)
attempt("file", tempfile.TemporaryFile)
"""
    assert _achieved(level, attempts) == "folder,file"


@pytest.mark.parametrize("level", LEVELS[1:])
def test_detached_processes_die_at_every_level(level, tmp_path):
    _require(level)
    config = quick_config(sandbox=level)
    config.check.static_gate = False
    daemon = (
        """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(30)
    os._exit(0)
"""
        + HONEST
    )
    with Evaluator(config) as made:
        verdict = made.evaluate(problem("chain"), daemon)
        assert verdict.reasons == ("leftover_process",), verdict
        from cudal1_ray.evaluation.sandbox.process_watch import descendants

        assert descendants(made._server.process.pid) == []
        assert made.evaluate(problem("chain"), HONEST).accepted
