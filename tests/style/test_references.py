"""A name that a file takes from a module of the project and that has moved is found without running the file."""

from __future__ import annotations

from pathlib import Path

import pytest
import references

FAULTS = {
    "import": ("import cudal1_ray.nowhere", 1),
    "from": ("import os\nfrom cudal1_ray.config import nothing", 2),
    "attribute": ("from cudal1_ray import cli\n\ncli._gone()", 3),
    "attribute of an alias": ("import cudal1_ray.config as c\nc.gone", 2),
    "submodule": ("import cudal1_ray.config\ncudal1_ray.gone.x", 2),
    "setattr": ("from cudal1_ray import cli\ndef f(patch):\n    patch.setattr(cli, 'gone', 1)", 3),
    "dotted string": ("f('cudal1_ray.config.gone')", 1),
    "program in a string": ("RUN = '''\nimport os\nfrom cudal1_ray.config import gone\n'''", 3),
    "another folder": ("from benchmarks.nowhere import x", 1),
}
SOUND = {
    "lazy face": "from cudal1_ray.evaluation import Evaluator",
    "function": "from cudal1_ray import cli\ncli.main",
    "a parameter of the same name": "from cudal1_ray import config\ndef f(config):\n    return config.gone",
    "submodule": "from tests.style import references\nreferences.bound_names",
    "other packages": "import torch\ntorch.gone",
    "prose": "'import cudal1_ray and see'",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_missing_names_when_a_name_is_not_there_gives_its_line(tmp_path, fault):
    source, line = FAULTS[fault]
    (tmp_path / "test_x.py").write_text(source)
    (missing,) = references.missing_names(tmp_path / "test_x.py")
    assert missing.startswith(f"test_x.py:{line}: ")


def test_missing_names_when_a_page_shows_a_moved_name_gives_its_line(tmp_path):
    (tmp_path / "page.md").write_text("# Use\n\n```python\nimport os\nfrom cudal1_ray.api import gone\n```\n")
    assert references.missing_names(tmp_path / "page.md") == ["page.md:5: cudal1_ray.api.gone"]


@pytest.mark.parametrize("case", SOUND)
def test_missing_names_when_all_is_there_gives_none(tmp_path, case):
    (tmp_path / "test_x.py").write_text(SOUND[case])
    assert references.missing_names(tmp_path / "test_x.py") == []


def test_checked_files_when_listed_leave_out_candidates_and_problems():
    names = {str(path.relative_to(references.REPOSITORY)) for path in references.checked_files()}
    assert {"tests/test_cli.py", "README.md", "cudal1_ray/cli.py"} <= names
    assert not [name for name in names if name.startswith(references.DATA)]


def test_namesakes_when_two_test_files_have_one_name_names_both():
    files = [Path(name) for name in ("tests/a/test_x.py", "tests/b/test_y.py", "tests/b/test_x.py", "b/test_x.md")]
    assert references.namesakes(files) == ["tests/b/test_x.py: has the name of tests/a/test_x.py"]
