"""The sandbox whose root a real bubblewrap builds: as strict as the one by our own calls, and as sure of its end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import as_somebody_else
import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem
from test_faults import _runs
from test_sandbox import CALLS, FILES, HONEST, _achieved, _require

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import Compiler, Evaluator
from cudal1_ray.evaluation.host.handles import ForkServer
from cudal1_ray.evaluation.sandbox import LEVELS, find_sandbox
from cudal1_ray.evaluation.sandbox.process_watch import descendants

BWRAP = shutil.which("bwrap") or ""
pytestmark = pytest.mark.skipif(not BWRAP, reason="no bwrap on PATH")
HERE = Path(__file__).parent
BUILT = LEVELS[:2]  # levels with a root by bubblewrap
KEEPS_ITS_FIRST_OUTPUT = (
    HONEST
    + """

class ModelNew(ModelNew):
    kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = super().forward(x)
        return self.kept
"""
)


def _config(level: str, **changes):
    """Naming the program allows nothing else in its place."""
    _require(level)
    config = quick_config(sandbox=level, bubblewrap=BWRAP, **changes)
    config.check.static_gate = False
    return config


@pytest.mark.parametrize("level", BUILT)
def test_contestants_achieve_nothing(level):
    _require(level)
    harmless = {"namespaces": "read_home", "bubblewrap": "read_project"}[level]  # as in test_sandbox.py
    assert _achieved(level, FILES + CALLS, bubblewrap=BWRAP) in ("", harmless)


@pytest.mark.parametrize("level", BUILT)
def test_who_is_honest_is_credited_and_who_is_not_is_refused(level):
    version = subprocess.run([BWRAP, "--version"], capture_output=True, text=True).stdout.strip()
    with Evaluator(_config(level)) as made:
        honest = made.evaluate(problem("chain"), HONEST)
        assert honest.accepted and honest.speedup > 0 and honest.sandbox == level, honest
        assert str(made._server.sandbox) in (f"namespaces (root by {version})", f"bubblewrap ({version})")
        evil = made.evaluate(problem("chain"), KEEPS_ITS_FIRST_OUTPUT)
        assert not evil.accepted and "evaluator_error" not in evil.reasons, evil
        assert made.evaluate(problem("chain"), HONEST).accepted


@pytest.mark.parametrize("level", BUILT)
def test_a_server_has_namespaces_of_its_own_and_no_more_than_its_channel(level):
    server = ForkServer(_config(level))
    contestant = server.spawn(role="candidate", cores=[])
    try:
        theirs = f"/proc/{contestant.watch.pid}"
        shared = [name for name in ("mnt", "net", "ipc", "uts") if _namespace("/proc/self", name) ==
                  _namespace(f"/proc/{server.pid}", name)]  # fmt: skip
        assert shared == []
        own = ("user", "pid", "mnt") if level == "namespaces" else ()
        assert all(_namespace(theirs, name) != _namespace(f"/proc/{os.getpid()}", name) for name in own)
        opened = {int(name) for name in os.listdir(f"/proc/{server.pid}/fd")}
        assert len(opened - {0, 1, 2}) == 1
        status = dict(line.split(":\t") for line in Path(f"{theirs}/status").read_text().splitlines())
        assert all(int(status[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
        assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
        writable = {line.split()[4] for line in Path(f"{theirs}/mountinfo").read_text().splitlines()
                    if line.split()[5].startswith("rw")}  # fmt: skip
        assert {path for path in writable if not path.startswith(("/dev/", "/proc", "/tmp"))} == set()
    finally:
        contestant.close()
        server.close()


def test_the_root_is_the_one_of_our_own_calls():
    _require("namespaces")
    found = []
    for program in (BWRAP, "never"):
        server = ForkServer(quick_config(sandbox="namespaces", bubblewrap=program))
        contestant = server.spawn(role="candidate", cores=[])
        try:
            mounts = Path(f"/proc/{contestant.watch.pid}/mountinfo").read_text().splitlines()
            found.append({(line.split()[4], line.split()[5][:2]) for line in mounts})
        finally:
            contestant.close()
            server.close()
    assert found[0] == found[1] and len(found[0]) > 10


def test_a_server_has_the_environment_that_it_was_given():
    """A program with root's rights loses some of it before it can pass it on."""
    server = ForkServer(_config("bubblewrap"))
    server.start()
    try:
        found = dict(pair.split("=", 1) for pair in Path(f"/proc/{server.pid}/environ").read_text().split("\0")[:-1])
        given = server._environment([])
        assert {name: found.get(name) for name in given if name != "PYTHONPATH"} == {
            name: value for name, value in given.items() if name != "PYTHONPATH"
        }
        assert "GLIBC_TUNABLES" in found and set(found) - set(given) <= {"PWD"}
    finally:
        server.close()


def _namespace(process: str, name: str) -> str:
    """Of others' the number can be had by those who may read their memory; who may not has another one for certain."""
    try:
        return os.readlink(f"{process}/ns/{name}")
    except PermissionError:
        return ""


@pytest.mark.parametrize("level", BUILT)
@pytest.mark.parametrize("victim", ["evaluator", "bubblewrap", "server"])
def test_whoever_is_killed_nothing_is_left(level, victim, tmp_path):
    _config(level)
    code = (
        "import sys, time\n"
        f"sys.path[:0] = {[str(HERE), *sys.path]!r}\n"
        "from evaluator_settings import quick_config\n"
        "from cudal1_ray.evaluation import Evaluator\n"
        f"made = Evaluator(quick_config(sandbox={level!r}, bubblewrap={BWRAP!r}))\n"
        "made.sandbox_level()\n"
        "held = made._server.spawn(role='candidate', cores=[])\n"
        "print(made._server.process.pid, made._server.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # who is killed clears nothing away
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        outer, server = map(int, owner.stdout.readline().split())
        family = [outer, *descendants(outer)]
        assert server in family and server != outer and len(family) == 4, family
        os.kill({"evaluator": owner.pid, "bubblewrap": outer, "server": server}[victim], signal.SIGKILL)
        deadline = time.monotonic() + 10.0
        while any(map(_runs, family)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(_runs, family))
    finally:
        owner.kill()
        owner.wait()


@pytest.mark.parametrize("level", BUILT)
def test_a_server_comes_up_again_whoever_was_killed(level):
    with Evaluator(_config(level)) as made:
        for victim in (lambda: made._server.process.pid, lambda: made._server.pid):
            assert made.evaluate(problem("chain"), HONEST).accepted
            os.kill(victim(), signal.SIGKILL)
        verdict = made.evaluate(problem("chain"), HONEST)
        assert verdict.accepted and verdict.sandbox == level, verdict


@pytest.mark.parametrize("level", BUILT)
def test_compilers_are_behind_the_same_walls(level):
    with Compiler(_config(level)) as compiler:
        done = compiler.compile(f"# cpp_extension\n{HONEST}")
        assert done.ok, done
        assert compiler._server.level == level and compiler._server.sandbox.bubblewrap.program == BWRAP


# One that is there and does not do what it should is what these scripts make of the real one.
TOO_OLD = 'case " $* " in *" --perms "*) echo "bwrap: Unknown option --perms" >&2; exit 1;; esac\nexec {real} "$@"\n'
SHARES_THE_NETWORK = """
for word; do shift; [ "$word" = --unshare-net ] || set -- "$@" "$word"; done
exec {real} "$@"
"""
LEAVES_ITS_ROOT_OPEN = """
for word; do
  shift
  if [ "$before" = --remount-ro ]; then word=/dev; fi
  before=$word
  set -- "$@" "$word"
done
exec {real} "$@"
"""
FAULTY = {
    "too_old": (TOO_OLD, "Unknown option --perms"),
    "shares_the_network": (SHARES_THE_NETWORK, "makes no net namespace"),
    "leaves_its_root_open": (LEAVES_ITS_ROOT_OPEN, "root can be written to"),
    "is_none": ("echo something else\n", "no bubblewrap"),
}


@pytest.fixture
def faulty(request):
    text, complaint = FAULTY[request.param]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "bwrap"
        program.write_text("#!/bin/sh\n" + text.replace("{real}", BWRAP))
        program.chmod(0o755)
        yield program, complaint


@pytest.mark.parametrize("faulty", FAULTY, indirect=True)
def test_one_that_does_not_work_changes_nothing_and_is_named(faulty, monkeypatch):
    program, complaint = faulty
    own = find_sandbox(bubblewrap="never").level
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    found = find_sandbox()
    assert found.level == own and found.bubblewrap is None and complaint in str(found)
    with Evaluator(quick_config()) as made:
        verdict = made.evaluate(problem("chain"), HONEST)
        assert verdict.accepted and verdict.sandbox == own
        assert complaint in made._server.sandbox.unused
    with pytest.raises(UserError, match=f"evaluation.bubblewrap={program}.*{complaint}"):
        find_sandbox(bubblewrap=str(program))


def test_what_cannot_be_had_is_said_in_one_line():
    with pytest.raises(UserError, match="evaluation.bubblewrap=/no/bwrap .*No such file"):
        ForkServer(quick_config(bubblewrap="/no/bwrap")).start()
    with pytest.raises(UserError, match="evaluation.sandbox=bubblewrap .*never"):
        ForkServer(quick_config(bubblewrap="never", sandbox="bubblewrap")).start()
    with pytest.raises(UserError, match="evaluation.sandbox: 'strong' is none of namespaces, bubblewrap"):
        ForkServer(quick_config(sandbox="strong")).start()


def test_the_level_of_bubblewrap_is_between_the_others():
    config = _config("bubblewrap", required_sandbox="landlock")
    server = ForkServer(config)
    server.start()
    server.close()
    config.required_sandbox = "namespaces"
    with pytest.raises(UserError, match="required_sandbox=namespaces .* level is bubblewrap"):
        ForkServer(config).start()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@pytest.fixture
def somebody():
    """Runs tests as a user without rights, and gives what pytest says."""
    folder = as_somebody_else.folder()

    def run(*words: str, forbid: bool = False, path: str = "") -> str:
        environment = {**os.environ, "HOME": folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parents[1]), os.environ.get("PYTHONPATH")]))
        environment["PATH"] = os.pathsep.join(filter(None, [path, os.environ["PATH"]]))
        command = as_somebody_else.command(sys.executable, *words, forbid=forbid)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE.parents[1])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    yield run
    shutil.rmtree(folder)


PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs")
THIS = (str(HERE / "test_bubblewrap.py"), "-k", "not somebody")


@needs_root
@pytest.mark.slow
def test_all_that_as_somebody_without_rights(somebody):
    said = somebody(*PYTEST, *THIS)
    assert " passed" in said and "skipped" not in said, said


@pytest.fixture
def with_roots_rights():
    """A folder with a bubblewrap that has root's rights, whoever starts it."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        if os.statvfs(folder).f_flag & os.ST_NOSUID:
            pytest.skip(f"{folder} lends nobody root's rights")
        shutil.copy(BWRAP, folder)
        os.chmod(f"{folder}/bwrap", 0o4755)
        yield folder


SAY = "from cudal1_ray.evaluation.sandbox import find_sandbox; print(find_sandbox())"


@needs_root
def test_without_user_namespaces_somebody_has_it_of_one_with_roots_rights_only(somebody, with_roots_rights):
    alone = somebody("-c", SAY, forbid=True)
    assert alone.startswith(("landlock", "seccomp")) and f"{find_sandbox().bubblewrap} cannot be used" in alone, alone
    assert somebody("-c", SAY, forbid=True, path=with_roots_rights).startswith("bubblewrap (bubblewrap ")
    # Where they are allowed it makes no difference.
    assert somebody("-c", SAY, path=with_roots_rights).startswith("namespaces (root by bubblewrap ")


@needs_root
@pytest.mark.slow
def test_all_that_by_somebody_without_user_namespaces(somebody, with_roots_rights):
    said = somebody(*PYTEST, *THIS, forbid=True, path=with_roots_rights)
    skipped = [line for line in said.splitlines() if line.startswith("SKIPPED")]
    assert " passed" in said and all("this machine allows bubblewrap at most" in line for line in skipped), said
