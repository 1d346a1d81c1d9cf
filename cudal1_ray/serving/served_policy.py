"""From what a user points at (a run, a checkpoint, a model folder) to the model folder, and how its prompts look."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudal1_ray.config import read_settings
from cudal1_ray.errors import UserError

# Latest stage first: a run is served as the best policy it has finished.
CHECKPOINTS = ("contrastive-final", "self_supervised-final", "sft-final")
# Settings of a run's policy section by which its prompts become tokens.
CHAT = ("chat", "chat_template_kwargs")


@dataclass(frozen=True)
class ServedPolicy:
    """A Hugging Face folder to serve; `run_settings` are sections of the configuration it was trained with."""

    folder: Path
    name: str
    run_settings: dict[str, dict[str, Any]] = field(default_factory=dict)


def newest_policy(run: Path) -> Path | None:
    """Return the model folder that a run finished last, or None while there is none."""
    newest = newest_policy_files(run)
    return newest[1] if newest else None


def newest_policy_files(run: Path) -> tuple[int, Path] | None:
    """Return the model folder that a run finished last and before it the time of its files, nanoseconds since 1970: a
    run that begins again under the same name writes another policy to the same folder.

    A checkpoint is complete or absent, and counts when it holds a policy: the last of each stage does, all of them
    where the run has `checkpoint.export_policy=true`.
    """
    policies = []
    for place in run.glob("checkpoints/[!.]*-*/policy"):
        try:
            policies.append(((place / "config.json").stat().st_mtime_ns, place))
        except OSError:  # not a model, or deleted by the run since it was listed
            continue
    return max(policies, default=None)


def find_policy(path: str) -> ServedPolicy:
    """Search for a model in `path` itself, as a checkpoint's policy, as a run's last finished stage, as its last
    policy.

    Raises:
        UserError: naming the folder, when there is no model there.
    """
    if not path:
        raise UserError("policy is empty: give a run's folder, a checkpoint or a model folder, policy=runs/demo")
    top = Path(path).expanduser().resolve()
    places = [top, top / "policy", *(top / "checkpoints" / name / "policy" for name in CHECKPOINTS)]
    if newest := newest_policy(top):
        places.append(newest)  # of a stage that is not finished
    if (top / "config.yaml").is_file():  # runs/<name>/policy is where a run starts from, not where it ended
        places = places[2:]
    for place in places:
        if (place / "config.json").is_file() and any(place.glob("*.safetensors")):
            run = run_of(top)
            return ServedPolicy(place, (run or top).name or "policy", _run_settings(run) if run else {})
    if not top.exists():
        raise UserError(f"policy={path}: no such folder; give that of a run, a checkpoint or a model")
    raise UserError(
        f"policy={path}: holds no model (config.json and *.safetensors), no checkpoint with one, "
        "and no run with a finished stage"
    )


def check_files(folder: Path) -> None:
    """Check that each file of a model's weights is whole; an engine would try a damaged one for minutes.

    Raises:
        UserError: naming the file, of a download that was cut short for example.
    """
    from safetensors import SafetensorError, safe_open

    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="numpy"):
                pass
        except SafetensorError as error:
            raise UserError(f"{file}: damaged ({error}); copy it again, or give another policy") from None


def run_of(folder: Path) -> Path | None:
    """Return the run whose folder, checkpoint or policy a folder is; None where it is no run's."""
    return next((place for place in (folder, *folder.parents[:3]) if (place / "checkpoints").is_dir()), None)


def _run_settings(run: Path) -> dict[str, dict[str, Any]]:
    if not (run / "config.yaml").is_file():
        return {}
    settings = read_settings(run, "prompting", "policy")
    return {
        "prompting": settings["prompting"],
        "exemplars": settings.get("exemplars", {}),
        "policy": {key: value for key, value in settings["policy"].items() if key in CHAT},
        "rollout": {key: value for key, value in settings.get("rollout", {}).items() if key == "max_model_len"},
    }
