"""Flags of Hydra's own command line, for users who know it: what `cudal1 train` takes, and what stands for the rest."""

from __future__ import annotations

from cudal1_ray.errors import UserError

_PRESETS_ARE_FILES = "presets are the files of conf/; `cudal1 train --help presets` lists them"
_ADVICE = {
    "--resolve": "--cfg prints every value resolved",
    "--package": "`cudal1 train --help SECTION` prints one section",
    "-p": "`cudal1 train --help SECTION` prints one section",
    "--run": "a command without -m is one run",
    "-r": "a command without -m is one run",
    "--info": "`cudal1 train --help SECTION` says where values come from",
    "-i": "`cudal1 train --help SECTION` says where values come from",
    "--config-dir": _PRESETS_ARE_FILES,
    "--config-name": _PRESETS_ARE_FILES,
    "--config-path": _PRESETS_ARE_FILES,
    "--hydra-help": "`cudal1 train --help`; settings of a sweep are hydra.launcher.* (conf/hydra/launcher/ray.yaml)",
    "--shell-completion": "there is none; `cudal1 train --help KEY` suggests the nearest setting",
}


def instead_of(flag: str) -> str:
    """Return what `cudal1 train` has instead of a flag of Hydra; empty for any other flag."""
    return _ADVICE.get(flag.partition("=")[0], "")


def without_cfg_type(overrides: list[str]) -> list[str]:
    """Return overrides without the `job` of Hydra's `--cfg job`, which is what `--cfg` prints.

    Raises:
        UserError: for `hydra` and `all`, which are not printed.
    """
    for kind in ("hydra", "all"):
        if kind in overrides:
            raise UserError(f"--cfg {kind}: Hydra's own settings are not printed; --cfg prints those of the run")
    return [override for override in overrides if override != "job"]
