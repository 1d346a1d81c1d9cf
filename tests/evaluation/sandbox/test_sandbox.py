"""What a contestant can do behind each level of the sandbox: candidates that try, and report what they achieved."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import as_other_user
import pytest
import torch
from evaluator_settings import sandbox_level
from problems_for_tests import problem
from sandbox_attempts import PROBE
from sandbox_attempts import require_level as _require

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, Evaluator
from cudal1_ray.evaluation.exchange.messages import DeviceSettings, Load, Open, Opened
from cudal1_ray.evaluation.hardware import gpu_for_contestants, gpu_nodes
from cudal1_ray.evaluation.host.handles import ForkServer, Misbehaviour
from cudal1_ray.evaluation.sandbox.root import layout
from cudal1_ray.evaluation.sandbox.walls import LEVELS

FILES = """
attempt("write_usr", lambda: open("/usr/evil", "w"))
attempt("write_prefix", lambda: open(os.path.join(sys.prefix, "evil"), "w"))
attempt("write_home", lambda: open(os.path.expanduser({home!r}) + "/evil", "w"))
attempt("read_home", lambda: os.listdir({home!r}))
attempt("read_tests", lambda: open({tests!r}).read())
attempt("read_project", lambda: open({project!r}).read())
attempt("shadow", lambda: open("/etc/shadow").read())
attempt("leave_in_dev", lambda: open("/dev/left", "w"))
attempt("files_of_another", lambda: os.listdir("/proc/{evaluator}/root/"))
attempt("environment_of_another", lambda: open("/proc/{evaluator}/environ").read())
attempt("set_the_kernel", lambda: open("/proc/sys/kernel/core_pattern", "a"))
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
attempt("shared_memory", lambda: call("shmget", 4711, 4096, 0o1666))
attempt("semaphores", lambda: call("semget", 4711, 1, 0o1666))
attempt("messages", lambda: call("msgget", 4711, 0o1666))
attempt("affinity", lambda: os.sched_setaffinity(0, range(os.cpu_count())))
attempt("renice", lambda: os.setpriority(os.PRIO_PROCESS, 0, 5))
attempt("cpu_timer", lambda: signal.setitimer(signal.ITIMER_PROF, 1000))
attempt("kill_parent", lambda: os.kill({evaluator}, 0))
attempt("environment", lambda: os.environ["SECRET_OF_THE_EVALUATOR"])
"""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("role", ["reference", "maker"])
def test_gpu_when_looked_for_in_the_sandbox_needs_no_file_outside_it(server_at, level, role):
    """Without CUDA in torch the attempt ends with torch's own refusal, not with a file outside the sandbox."""
    _require(level)
    if torch.cuda.is_available():
        pytest.skip("it would be opened")
    contestant = server_at(level).spawn(role=role, cores=[])
    try:
        device = DeviceSettings("cuda", 1)
        if role == "maker":
            message = Open("", 1, 1, device, coarse_products=False, eval_mode=False, resets_tf32=False, alone=True)
        else:
            opened = Opened([], b"", [], b"", flat=True, in_place=False, nbytes=0, io_bytes=0)
            message = Load(
                role, "", [], device, "", opened, b"", eval_mode=False, resets_tf32=False, outputs="fresh",
                in_order=False, model_seed=1, against="eager", extensions=[], failed_extensions={},
            )  # fmt: skip
        with pytest.raises(Misbehaviour, match="_cuda_setDevice|CUDA|NVIDIA") as refused:
            contestant.ask(message, 60.0, doing="opening a GPU")
        assert "No such file" not in str(refused.value) and "No module" not in str(refused.value)
    finally:
        contestant.close()


def test_shared_memory_when_its_contestant_ends_is_gone(server_at):
    """On a GPU a candidate may create some, in an IPC namespace of its own, which ends with the candidate."""
    _require("namespaces")
    contestants = [server_at("namespaces").spawn(role="candidate", cores=[]) for _ in range(2)]
    try:
        spaces = {os.readlink(f"/proc/{contestant.watch.pid}/ns/ipc") for contestant in contestants}
        assert len(spaces | {os.readlink("/proc/self/ns/ipc")}) == 3
    finally:
        for contestant in contestants:
            contestant.close()


def test_namespaces_when_tried_leave_no_way_out(achieved):
    _require("namespaces")
    assert achieved("namespaces", FILES + CALLS) in ("", "read_home")  # an empty mount point may be listed


@pytest.fixture
def other_user():
    """Yield a function that runs Python as a user without rights and returns what it prints."""
    folder = as_other_user.folder()

    def run(*words: str, forbid: bool = False) -> str:
        environment = {**os.environ, "HOME": folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        checkout = str(Path(__file__).parents[3])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [checkout, os.environ.get("PYTHONPATH", "")]))
        command = as_other_user.command(sys.executable, *words, forbid=forbid)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=checkout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    yield run
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("forbid, level", [(False, "namespaces"), (True, "landlock")])
def test_sandbox_level_when_a_user_has_no_rights_depends_on_user_namespaces(other_user, forbid, level):
    _require("namespaces")
    code = "import sys; sys.path.append('tests/evaluation'); import evaluator_settings as e; print(e.sandbox_level())"
    output = other_user("-c", code, forbid=forbid)
    assert LEVELS.index(output.strip()) >= LEVELS.index(level) and (forbid or output.strip() == level), output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_namespaces_when_a_user_has_no_rights_leave_no_way_out(other_user):
    _require("namespaces")
    test = f"{Path(__file__)}::test_namespaces_when_tried_leave_no_way_out"
    plugins = ("--disable-plugin-autoload", "-p", "pytest_timeout", "-p", "no:cacheprovider")
    output = other_user("-m", "pytest", *plugins, "-q", "-rs", test)
    assert " passed" in output and "skipped" not in output, output


def test_sandbox_level_when_it_does_not_exist_is_an_error_that_lists_the_levels():
    for name in ("sandbox", "required_sandbox"):
        with pytest.raises(UserError, match=f"evaluation.{name}: 'strong' is none of namespaces, landlock"):
            ForkServer(EvaluationConfig(**{name: "strong"})).start()


def test_landlock_when_there_are_no_namespaces_leaves_no_way_out(achieved):
    _require("landlock")
    assert achieved("landlock", FILES + CALLS) in ("", "read_project")


def test_seccomp_when_alone_refuses_the_calls(achieved):
    _require("seccomp")
    assert achieved("seccomp", CALLS) == ""


@pytest.mark.parametrize("level", LEVELS[:2])
def test_temporary_files_when_made_in_the_sandbox_have_a_folder(achieved, level):  # compilers make folders of them
    _require(level)
    attempts = """
import tempfile
attempt("folder", tempfile.mkdtemp)
attempt("file", tempfile.TemporaryFile)
"""
    assert achieved(level, attempts) == "folder,file"


@pytest.fixture
def in_tmp():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.parametrize("level", LEVELS[:2])
def test_readable_folder_when_among_temporary_files_is_read_only_and_alone(achieved, level, in_tmp):
    """The folder takes no files, and a file beside it is invisible."""
    _require(level)
    for name in ("lent", "kept"):
        (in_tmp / name).mkdir()
        (in_tmp / name / "file").write_text(name)
    (in_tmp / "link").symlink_to(in_tmp / "lent")
    attempts = f"""
attempt("read", lambda: open("{in_tmp}/lent/file").read())
attempt("through_a_link", lambda: open("{in_tmp}/link/file").read())
attempt("write", lambda: open("{in_tmp}/lent/new", "w"))
attempt("beside", lambda: open("{in_tmp}/kept/file").read())
"""
    readable = [f"{in_tmp}/lent", f"{in_tmp}/link"]
    assert achieved(level, attempts, readable_paths=readable) == "read,through_a_link"


def test_sandbox_root_when_paths_contain_each_other_holds_all_of_them(in_tmp):
    """The order of the paths does not matter; links stay links, and lead to the content behind them."""
    for name in ("outer/inner", "real/below"):
        (in_tmp / name).mkdir(parents=True)
    (in_tmp / "link").symlink_to("real")
    (in_tmp / "outer" / "own").symlink_to("inner")
    (in_tmp / "circle").symlink_to("circle")
    names = ["outer/inner", "outer", "outer/own", "link/below", "link", "circle"]
    places = layout([*(f"{in_tmp}/{name}" for name in names), "/dev/null", "/proc/self", "/tmp", "/proc"])
    assert {place.path: place.target for place in places} == {
        f"{in_tmp}/outer": "", f"{in_tmp}/link": "real", f"{in_tmp}/real/below": "", f"{in_tmp}/circle": "circle",
    }  # fmt: skip


def test_sandbox_level_when_the_package_is_among_temporary_files_is_the_same(in_tmp):
    package = Path(__import__("cudal1_ray").__file__).parent
    shutil.copytree(package, in_tmp / package.name, ignore=shutil.ignore_patterns("__pycache__", "corpus"))
    code = """
import sys
from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.evaluation.host.handles import ForkServer
server = ForkServer(EvaluationConfig())
server.start()
handle = server.spawn(role="candidate", cores=[])
print(sys.modules["cudal1_ray"].__file__, server.level)
handle.close(), server.close()
"""
    environment = {**os.environ, "PYTHONPATH": str(in_tmp)}
    done = subprocess.run([sys.executable, "-c", code], cwd=in_tmp, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [f"{in_tmp}/cudal1_ray/__init__.py", sandbox_level()], done.stderr


def test_sandbox_level_when_files_can_be_written_is_taken_by_its_name_only(ungated_at):
    with pytest.raises(UserError, match="required_sandbox=seccomp, at which a candidate can write your files"):
        with Evaluator(EvaluationConfig(sandbox="seccomp")) as evaluator:
            evaluator.sandbox_level()
    assert ungated_at("seccomp").config.required_sandbox == ungated_at("seccomp").sandbox_level() == "seccomp"


@pytest.fixture
def driver(tmp_path):
    """Return folders as NVIDIA's driver fills them for three GPUs, one of which is not in this container."""
    for name in ("nvidia0", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia-caps"):
        (tmp_path / "dev" / name).mkdir(parents=True)
    for minor, bus in enumerate(("0000:01:00.0", "0000:02:00.0", "0000:03:00.0")):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
        text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-uuid-{minor}\nDevice Minor: \t {minor}\n"
        (tmp_path / "gpus" / bus / "information").write_text(text)
    return lambda uuid: [
        path.rpartition("/")[2] for path in gpu_nodes(uuid, f"{tmp_path}/dev", f"{tmp_path}/gpus")
    ]  # fmt: skip


@pytest.mark.parametrize(
    "uuid, numbered", [("uuid-2", ["nvidia2"]), ("uuid-0", ["nvidia0"]), ("unheard-of", ["nvidia0", "nvidia2"])]
)
def test_gpu_nodes_when_listed_are_its_own_and_the_drivers(driver, uuid, numbered):
    assert driver(uuid) == [*numbered, "nvidiactl", "nvidia-uvm"]


@pytest.mark.gpu
@pytest.mark.parametrize("level", LEVELS[:2])
def test_contestant_when_there_are_several_gpus_sees_the_evaluators_alone(level):
    _require(level)
    last = torch.cuda.device_count() - 1
    expected = [name for name in gpu_for_contestants(f"cuda:{last}")[1] if name[11:].isdigit()]
    attempts = """
import torch
attempt(f"{torch.cuda.device_count()} {torch.cuda.get_device_properties(0).uuid}", lambda: None)
for node in (f"/dev/nvidia{number}" for number in range(16)):  # Landlock lets nothing list /dev
    attempt(node, lambda: os.close(os.open(node, os.O_RDWR)))
"""
    config = EvaluationConfig(device=f"cuda:{last}", sandbox=level, required_sandbox=level)
    config.check.static_gate, config.limits.memory_mib = False, 16384
    with Evaluator(config) as evaluator:
        verdict = evaluator.evaluate(problem("chain"), PROBE.replace("{attempts}", attempts))
    devices = ",".join([f"1 {torch.cuda.get_device_properties(last).uuid}", *expected])
    assert f"achieved: {devices}." in verdict.detail, verdict
