"""Corpora of a user's own: folders and tables, and the messages for those that cannot work."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.problems import load_corpus, read_corpus
from cudal1_ray.problems.splits import kernelbench_split

CODE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
TRITON = "import triton\n\n\n@triton.jit\ndef add_kernel(x):\n    pass\n\n\nclass ModelNew:\n    pass\n"
CUDA = 'SOURCE = """__global__ void __launch_bounds__(256) gate(float* x) {}"""\n\n\nclass ModelNew:\n    pass\n'


def table(path, **columns):
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_kernelbench_corpus_when_read_has_kernels_for_training_problems_alone():
    entries, split = read_corpus("kernelbench"), kernelbench_split()
    problems = {entry.problem_id for entry in entries}
    assert len(entries) >= 300 and len(problems) >= 100
    assert {split[problem_id] for problem_id in problems} == {"train"}
    for entry in entries:
        assert entry.speedup > 0.0 and entry.analysis and entry.design
        assert "class ModelNew" in entry.code and ("triton.jit" in entry.code or "__global__" in entry.code)
        assert entry.speedups[entry.hardware] == entry.speedup
    assert sum(entry.as_measured_on("NVIDIA H200").hardware == "NVIDIA H200" for entry in entries) >= 300


def test_bundled_corpus_when_read_is_the_packages():
    assert read_corpus("bundled") == load_corpus()


def test_corpus_folder_when_candidates_have_no_docstring_is_read(tmp_path):
    for name, code in (("a", TRITON), ("b", CUDA), ("_skipped", CODE), ("wrong_c", CODE)):
        (tmp_path / "p1").mkdir(exist_ok=True)
        (tmp_path / "p1" / f"{name}.py").write_text(code, encoding="utf-8-sig")
    entries = {entry.entry_id: entry for entry in read_corpus(str(tmp_path))}
    assert list(entries) == ["p1/a", "p1/b", "p1/wrong_c"]
    assert entries["p1/a"].design == entries["p1/a"].reason == "Triton kernels: add_kernel."
    assert entries["p1/b"].design == "CUDA kernels: gate." and entries["p1/b"].code == CUDA
    assert entries["p1/wrong_c"].expected == "rejected" and entries["p1/wrong_c"].speedup == 0.0


def test_corpus_table_when_it_has_all_columns_is_read(tmp_path):
    path = table(
        tmp_path / "corpus.parquet",
        level=[1, 2, 1],
        problem_id=[9, 33, 9],
        code=[CODE, TRITON.replace("\n", "\r\n"), CODE],
        analysis=["Memory bound.", None, "x"],
        design=["One pass. Then another.", None, "x"],
        techniques=[["operation fusion", "warp-level reduction"], [], []],
        speedup=[1.5, 2.0, 3.0],
        status=["accepted", "accepted", "rejected"],
    )
    first, second = read_corpus(path)
    assert (first.problem_id, first.entry_id) == ("kernelbench-l1-p009", "kernelbench-l1-p009/corpus-0")
    assert (first.analysis, first.design, first.reason) == ("Memory bound.", "One pass. Then another.", "One pass.")
    assert first.technique == "operation fusion, warp-level reduction" and first.speedup == 1.5
    assert second.problem_id == "kernelbench-l2-p033" and second.code == TRITON and second.analysis


@pytest.mark.parametrize("mark", ["1. ", "1) ", "- ", "* ", ""])
def test_corpus_table_when_a_design_is_a_list_has_its_first_sentence_as_the_reason(tmp_path, mark):
    design = f"{mark}Blocks of 0.5 KiB. Each is read once.\n2. No atomics."
    (entry,) = read_corpus(table(tmp_path / "c.parquet", problem=["p1"], code=[CODE], design=[design]))
    assert (entry.design, entry.reason) == (design, "Blocks of 0.5 KiB.")


@pytest.mark.parametrize("kind", [pa.map_(pa.string(), pa.float64()), None], ids=["map", "struct"])
def test_corpus_table_when_it_has_speedups_of_several_devices_is_read_as_each_measured_them(tmp_path, kind):
    measured = [{"A": 1.5, "B": 2.0}, {"A": 3.0}, None]
    speedups = pa.array([row and list(row.items()) for row in measured], kind) if kind else pa.array(measured)
    columns = {"problem": ["p"] * 3, "code": [CODE] * 3, "speedup": [1.5, 3.0, 4.0], "hardware": ["A"] * 3}
    first, second, third = read_corpus(table(tmp_path / "t.parquet", **columns, speedups=speedups))
    assert [entry.speedups for entry in (first, second, third)] == [measured[0], measured[1], {}]
    there = first.as_measured_on("B")
    assert (there.speedup, there.hardware, there.code) == (2.0, "B", first.code)
    assert first.as_measured_on("A") == first and second.as_measured_on("B") == second
    assert third.as_measured_on("A") == third.as_measured_on("C") == third


def test_corpus_table_when_a_problem_id_is_made_of_digits_keeps_it_and_numbers_are_kernelbenchs(tmp_path):
    columns = {"problem": ["12", "007"], "level": [None, 1], "code": [CODE] * 2}
    assert [entry.problem_id for entry in read_corpus(table(tmp_path / "t.parquet", **columns))] == ["12", "007"]
    columns = {"problem_id": ["12", "7"], "level": [None, 1], "code": [CODE] * 2}
    entries = read_corpus(table(tmp_path / "n.parquet", **columns))
    assert [entry.problem_id for entry in entries] == ["kernelbench-p012", "kernelbench-l1-p007"]


def test_corpus_tables_when_two_in_a_folder_have_one_name_give_their_candidates_different_ids(tmp_path):
    for device, speedup in (("h100", 1.5), ("h200", 2.5)):
        (tmp_path / device).mkdir()
        table(tmp_path / device / "corpus.parquet", problem=["p"], code=[CODE], speedup=[speedup])
    entries = {entry.entry_id: entry.speedup for entry in read_corpus(str(tmp_path))}
    assert entries == {"p/h100/corpus-0": 1.5, "p/h200/corpus-0": 2.5}


def test_corpus_table_when_it_has_problem_and_code_alone_is_read(tmp_path):
    (entry,) = read_corpus(table(tmp_path / "t.parquet", problem=["assoc_order_1"], code=[CODE]))
    assert (entry.problem_id, entry.speedup) == ("assoc_order_1", 0.0)
    (entry,) = read_corpus(str(tmp_path))  # a folder of tables
    assert entry.design == "PyTorch operations only."


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"problem": ["p"], "source": [CODE]}, "has the columns problem, source; needed are code"),
        ({"problem": ["p"], "code": [1]}, "row 0: column 'code' holds 1"),
        ({"problem": ["p"], "code": ["x = 1"]}, "row 0: the code defines no ModelNew"),
        ({"problem": ["p"], "code": [CODE], "speedups": [1.5]}, "t.parquet, row 0: column 'speedups' holds 1.5"),
        ({"problem": ["p"], "code": [CODE], "speedups": [["A"]]}, "row 0: column 'speedups' holds"),
        ({"problem": ["p"], "code": [CODE], "speedups": [{"A": "fast"}]}, "row 0: column 'speedups' holds"),
        ({"problem": ["p"], "code": [CODE], "speedups": [{"A": -1.0}]}, "row 0: column 'speedups' holds"),
        ({"problem_id": [None], "code": [CODE]}, "row 0: no problem"),
        ({"problem": ["p"], "code": [CODE], "speedup": [-1.0]}, "row 0: speedup -1.0"),
        ({"problem_id": [float("inf")], "code": [CODE]}, "row 0: column 'problem_id' holds inf"),
        ({"problem_id": [1], "level": [1.5], "code": [CODE]}, "row 0: column 'level' holds 1.5"),
        ({"problem": ["p"], "code": [CODE], "design": [5]}, "row 0: column 'design' holds 5"),
    ],
)
def test_corpus_table_when_it_cannot_work_names_what_is_wrong(tmp_path, columns, words):
    with pytest.raises(UserError, match=words.replace("(", r"\(")):
        read_corpus(table(tmp_path / "t.parquet", **columns))


def test_corpus_source_when_there_is_none_names_the_key(tmp_path):
    (tmp_path / "no.parquet").write_text("no table")
    for source, words in (
        (str(tmp_path / "absent"), "exemplars.seed_from="),
        (str(tmp_path / "no.parquet"), "cannot be read as Parquet"),
    ):
        with pytest.raises(UserError, match=words):
            read_corpus(source, "exemplars.seed_from")
