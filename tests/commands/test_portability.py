"""The same kernels on several accelerator types: the table, the pools behind it, and the command on a real cluster."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from example_files import HONEST, PROBLEM
from rich.console import Console

from cudal1_ray.actors.config import ClusterConfig, RoleConfig
from cudal1_ray.actors.evaluator_pools import make_pool
from cudal1_ray.cli import main
from cudal1_ray.commands.evaluate_portability import chosen_types, write_table
from cudal1_ray.commands.portability_table import markdown_table, portability, rich_table
from cudal1_ray.errors import UserError
from tests.ports import free_port

# The table


def row(low: float, high: float, degenerate: bool = False) -> dict:
    middle = (low * high) ** 0.5
    figures = {"speedup": middle, "speedup_low": low, "speedup_high": high, "credited_speedup": middle}
    times = {"runtime_ms": 1.0, "reference_ms": middle}
    return {"verdict": "accepted", "reasons": [], **figures, **times, "degenerate": degenerate}


def verdict_row(problem: str, verdict: dict) -> dict:
    return verdict | {"problem_hash": problem}


def rejected(reason: str) -> dict:
    return row(0, 0) | {"verdict": "rejected", "reasons": [reason]}


VERDICTS = {
    "A100": {
        "both": row(1.9, 2.1),
        "only-a100": row(1.4, 1.6),
        "unsure": row(1.2, 1.3),
        "breaks": row(2.9, 3.1),
        "slow": row(0.4, 0.6),
        "constant": row(5.0, 6.0, degenerate=True),
        "late": row(1.1, 1.2),
    },
    "H100": {
        "both": row(3.8, 4.2),
        "only-a100": row(0.7, 0.9),
        "unsure": row(0.95, 1.05),
        "breaks": rejected("compile_error"),
        "slow": row(0.4, 0.6),
        "constant": row(0.5, 0.6, degenerate=True),
    },
}


@pytest.fixture(scope="module")
def table():
    problems = {identity: f"p/{identity}" for identity in VERDICTS["A100"]}
    verdicts = {kind: {n: verdict_row(n, row) for n, row in rows.items()} for kind, rows in VERDICTS.items()}
    return portability(problems, verdicts, "cuda", "eager")


def test_kernel_when_fast_on_one_type_and_no_gain_on_another_is_flagged(table):
    flags = {line.identity: line.flag for line in table.lines}
    assert flags == {
        "both": "",
        "only-a100": "slower on H100",
        "unsure": "",  # its interval on H100 holds 1
        "breaks": "rejected on H100",
        "slow": "",  # fast nowhere: there is nothing to carry over
        "constant": "",  # its problem means nothing
        "late": "",  # not measured on H100 yet
    }


def test_means_when_types_accept_different_kernels_are_of_those_that_all_accept(table):
    summaries = table.summaries()
    assert summaries["A100"]["accepted"] == 7 and summaries["H100"]["accepted"] == 5 and summaries["H100"]["rows"] == 6
    assert [line.identity for line in table.everywhere] == ["both", "only-a100", "unsure", "slow"]
    product = 1.0
    for name in ("both", "only-a100", "unsure", "slow"):
        product *= VERDICTS["H100"][name]["credited_speedup"]
    assert summaries["H100"]["geometric_mean_everywhere"] == pytest.approx(product**0.25)
    assert summaries["A100"]["credited"] == 6  # the degenerate problem is left out


def test_table_when_written_has_a_page_and_data(table, tmp_path):
    write_table(table, tmp_path)
    text = (tmp_path / "table.md").read_text()
    assert text == markdown_table(table)
    lines = {cells[1].strip(): cells for line in text.splitlines() if len(cells := re.split(r"(?<!\\)\|", line)) > 1}
    assert [cell.strip() for cell in lines["kernel"][1:-1]] == ["kernel", "problem", "A100", "H100", "flag"]
    assert lines["both"][3].strip() == "2.00x (1.90 to 2.10)" and lines["both"][4].strip() == "3.99x (3.80 to 4.20)"
    assert lines["breaks"][4].strip() == "rejected (compile_error)" and lines["late"][4].strip() == "not measured"
    assert lines["only-a100"][5].strip() == "slower on H100"
    assert {len(cells) for cells in lines.values()} == {7}
    written = json.loads((tmp_path / "table.json").read_text())
    assert written["flagged"] == 2 and written["against"] == "eager" and written["accepted_everywhere"] == 4
    kernel = next(row for row in written["kernels"] if row["id"] == "only-a100")
    assert kernel["on"]["H100"]["speedup_high"] == 0.9 and kernel["flag"] == "slower on H100"


@pytest.mark.parametrize("most", [40, 3])
def test_table_when_there_are_many_kernels_prints_the_flagged_ones_only(table, most):
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(rich_table(table, most_kernels=most))
    text = " ".join(console.export_text().split())
    assert "only-a100" in text and "slower on H100" in text
    assert ("both" in text) == (most == 40)
    assert ("5 of 7 kernels are only in the file" in text) == (most == 3)


# The pools


def node(name: str, alive: bool = True, **resources: float) -> dict:
    resources = {key.replace("type_", "accelerator_type:"): value for key, value in resources.items()}
    return {"NodeID": name, "Alive": alive, "Resources": resources}


NODES = [
    node("head", CPU=4),
    node("a1", CPU=8, GPU=2, type_A100=1),
    node("a2", CPU=8, GPU=1, type_A100=1),
    node("h1", CPU=8, GPU=4, type_H100=1),
    node("gone", alive=False, CPU=8, GPU=8, type_L40=1),
]
CLUSTER = ClusterConfig(address="auto", evaluator=RoleConfig(count=1, num_cpus=2, accelerator_type="B200"))


def test_pool_when_on_gpus_has_an_evaluator_for_every_gpu_of_its_type():
    pool = make_pool("A100", "cuda", CLUSTER, NODES)
    assert (pool.role.count, pool.role.num_gpus, pool.role.accelerator_type, pool.nodes) == (3, 1, "A100", ())
    assert make_pool("H100", "cuda", CLUSTER, NODES).role.count == 4
    assert make_pool(None, "cuda", CLUSTER, NODES).role.count == 7


def test_pool_when_on_cpus_has_an_evaluator_for_every_node_of_its_type():
    pool = make_pool("A100", "cpu", CLUSTER, NODES)
    assert (pool.role.count, pool.role.num_gpus, pool.role.accelerator_type) == (2, 0, "A100")
    assert pool.nodes == ("a1", "a2")
    assert make_pool(None, "cpu", CLUSTER, NODES).nodes == ("head", "a1", "a2", "h1")


@pytest.mark.parametrize(("kind", "device"), [("L40", "cuda"), ("L40", "cpu"), ("a100", "cuda")])
def test_type_when_the_cluster_lacks_it_is_named_with_those_it_has(kind, device):
    with pytest.raises(UserError, match=f"of type {kind}; types there: A100, H100"):
        make_pool(kind, device, CLUSTER, NODES)


# The command


def test_types_when_given_in_several_ways_are_the_same():
    assert chosen_types(["A100", "H100,L40", "A100"]) == ["A100", "H100", "L40"]
    for wrong in ("", "A100,", "../A100", "A100/x"):
        with pytest.raises(UserError, match="--on"):
            chosen_types([wrong])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "good.py").write_text(HONEST)
    (tmp_path / "wrong.py").write_text(HONEST.replace("tanh_", "sin_"))
    lines = [json.dumps({"id": c, "problem": "problem.py", "candidate": f"{c}.py"}) for c in ("good", "wrong")]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--out", "o", "--on", "A100"), "--on: goes with --ray"),
        (("--out", "o", "--on", "../x", "--ray", "127.0.0.1:1"), "--on '../x'"),
        (("--out", "pairs.jsonl", "--on", "A100", "--ray", "127.0.0.1:1"), "--out pairs.jsonl: is a file"),
        (("--out", "o", "--on", "A100", "--ray", "127.0.0.1:1"), "--ray 127.0.0.1:1: no cluster answers there"),
    ],
)
def test_portability_when_given_a_mistake_prints_one_line(folder, monkeypatch, capsys, arguments, named):
    monkeypatch.chdir(folder)
    assert main(["evaluate", "--manifest", "pairs.jsonl", *arguments]) == 2
    error = capsys.readouterr().err
    assert named in error and len(error.strip().splitlines()) == 1, error


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kernels_when_a_cluster_has_several_types_are_measured_on_every_type_once(repository, folder):
    """Three nodes on this machine, two with a type: pools land there, the table comes, and nothing is done twice."""
    port = free_port()
    nodes = ["-n", "cpus=2", "-n", "cpus=2,type=A100", "-n", "cpus=2,type=H100"]
    script = str(Path(__file__).parent / "portability_on_a_cluster.py")
    command = [str(repository / "launch" / "local.sh"), "-p", str(port), *nodes, "--", sys.executable, script]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env={"PATH": path}, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.strip().splitlines()[-1])
    assert report["placed"] == {"A100": ["A100"], "H100": ["H100"]}
    assert report["codes"] == [2, 0, 0]
    assert "no node of the Ray cluster" in done.stderr and "of type B200; types there: A100, H100" in done.stderr

    verdicts = {kind: (folder / "portability" / f"{kind}.jsonl").read_text() for kind in ("A100", "H100")}
    for text in verdicts.values():
        rows = {row["id"]: row for row in map(json.loads, text.splitlines())}
        assert rows["good"]["verdict"] == "accepted" and rows["good"]["speedup_low"] > 0
        assert rows["wrong"]["reasons"] == ["wrong_output"] and len(rows) == len(text.splitlines()) == 2
    table = json.loads((folder / "portability" / "table.json").read_text())
    assert set(table["types"]) == {"A100", "H100"} and table["device"] == "cpu"
    assert [kernel["id"] for kernel in table["kernels"]] == ["good", "wrong"]
    for kernel in table["kernels"]:
        assert set(kernel["on"]) == {"A100", "H100"}
    assert report["before"] == verdicts["A100"]  # the second command found it there
