"""The root directory that contestants live in: what it contains, and how it is made."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from cudal1_ray.evaluation.sandbox import kernel_calls as kernel

# Private to each contestant at the level of namespaces; a checkout or an environment may lie there.
SCRATCH = "/tmp"
DEVICE_LINKS = {
    "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
}  # fmt: skip
_DEVICES = ["null", "zero", "full", "random", "urandom"]
# Folders that are made afresh, even if `paths` include the ones outside.
_OWN = (SCRATCH, "/dev", "/proc")


@dataclass(frozen=True)
class Place:
    """A path of the outside that exists inside as well: bound read-only, or a link that stays a link."""

    path: str
    target: str = ""  # where a link points; empty for others

    @property
    def in_scratch(self) -> bool:
        return self.path.startswith(f"{SCRATCH}/")


def layout(paths: Iterable[str]) -> list[Place]:
    """Return what has to be made so that `paths` can be read; no place lies in another that is bound."""
    readable = [path for path in dict.fromkeys(paths) if path not in _OWN and not path.startswith(("/dev/", "/proc/"))]
    links = {path: os.readlink(path) for path in readable if os.path.islink(path)}
    bound = {_behind(path, links) for path in readable if path not in links}
    places = {path: Place(path) for path in bound}
    for link, target in links.items():
        path = _behind(link, links)
        places[path] = Place(path, target)
    return [places[path] for path in sorted(places) if not any(path.startswith(f"{folder}/") for folder in bound)]


def _behind(path: str, links: dict[str, str]) -> str:
    """Return the path with the links among its parents followed."""
    for link, target in links.items():
        if path.startswith(f"{link}/") and os.path.exists(path):  # a circle of links leads nowhere
            rest = path[len(link) + 1 :]
            return _behind(os.path.normpath(os.path.join(os.path.dirname(link), target, rest)), links)
    return path


def device_nodes(nodes: Iterable[str]) -> list[str]:
    """Return the devices that a contestant may open, `nodes` among them, as far as they exist."""
    return [name for name in (*(f"/dev/{name}" for name in _DEVICES), *nodes) if os.path.exists(name)]


def build_root(root: str, paths: Iterable[str], nodes: Iterable[str]) -> None:
    """Make a root at the empty folder `root`, in this process's mount namespace, and enter it; raise OSError."""
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=16m,mode=755")
    places = layout(paths)
    for place in places:
        if not place.in_scratch:
            put(place, root)
    for path in ("tmp", "dev", "proc"):
        os.makedirs(f"{root}/{path}", exist_ok=True)
    kernel.make_read_only(root)
    # Device nodes and /proc must stay usable, so they come after the flags; the folder for them is on a small tmpfs.
    kernel.mount("tmpfs", f"{root}/dev", "tmpfs", kernel.MS_NOSUID, "size=1m,mode=755")
    os.mkdir(f"{root}/dev/shm")
    for path in device_nodes(nodes):
        put(Place(path), root)
    for link, target in DEVICE_LINKS.items():
        os.symlink(target, f"{root}/dev/{link}")
    # All contestants of a server share this one: a later contestant would find what an earlier one left there.
    kernel.mount("none", f"{root}/dev", None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID)
    memory = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", f"{root}/dev/shm", "tmpfs", memory, "size=64m,mode=1777")
    kernel.mount("/proc", f"{root}/proc", None, kernel.MS_BIND | kernel.MS_REC)
    kernel.mount("tmpfs", f"{root}{SCRATCH}", "tmpfs", memory, "size=64m,mode=1777")
    for place in places:
        if place.in_scratch:
            put(place, root)
            if not place.target:
                kernel.make_read_only(root + place.path)
    kernel.pivot_root(root)


def put(place: Place, root: str, source: str = "") -> None:
    """Make the same path inside the new root; `source`: where its content lies, if elsewhere."""
    inside, source = root + place.path, source or place.path
    os.makedirs(os.path.dirname(inside), exist_ok=True)
    if place.target:
        os.symlink(place.target, inside)
        return
    if os.path.isdir(source):
        os.makedirs(inside, exist_ok=True)
    else:
        os.close(os.open(inside, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(source, inside, None, kernel.MS_BIND | kernel.MS_REC)
