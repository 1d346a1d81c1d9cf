"""A run's adapter as a folder for others: weights, PEFT's configuration and a model card.

    python -m benchmarks.paper.adapter runs/table/seed-1-bucket --base-model Qwen/Qwen2.5-Coder-1.5B-Instruct \
        --license apache-2.0 --result benchmarks/results/arms/FILE.json --out benchmarks/results/arms/adapter-h100

Weights are written in bfloat16, in which a GPU's engine reads them too. The card names the base model as others find
it, the settings, machines and minutes of the run, and the result of the arm; a figure that the result lacks is "not yet
run".
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file, save_file

from benchmarks.common.command_line import run_command
from benchmarks.common.results import read_result
from benchmarks.paper.arms import ARMS, run_name
from benchmarks.paper.collect import only_seed
from benchmarks.paper.measured import ArmRun, measure
from benchmarks.paper.reservations import hardware
from benchmarks.paper.table import FIGURE_HEADINGS, LEGEND, kinds, table_rows
from cudal1_ray.analysis.tables import markdown_lines
from cudal1_ray.config import read_settings
from cudal1_ray.errors import UserError
from cudal1_ray.files import replacing_folder, write_atomically
from cudal1_ray.training.checkpoints import CheckpointStore

MIB = 2**20
# MiB of all files: what a repository can hold without a store for large files.
LIMIT_MIB = 50.0
TRAINED = [name for name, arm in ARMS.items() if arm.stage]
WEIGHTS, CONFIGURATION = "adapter_model.safetensors", "adapter_config.json"
# Settings that make a policy what it is, for the card; the whole configuration is in the result.
SETTINGS = (
    "problems.levels", "problems.sizes", "problems.asked", "prompting.style", "prompting.max_completion_tokens",
    "exemplars.strategy", "rewards.kind", "sft.corpus", "sft.generated_problems", "sft.epochs", "sft.learning_rate",
    "contrastive.steps", "contrastive.problems_per_step", "contrastive.group_size", "contrastive.learning_rate",
    "contrastive.rehearsed_pairs", "algorithm.name", "algorithm.minibatches", "policy.lora_rank", "policy.lora_alpha",
    "seed",
)  # fmt: skip


def find_adapter(run: Path, policy: str) -> Path:
    """Return the folder of a checkpoint's adapter.

    Args:
        policy: the checkpoint's name; empty for the last one.

    Raises:
        UserError: there is no such checkpoint, or it has no adapter.
    """
    saved = CheckpointStore(run / "checkpoints", keep=1).all()
    names = [checkpoint.path.name for checkpoint in saved]
    if not names or policy not in ("", *names):
        raise UserError(f"{run}: no checkpoint {policy or 'at all'} (it has {', '.join(names) or 'none'})")
    adapter = run / "checkpoints" / (policy or names[-1]) / "adapter"
    if not (adapter / WEIGHTS).is_file():
        raise UserError(f"{adapter}: no {WEIGHTS}; the run trained all weights, or other ones than an adapter")
    return adapter


def bfloat16_weights(file: Path) -> dict[str, torch.Tensor]:
    """Return an adapter's weights in bfloat16.

    Raises:
        UserError: they are larger than `LIMIT_MIB`.
    """
    weights = {name: of.to(torch.bfloat16) for name, of in load_file(file).items()}
    if (size := sum(of.nbytes for of in weights.values()) / MIB) > LIMIT_MIB:
        raise UserError(f"{file}: {size:.0f} MiB in bfloat16, more than {LIMIT_MIB:g}; train with a lower rank")
    return weights


def model_card(
    run: ArmRun, policy: str, base_model: str, license_name: str, result: dict[str, Any] | None, note: str = ""
) -> str:
    """Return the text of README.md: what the adapter is, how it was made, what it reaches, how it is used."""
    record = measure(run)
    front = {
        "base_model": base_model,
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "license": license_name,
        "tags": ["cuda", "triton", "code", "lora", "cudal1_ray"],
    }
    label = ARMS[run.arm].label.removeprefix("+ ")
    lines = [
        "---",
        yaml.safe_dump(front, sort_keys=False).strip(),
        "---",
        "",
        f"# {base_model.rpartition('/')[2]} that writes GPU kernels: {label}, seed {run.seed}",
        "",
        f"An adapter (LoRA) for [{base_model}](https://huggingface.co/{base_model}), trained by cudal1_ray on "
        f"KernelBench: checkpoint `{policy}` of the arm *{label}*. It answers prompts of this project "
        f"(`prompting=full`) with a module `ModelNew`; other prompts were not tried. {note}".rstrip(),
        "",
        "## Training",
        "",
        *markdown_lines(["setting", "value"], _setting_rows(record["settings"])),
        "",
        f"{record['samples']} samples and {record['evaluations']:.0f} evaluations in this stage, "
        f"{_minutes(record['training_minutes'])}, on {hardware(record)}.",
        "",
        "## Measured",
        "",
        *_measured(result and only_seed(result, run.arm, run.seed), run.arm),
        "",
        "## Use",
        "",
        "```bash",
        "cudal1 train name=on policy.path=BASE policy.adapter=FOLDER ...    # train on from it",
        "cudal1 assess runs/NAME --policy FOLDER                           # on the problems of a run",
        "```",
        "",
        "To serve it, merge it into the base model; then `cudal1 serve policy=MERGED serving=gpu`:",
        "",
        "```python",
        'base = AutoModelForCausalLM.from_pretrained(BASE, dtype="bfloat16")',
        "PeftModel.from_pretrained(base, FOLDER).merge_and_unload().save_pretrained(MERGED)",
        "AutoTokenizer.from_pretrained(BASE).save_pretrained(MERGED)",
        "```",
        "",
        "Run what it writes in a sandbox only, and measure it: a kernel that looks right may not be.",
    ]
    return "\n".join(lines) + "\n"


def _setting_rows(settings: dict[str, Any]) -> list[list[str]]:
    rows = []
    for key in SETTINGS:
        value: Any = settings
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            rows.append([f"`{key}`", json.dumps(value)])
    return rows


def _minutes(minutes: float | None) -> str:
    return "in a time that was not recorded" if minutes is None else f"in {minutes:.1f} minutes"


def _measured(result: dict[str, Any] | None, arm: str) -> list[str]:
    """Return the run's lines of the table and those of the base model."""
    if result is None or not result["arms"].get(arm, {}).get("assessed"):
        return ["Not yet assessed."]
    lines = [LEGEND, "Samples are drawn at temperature 1."]
    for kind in kinds(result):
        labels = {ARMS[name].label for name in ("base", arm)}
        rows = [row for row in table_rows(result, kind) if row[0] in labels]
        lines += ["", f"**{kind.replace('_', '-')}**", ""]
        lines += markdown_lines(["arm", "seeds", *FIGURE_HEADINGS], rows)
    return lines


def export(
    run: ArmRun, policy: str, base_model: str, license_name: str, result: Path | None, out: Path, note: str = ""
) -> str:
    """Write the folder and return the name of its checkpoint.

    Raises:
        UserError: the run has no such adapter, or `out` is something else.
    """
    if out.exists() and not (out / CONFIGURATION).is_file():
        raise UserError(f"--out {out}: is there and holds no adapter; name another folder")
    adapter = find_adapter(run.folder, policy or run.note.get("policy", ""))
    policy = adapter.parent.name
    content = read_result(result)["metrics"] if result else None
    weights = bfloat16_weights(adapter / WEIGHTS)
    card = model_card(run, policy, base_model, license_name, content, note)
    configuration = json.loads((adapter / CONFIGURATION).read_text()) | {"base_model_name_or_path": base_model}
    with replacing_folder(out) as partial:
        save_file(weights, partial / WEIGHTS, metadata={"format": "pt"})
        write_atomically(partial / CONFIGURATION, json.dumps(configuration, indent=1) + "\n")
        write_atomically(partial / "README.md", card)
    return policy


def arm_run(run: Path, arm: str | None) -> ArmRun:
    """Return a run as an arm of the table.

    Args:
        arm: its name; None takes it from the folder's.

    Raises:
        UserError: there is no run, or its folder names no arm.
    """
    seed = read_settings(run, "seed")["seed"]
    names = [name for name, of in ARMS.items() if of.stage and run.name == run_name(name, seed)]
    if arm is None and not names:
        raise UserError(f"{run}: the folder names no arm; give --arm, one of {', '.join(TRAINED)}")
    return ArmRun(arm or names[0], str(seed), run)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="an arm's run, for example runs/table/seed-1-bucket")
    parser.add_argument("--arm", choices=TRAINED, help="that the run is (default: from its folder's name)")
    parser.add_argument("--policy", default="", help="a checkpoint (default: the arm's policy, else the last one)")
    parser.add_argument("--base-model", required=True, help="as others find it, for example Qwen/Qwen2.5-Coder-1.5B")
    parser.add_argument("--license", required=True, help="of the base model, which holds for its adapter")
    parser.add_argument("--result", type=Path, help="a result of benchmarks.paper.collect")
    parser.add_argument("--note", default="", help="a sentence for the card, for example on the base model's weights")
    parser.add_argument("--out", type=Path, required=True, help="folder")
    arguments = parser.parse_args(argv)
    policy = export(
        arm_run(arguments.run, arguments.arm),
        arguments.policy,
        arguments.base_model,
        arguments.license,
        arguments.result,
        arguments.out,
        arguments.note,
    )
    print(f"{arguments.out}: {policy} of {arguments.run}, with its model card")


if __name__ == "__main__":
    run_command(main)
