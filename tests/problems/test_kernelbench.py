"""KernelBench from a folder, from Parquet, from the hub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.problems import ProblemsConfig, load_problems
from cudal1_ray.problems.kernelbench import load_folder, load_parquet
from tests.problems.published_table import TABLE

VALID = "class Model:\n    pass\ndef get_inputs():\n    return []\ndef get_init_inputs():\n    return []\n"


def write(path: Path, text: str = VALID) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def table(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def row(number: int, level: int = 1, **changes) -> dict:
    return {"code": VALID, "level": level, "name": f"{number}_name", "problem_id": number} | changes


def ids(problems) -> list[str]:
    return [problem.problem_id for problem in problems]


def test_folder_when_it_has_levels_is_read_by_level(tmp_path):
    write(tmp_path / "level1" / "9_tall.py")
    write(tmp_path / "level2" / "12_conv_bias.py")
    write(tmp_path / "level4" / "1_big.py", "not read ( at all")
    write(tmp_path / "other" / "1_x.py", "nor ( this")
    problems = load_folder(tmp_path, levels=[1, 2])
    assert ids(problems) == ["kernelbench-l1-p009", "kernelbench-l2-p012"]
    assert [(p.level, p.name) for p in problems] == [(1, "9_tall"), (2, "12_conv_bias")]


def test_folder_when_it_is_one_level_takes_the_level_from_its_name(tmp_path):
    write(tmp_path / "level3" / "7_net.py")
    assert ids(load_folder(tmp_path / "level3")) == ["kernelbench-l3-p007"]


def test_folder_when_flat_is_read(tmp_path):
    write(tmp_path / "12_name.py")
    write(tmp_path / "my_problem.py")
    write(tmp_path / "a copy (2).py")
    write(tmp_path / "\u6570.py")
    write(tmp_path / "__init__.py", "")
    (tmp_path / "folder.py").mkdir()
    problems = load_problems(ProblemsConfig(source="folder", path=str(tmp_path), held_out_fraction=0.0))
    assert ids(problems) == ["a-copy--2-", "kernelbench-p012", "my_problem", "problem-a8df4050"]
    assert {(p.level, p.split) for p in problems} == {(None, "train")}


def test_folder_when_it_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match="no directory .*absent"):
        load_folder(tmp_path / "absent")
    with pytest.raises(UserError, match="no problem file.*NAME.py"):
        load_folder(tmp_path)
    bad = write(tmp_path / "1_bad.py", "x = 1\n")
    with pytest.raises(UserError, match="1_bad.py: no top-level class `Model`"):
        load_folder(tmp_path)
    bad.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="1_bad.py: .*save it as UTF-8"):
        load_folder(tmp_path)


def test_problem_files_when_two_have_one_id_are_an_error(tmp_path):
    write(tmp_path / "1_a.py")
    write(tmp_path / "01_b.py")
    with pytest.raises(UserError, match="one problem id, kernelbench-p001"):
        load_folder(tmp_path)


def test_parquet_when_a_file_or_a_directory_is_read(tmp_path):
    table(tmp_path / "data" / "level_1.parquet", [row(2), row(1)])
    table(tmp_path / "data" / "level_4.parquet", [row(1, level=4, code="not read (")])
    for copy in (".cache", "spark.parquet"):
        (tmp_path / "data" / copy).mkdir()
    table(tmp_path / "data" / ".cache" / "level_1.parquet", [row(2)])
    table(tmp_path / "data" / "spark.parquet" / "part-0.parquet", [row(3.0, level="2")])
    assert ids(load_parquet(tmp_path, levels=[1])) == ["kernelbench-l1-p001", "kernelbench-l1-p002"]
    assert len(load_parquet(tmp_path / "data" / "level_1.parquet")) == 2
    assert ids(load_parquet(tmp_path / "data", levels=[2])) == ["kernelbench-l2-p003"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"code": VALID, "level": 1, "name": "x"}], "no column 'problem_id'"),
        ([row(1, code=7)], "row 0: column 'code' holds 7"),
        ([row(1, code=VALID.encode())], "row 0: column 'code' holds b'"),
        ([row(1, level=1.5)], "row 0: column 'level' holds 1.5"),
        ([row(1, level=float("inf"))], "row 0: column 'level' holds inf"),
        ([row(1, problem_id=-3)], "row 0: column 'problem_id' holds -3"),
        ([row(1, level=True)], "row 0: column 'level' holds True"),
        ([row(1, code=None)], "row 0: column 'code' holds None"),
        ([row(1, problem_id="one")], "row 0: column 'problem_id' holds 'one'"),
        ([row(1, level=None)], "row 0: column 'level' holds None"),
        ([row(1), row(2, code="x = 1")], "row 1 (2_name): no top-level class `Model`"),
    ],
)
def test_parquet_table_when_wrong_names_file_row_and_column(tmp_path, rows, says):
    path = table(tmp_path / "t.parquet", rows)
    with pytest.raises(UserError) as caught:
        load_parquet(path)
    assert str(path) in str(caught.value) and says in str(caught.value) and len(str(caught.value)) < 300


def test_parquet_when_it_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match="no file .*absent.parquet"):
        load_parquet(tmp_path / "absent.parquet")
    with pytest.raises(UserError, match="no .parquet file under"):
        load_parquet(tmp_path)
    with pytest.raises(UserError, match="cannot be read as Parquet"):
        load_parquet(write(tmp_path / "text.parquet", "hello"))


def test_hub_when_out_of_reach_is_a_users_error(tmp_path):
    """A fresh process, since the hub's client reads its settings on import."""
    code = (
        "from cudal1_ray.problems import ProblemsConfig, load_problems\n"
        "from cudal1_ray.errors import UserError\n"
        "try:\n    load_problems(ProblemsConfig(source='hub', hub_name='no-owner/no-dataset'))\n"
        "except UserError as error:\n    print(error)\n"
    )
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    out = subprocess.run([sys.executable, "-c", code], env=offline, capture_output=True, text=True, check=True).stdout
    assert "'no-owner/no-dataset' could not be fetched" in out and out.count("\n") == 1


@pytest.mark.skipif(not TABLE.is_file(), reason=f"the real KernelBench table is not at {TABLE}")
def test_kernelbench_when_published_is_parsed_whole():
    problems = load_problems(ProblemsConfig(source="parquet", path=str(TABLE), levels=[1, 2, 3, 4]))
    assert len(problems) == 270
    of_level = [sum(problem.level == level for problem in problems) for level in (1, 2, 3, 4)]
    assert of_level == [100, 100, 50, 20]
    assert "kernelbench-l1-p009" in ids(problems)
    assert len(load_problems(ProblemsConfig(source="parquet", path=str(TABLE)))) == 250
