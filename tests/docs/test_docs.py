"""The documentation is current: generated pages, links, named settings, the front page's length."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudal1_ray.config import Config, all_presets
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.settings import find_keys
from cudal1_ray.training.packing import FOLDERS
from cudal1_ray.training.rollout_table import SCHEMA
from cudal1_ray.training.run_folder import RunFolder

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# A path in a code span, by the folders that pages leave out in front of it.
PATH = re.compile(r"`((?:[\w-]+/)+[\w.-]*)`")
ABOVE = (ROOT, ROOT / "cudal1_ray", ROOT / "conf", ROOT / "benchmarks" / "results")
SETTING = re.compile(r"`([a-z_]+(?:\.[a-z_0-9]+)+)(?:=[^`]*)?`")


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_generated_pages_when_checked_are_current():
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_when_a_page_has_them_lead_somewhere(page):
    for link in LINK.findall(page.read_text()):
        target, _, anchor = link.partition("#")
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name}: {link}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_settings_when_a_page_names_them_exist(page):
    keys = {*find_keys(Config), *find_keys(ServingConfig)}
    sections = {key.partition(".")[0] for key in keys}
    for name in SETTING.findall(page.read_text()):
        if name.partition(".")[0] in sections and not name.endswith((".py", ".md", ".json", ".yaml", ".jsonl")):
            assert name in keys, f"{page.name}: {name}"


def test_paths_when_a_page_names_them_exist():
    """What is below no folder of the repository is of a run, of another project, or an address."""
    others = [ROOT / folder / "README.md" for folder in ("launch", "benchmarks", "tests/adversarial")]
    missing = []
    for page in [*PAGES, *others]:
        if page.name != "CHANGELOG.md":  # it names what was there
            for path in PATH.findall(page.read_text()):
                is_ours = any((folder / path.partition("/")[0]).is_dir() for folder in ABOVE)
                if is_ours and not any((folder / path).exists() for folder in ABOVE):
                    missing.append(f"{page.relative_to(ROOT)}: {path}")
    assert missing == []


def test_run_folder_page_when_read_names_every_column_of_a_rollout_table():
    text = (ROOT / "docs" / "run-folder.md").read_text()
    assert [name for name in SCHEMA.names if f"`{name}`" not in text] == []


def test_run_folder_page_when_read_names_every_part_of_a_run():
    text = (ROOT / "docs" / "run-folder.md").read_text()
    parts = {path.name for path in vars(RunFolder(Path("run"))).values()} - {"run"}
    assert [name for name in sorted(parts | set(FOLDERS)) if not re.search(rf"[`/]{re.escape(name)}[/`]", text)] == []


def test_run_folder_page_when_its_code_is_run_beside_a_step_under_way_reads_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "demo" / "rollouts" / "in_flight").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "rollouts" / "in_flight" / "sft-2.jsonl").write_text("{}\n")
    table = pa.table({"status": ["accepted", "accepted"], "speedup": [1.0, 3.0]})
    pq.write_table(table, "runs/demo/rollouts/sft-000001.parquet")
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "run-folder.md").read_text(), re.M | re.S)
    exec(code, {})
    assert "[[2]]" in capsys.readouterr().out


def test_presets_page_when_read_has_a_section_for_every_group():
    text = (ROOT / "docs" / "reference" / "presets.md").read_text()
    assert all(f"## `{group}`" in text for group in all_presets())


def test_front_page_when_read_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120 and len(text.split()) <= 1200


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="make docs installs mkdocs")
def test_site_when_built_strictly_has_no_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "reference" / "configuration" / "index.html").exists()
