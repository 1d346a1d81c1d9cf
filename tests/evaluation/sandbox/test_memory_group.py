"""Which control group is divided among contestants, on folders that look like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ray.evaluation.sandbox.memory_group import delegated_group


@pytest.fixture
def groups(tmp_path):
    """Return a function that makes nested groups of (name, controllers of its children), and returns which one is
    divided where a process is in the lowest.
    """

    def delegated(*nested: tuple[str, str], version: str = "0::") -> str:
        folder, root = tmp_path / "cgroup", tmp_path / "cgroup"
        for name, controllers in nested:
            folder = folder / name
            folder.mkdir(parents=True)
            (folder / "cgroup.procs").write_text("")
            (folder / "cgroup.subtree_control").write_text(controllers)
        own = tmp_path / "own"
        own.write_text(f"9:cpu:/elsewhere\n{version}/{folder.relative_to(root)}\n")
        group = delegated_group(root, str(own))
        return str(group.relative_to(root)) if group else ""

    return delegated


def test_delegated_group_when_several_bound_memory_is_the_nearest(groups):
    assert groups(("user", "cpu memory"), ("app", "memory pids"), ("shell", "memory")) == "user/app/shell"


def test_delegated_group_when_its_children_lack_memory_gives_it_to_them(groups, tmp_path):
    assert groups(("user", "memory"), ("app", "")) == "user/app"
    assert (tmp_path / "cgroup/user/app/cgroup.subtree_control").read_text() == "+memory"


def test_delegated_group_when_the_nearest_refuses_is_the_one_above(groups, monkeypatch):
    """The kernel gives no controller to the children of a group that holds processes itself."""
    write = Path.write_text

    def refuse(path: Path, text: str) -> int:
        if text == "+memory":
            raise OSError(16, "Device or resource busy")
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", refuse)
    assert groups(("user", "memory"), ("session", "")) == "user"


def test_delegated_group_when_the_kernel_has_version_1_only_is_none(groups):
    assert groups(("user", "memory"), version="4:memory:") == ""
