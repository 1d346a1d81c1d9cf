"""`cudal1 optimize` against a real HTTP server: what it posts, follows, saves, and how it ends."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from cudal1_ray.cli import main
from cudal1_ray.commands.optimize import Module, _read, optimize_file
from cudal1_ray.commands.optimize_progress import JobProgress
from cudal1_ray.errors import UserError
from cudal1_ray.serving.optimize.job_queue import Submission
from tests.serving.small_server import NOTHING, WINNER, SmallServer

NET = """\
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x)
"""
MODULE_ARGUMENTS = ["--inputs", "randn(4, 8)", "--init", "width=8"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = SmallServer(tmp_path_factory.mktemp("small"))
    yield server
    server.stop()


@pytest.fixture
def command(server, tmp_path):
    """Return a module's file, and the command that asks the server about it."""
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "key").write_text(server.key + "\n")
    server.results[:] = [WINNER]
    return [
        "optimize",
        str(tmp_path / "net.py"),
        "--server",
        server.url,
        "--key-file",
        str(tmp_path / "key"),
        "--fresh",
    ]


def test_optimize_when_a_faster_module_exists_saves_it_and_prints_its_use(command, server, tmp_path, capsys):
    assert main([*command, *MODULE_ARGUMENTS, "optimize.rounds=2", "optimize.time_limit_s=9.5"]) == 0
    assert (tmp_path / "net_fast.py").read_text() == WINNER["code"].rstrip("\n") + "\n"
    output = capsys.readouterr().out
    for part in (
        "2.50x against eager on a processor (cpu)",
        "2.40 to 2.60",
        "tuned_eager",
        "none",
        "the time was up",
        "from net_fast import ModelNew",
        "Because it is fused.",
        "round 1/1",
        "note: be careful",
    ):
        assert part in output, part
    job = server.job_queue.of("alice")[0]
    assert (job.settings.rounds, job.settings.time_limit_s) == (2, 9.5)
    assert "class Model(nn.Module)" in job.source and "torch.randn(4, 8)" in job.source


def test_optimize_when_a_file_has_the_modules_name_keeps_that_file(command, tmp_path):
    (tmp_path / "net_fast.py").write_text("# mine\n")
    for _ in range(2):
        assert main([*command, *MODULE_ARGUMENTS]) == 0
    assert (tmp_path / "net_fast.py").read_text() == "# mine\n"
    assert (tmp_path / "net_fast_2.py").read_text() == WINNER["code"].rstrip("\n") + "\n"
    assert not (tmp_path / "net_fast_3.py").exists()  # the same again is the same file


@pytest.mark.parametrize(
    ("rounds", "counts"),
    [(1, "1 candidate in 1 round, 1 right and different, 1 token,"), (2, "2 candidates in 2 rounds,")],
)
def test_counts_when_optimize_ends_have_their_nouns(command, server, capsys, rounds, counts):
    numbers = {"candidates": rounds, "rounds": rounds, "accepted": rounds}
    server.results[:] = [NOTHING | numbers | {"costs": NOTHING["costs"] | {"completion_tokens": rounds}}]
    assert main([*command, *MODULE_ARGUMENTS]) == 1
    assert counts in capsys.readouterr().out


def test_optimize_when_nothing_is_faster_exits_with_1_and_prints_what_was_tried(command, server, tmp_path, capsys):
    server.results[:] = [NOTHING]
    assert main([*command, *MODULE_ARGUMENTS]) == 1
    output = capsys.readouterr().out
    assert "nothing faster found" in output and "2 wrong_output" in output and "1 crash" in output and "0.97x" in output
    assert not (tmp_path / "net_fast.py").exists()


def test_completions_without_a_program_are_named_when_no_candidate_was_tried(command, server, capsys):
    server.results[:] = [NOTHING | {"best_tried": 0.0, "tried": []}]
    assert main([*command, *MODULE_ARGUMENTS]) == 1
    assert "no completion held a program" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda a: a, "no get_inputs(), so give example inputs (--inputs)"),
        (lambda a: [*a, "--inputs", "randn(4, 8)"], "'width' is missing"),
        (lambda a: [*a, *MODULE_ARGUMENTS, "--class", "Other"], "no top-level class 'Other'"),
        (lambda a: [*a, *MODULE_ARGUMENTS, "policy=runs/demo"], "policy=runs/demo: with --server only optimize.rounds"),
        (lambda a: [*a, *MODULE_ARGUMENTS, "optimize.rounds=x"], "must be a number"),
        (lambda a: [*a, *MODULE_ARGUMENTS, "optimize.rounds=1000"], "rounds=1000: must be above 0 and at most"),
        (lambda a: [a[0], a[1] + "x", *a[2:]], "No such file"),
        (lambda a: [*a[:4], "--key-file", a[1], *MODULE_ARGUMENTS], "API key"),
        (lambda a: [*a[:4], "--key-file", "missing", *MODULE_ARGUMENTS], "missing: No such file"),
        (lambda a: [*a[:3], "http://127.0.0.1:9", *MODULE_ARGUMENTS], "is `cudal1 serve` running"),
        (lambda a: [*a[:3], "no address", *MODULE_ARGUMENTS], "--server no address"),
    ],
)
def test_optimize_when_given_a_mistake_prints_one_line_and_exits_with_2(command, capsys, change, message):
    assert main(change(command)) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1, error


def test_optimize_when_the_job_fails_or_is_cancelled_prints_it(command, server, capsys):
    server.results[:] = [UserError("the module itself fails")]
    assert main([*command, *MODULE_ARGUMENTS]) == 2
    assert "the job failed: the module itself fails" in capsys.readouterr().err


def test_optimize_when_interrupted_leaves_the_job_to_the_server(command, server, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(JobProgress, "__call__", interrupted)
    assert main([*command, *MODULE_ARGUMENTS]) == 130
    assert "the job goes on at the server" in capsys.readouterr().out


def test_optimize_when_the_stream_breaks_follows_it_from_where_it_was(command, server, tmp_path, monkeypatch, capsys):
    import cudal1_ray.commands.optimize_server as there

    monkeypatch.setattr(there, "PAUSE_S", 0.05)
    whole, broken = there._events, threading.Event()

    def breaks(*arguments):
        for event in whole(*arguments):
            yield event
            if event["type"] == "round" and not broken.is_set():
                broken.set()
                raise __import__("httpx").ReadError("the cable")

    monkeypatch.setattr(there, "_events", breaks)
    assert main([*command, *MODULE_ARGUMENTS]) == 0 and broken.is_set()
    assert capsys.readouterr().out.count("round 1/1") == 1


def test_job_when_its_server_is_away_for_a_moment_is_followed_on(monkeypatch):
    import httpx

    import cudal1_ray.commands.optimize_server as there

    monkeypatch.setattr(there, "PAUSE_S", 0.0)
    away, numbers = [429, 502, 503, 504, 503], []

    def answer(request):
        if away and (not request.url.path.endswith("/events") or len(away) > 2):
            return httpx.Response(away.pop(), html="<h1>a proxy</h1>")
        if request.url.path.endswith("/events"):
            return httpx.Response(200, text='data: {"number": 1}\n\n')
        return httpx.Response(200, json={"status": "finished"})

    job = {"id": "a", "status": "running"}
    with httpx.Client(transport=httpx.MockTransport(answer), base_url="http://server") as http:
        assert there._follow(http, job, "", lambda event: numbers.append(event["number"])) == {"status": "finished"}
        assert not away and 1 in numbers
        away[:] = [503] * (there.PATIENCE + 3)
        with pytest.raises(httpx.TransportError, match="503"):
            there._follow(http, job, "", lambda event: None)


def test_optimize_when_on_a_terminal_prints_a_bar_and_takes_no_text_for_markup(command, server, tmp_path):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200, highlight=False)
    module = Module(str(tmp_path / "net.py"), "randn(4, 8)", "8")
    server.results[:] = [
        WINNER | {"analysis": "[bold]not[/] [/markup \x1b]0;title\x07", "note": "[/]", "device_name": "[red]"}
    ]
    assert optimize_file(module, [], server.url, str(tmp_path / "key"), True, console) == 0
    assert "[bold]not[/] [/markup" in out.getvalue() and "[red]" in out.getvalue()
    assert "\x1b]0;" not in out.getvalue() and "\x07" not in out.getvalue()  # nor does it talk to the terminal
    assert Submission(NET).inputs is None


@pytest.mark.parametrize("encoding", ["utf-8-sig", "gbk"])
def test_module_when_its_file_names_an_encoding_is_read_in_it(tmp_path, encoding):
    head = "# -*- coding: gbk -*-\n# 乘以对角矩阵\n" if encoding == "gbk" else "# 乘以对角矩阵\n"
    path = tmp_path / "net.py"
    path.write_bytes((head + NET).encode(encoding))
    source = _read(Module(str(path), "randn(4, 8)", "width=8", ""), path).source
    assert "class Model" in source and "\ufeff" not in source


def test_module_when_it_is_no_text_is_refused_with_the_byte(tmp_path):
    path = tmp_path / "net.py"
    path.write_bytes(NET.encode() + b"# \xff")
    with pytest.raises(UserError, match="net.py: byte .* is no utf-8"):
        _read(Module(str(path), "randn(4, 8)", "width=8", ""), path)
