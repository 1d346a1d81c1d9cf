"""`cudal1 pack` and `cudal1 unpack`: a run in a file, and back."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Console

MIB = 1 << 20


def pack_run(run: str, out: str | None, limit_mib: float, split_mib: float | None) -> int:
    """Pack a run and print what is inside and what was left out; return 0.

    Raises:
        UserError: there is no run, or what it needs does not fit.
    """
    from cudal1_ray.training.packing import pack

    folder = Path(run)
    packed = pack(folder, Path(out) if out else Path(f"{folder.resolve().name}.pack"), limit_mib, split_mib)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for name, size in packed.inside.items():
        console.print(f"  {size / MIB:8.2f} MiB  {name}")
    for name, size in packed.left_out.items():
        console.print(f"  {size / MIB:8.2f} MiB  left out: {name}")
    files = f"{packed.files[0]}" + (f" to {packed.files[-1].name}" if len(packed.files) > 1 else "")
    console.print(f"{packed.size / MIB:.1f} MiB written: {files}")
    return 0


def unpack_run(files: list[str], target: str | None) -> int:
    """Unpack a run and print how to continue it; return 0.

    Raises:
        UserError: a piece is missing or damaged, or the folder is there already.
    """
    from cudal1_ray.training.packing import unpack

    folder = unpack([Path(file) for file in files], Path(target) if target else None)
    again = f"{shlex.join(['cudal1', 'train', f'name={folder.name}', f'runs_dir={folder.parent}'])} ..."
    Console(highlight=False, markup=False, soft_wrap=True).print(
        f"{folder}: the run is there; the command that it was started with goes on with it: {again}"
    )
    return 0
