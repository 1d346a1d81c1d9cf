"""Temporary folders: they end with their owner, whichever way that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from cudal1_ray.files.owned_folder import OwnedFolder

OWNER = """
import time
from cudal1_ray.files.owned_folder import OwnedFolder
print(OwnedFolder("test").path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_owned_folder_when_left_is_removed_with_its_content(temporary):
    with OwnedFolder("test") as folder:
        (folder.path / "deep").mkdir()
        (folder.path / "deep" / "file").write_text("text")
        assert folder.path.parent == temporary and folder.path.name.startswith("cudal1-test-")
    folder.close()
    assert list(temporary.iterdir()) == []


def test_owned_folder_when_its_process_was_killed_is_removed_by_the_next(temporary):
    strangers = [temporary / name for name in ("cudal1-cores-0", "evaluation-abc", "file")]
    for stranger in strangers[:2]:
        stranger.mkdir()
    strangers[2].write_text("cudal1")
    os.symlink(strangers[1], temporary / "cudal1-link")
    environment = {**os.environ, "TMPDIR": str(temporary)}
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env=environment)
    left = owner.stdout.readline().strip()
    with OwnedFolder("other") as folder:
        assert os.path.isdir(left)  # its owner lives
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
        with OwnedFolder("test"):
            assert not os.path.exists(left) and folder.path.is_dir()
    assert {path.name for path in temporary.iterdir()} == {"cudal1-link", *(stranger.name for stranger in strangers)}
