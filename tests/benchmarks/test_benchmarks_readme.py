"""The index of benchmarks: it names every file and every folder of results, and what it names is there and starts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
README = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"python -m (benchmarks\.[\w.]+)", README)))
NAMES = {word for text in re.findall(r"`([^`\n]+)`", README) for word in re.split(r"[\s/]+", text)}
NAMES |= {word.rpartition(".")[2] for word in NAMES}


def test_readme_when_a_file_is_there_names_it_or_its_folder():
    files = [file.relative_to(BENCHMARKS) for file in BENCHMARKS.rglob("*.py") if file.name != "__init__.py"]
    missing = [str(file) for file in files if not NAMES & {file.stem, *file.parts[1:-1]}]
    assert files and missing == []


def result_cells() -> list[str]:
    """Return the cells of the tables' column `result`."""
    cells = []
    for text in re.findall(r"(?:^\|.*\n)+", README, re.M):
        heading, _, *rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in text.splitlines()]
        cells += [row[heading.index("result")] for row in rows]
    return cells


def test_readme_when_a_folder_has_results_has_a_row_for_it_and_no_row_for_others():
    folders = {folder.name for folder in (BENCHMARKS / "results").iterdir() if folder.is_dir()}
    cells = ", ".join(result_cells())
    expected = set(re.findall(r"`([\w-]+)` \(none yet\)", cells))
    named = set(re.findall(r"`([\w-]+)`", cells)) - expected
    assert folders and sorted(folders - named) == [] and sorted(named - folders) == []


def test_readme_when_it_names_a_command_a_program_is_there():
    for command in COMMANDS:
        file = ROOT / f"{command.replace('.', '/')}.py"
        assert 'if __name__ == "__main__":' in file.read_text(encoding="utf-8"), command


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", README))))
def test_readme_when_it_links_a_page_the_page_is_there(link):
    assert (BENCHMARKS / link.partition("#")[0]).exists()


def test_commands_when_imported_find_all_that_they_use():
    code = f"import importlib\nfor name in {COMMANDS!r}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
