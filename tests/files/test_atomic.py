"""Files that are replaced whole or not at all."""

from __future__ import annotations

import ast
import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cudal1_ray
from cudal1_ray.errors import UserError
from cudal1_ray.files import replace_folder, replacing, replacing_folder, write_atomically


def test_write_atomically_when_a_file_is_there_replaces_it_and_makes_folders(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    write_atomically(path, "first")
    write_atomically(path, "zweites ü")
    assert path.read_text(encoding="utf-8") == "zweites ü" and os.listdir(path.parent) == ["file.txt"]


def test_write_atomically_when_the_path_is_a_link_replaces_what_it_names(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "file.txt")
    write_atomically(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "elsewhere" / "file.txt").read_text() == "text"


def test_write_atomically_when_threads_write_one_path_leaves_a_whole_file_of_one_of_them(tmp_path):
    path, texts = tmp_path / "file.txt", [str(number) * 1000 for number in range(4)]

    def write(text: str) -> None:
        for _ in range(25):
            write_atomically(path, text)

    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(write, texts))
    assert path.read_text() in texts and os.listdir(tmp_path) == ["file.txt"]


def test_replacing_when_the_target_is_no_file_leaves_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe: no regular file"):
        write_atomically(tmp_path / "pipe", "text")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode) and os.listdir(tmp_path) == ["pipe"]


def test_replacing_when_an_error_is_raised_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "file.bin"
    write_atomically(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as file:
        file.write(b"half of")
        raise RuntimeError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file.bin"]


def test_replacing_when_it_cannot_write_names_the_file_that_was_asked_for(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as refused, replacing(tmp_path / "folder") as file:
        file.write(b"text")
    assert refused.value.filename == str(tmp_path / "folder")
    with pytest.raises(OSError) as full, replacing(tmp_path / "file.bin"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert full.value.filename == str(tmp_path / "file.bin") and os.listdir(tmp_path) == ["folder"]
    with pytest.raises(FileNotFoundError) as other, replacing(tmp_path / "file.bin"):
        open("/nowhere/else")
    assert other.value.filename == "/nowhere/else"


def test_write_atomically_when_a_mode_is_given_restricts_the_file(tmp_path):
    write_atomically(tmp_path / "keys.json", "{}", mode=0o600)
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600


def test_replace_folder_when_the_new_one_is_finished_removes_the_old_one(tmp_path):
    for name in ("new", "target"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    replace_folder(tmp_path / "new", tmp_path / "target")
    assert os.listdir(tmp_path) == ["target"] and os.listdir(tmp_path / "target") == ["new"]


def test_replacing_folder_when_filled_takes_the_place_of_the_old_one_and_of_a_killed_ones_rest(tmp_path):
    for name in ("target", ".target.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").touch()
    with replacing_folder(tmp_path / "target") as folder:
        assert os.listdir(folder) == [] and os.listdir(tmp_path / "target") == ["old"]
        (folder / "new").touch()
    assert os.listdir(tmp_path) == ["target"] and os.listdir(tmp_path / "target") == ["new"]


def test_replacing_folder_when_killed_between_its_renames_leaves_the_old_one_to_the_next_writer(tmp_path, monkeypatch):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "old").touch()

    def rename_until_killed(path: Path, name: Path) -> None:
        if path.name == ".target.partial":
            raise KeyboardInterrupt
        os.rename(path, name)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", rename_until_killed)
        with replacing_folder(tmp_path / "target") as folder:
            (folder / "new").touch()
    with pytest.raises(RuntimeError), replacing_folder(tmp_path / "target"):
        raise RuntimeError
    assert os.listdir(tmp_path) == ["target"] and os.listdir(tmp_path / "target") == ["old"]


def test_replacing_folder_when_killed_before_the_old_one_is_removed_keeps_the_new_one(tmp_path):
    for name in ("target", ".target.replaced"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    with pytest.raises(RuntimeError), replacing_folder(tmp_path / "target"):
        raise RuntimeError
    assert os.listdir(tmp_path) == ["target"] and os.listdir(tmp_path / "target") == ["target"]


def test_replacing_folder_when_an_error_is_raised_leaves_the_old_one_alone(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "old").touch()
    with pytest.raises(RuntimeError), replacing_folder(tmp_path / "target") as folder:
        (folder / "new").touch()
        raise RuntimeError
    assert os.listdir(tmp_path) == ["target"] and os.listdir(tmp_path / "target") == ["old"]


# Files outside `files/` that write or rename by themselves.
BY_THEMSELVES = {
    "evaluation/compiling/cache.py",  # an entry that another process has added stays
    "evaluation/compiling/headers.py",  # a compiler writes the file
    "evaluation/inside/preloading.py",  # in the sandbox, where a kill leaves nothing
    "evaluation/sandbox/memory_group.py",  # the kernel's control files
    "exemplars/hardware_buffers.py",  # swaps two whole folders
    "learning/adapter_files.py",  # into a folder that is not in its place yet
}


def test_package_when_it_writes_or_renames_files_calls_the_functions_for_it():
    root, writers = Path(cudal1_ray.__file__).parent, set()
    for path in root.rglob("*.py"):
        called = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        names = {ast.unparse(function) for function in called if isinstance(function, ast.Attribute)}
        if any(
            name in ("os.replace", "os.fsync") or name.endswith((".rename", ".write_text", ".write_bytes"))
            for name in names
        ):
            writers.add(path.relative_to(root).as_posix())
    assert {name for name in writers if not name.startswith("files/")} == BY_THEMSELVES
