#!/usr/bin/env python3
"""Where the time of a training step goes: seconds per role, idle shares, and tokens/s against bare vLLM.

Runs a short contrastive run from the stages of a finished run, then gives the very prompts of its last step to a bare
vLLM engine (no actors, no parsing, no evaluation, no weight sync), in the same process order on the same machine.

    python benchmarks/pipeline.py runs/demo [--steps 6] [--out benchmarks/results/pipeline-cpu.json] [key=value ...]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from cudal1_ray.analysis import describe_environment
from cudal1_ray.config import load_config
from cudal1_ray.learning import encode_prompt, load_tokenizer
from cudal1_ray.rollout import GenerationRequest, SamplingParameters, build_engine
from cudal1_ray.training import train

ROLES = ("rollout", "evaluation", "learner", "sync")


def run_pipeline(finished: Path, steps: int, overrides: list[str]) -> tuple[Path, list[dict]]:
    """A contrastive run of `steps` steps; its folder and its metrics rows."""
    folder = Path(tempfile.mkdtemp(prefix="cudal1-pipeline-"))
    config = load_config(
        [
            f"runs_dir={folder}",
            "name=run",
            "stage=contrastive",
            f"init_from={finished}",
            f"contrastive.steps={steps}",
            "assessment.enabled=false",
            *overrides,
        ]
    )
    train(config)
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return folder / "run", [row for row in rows if row["stage"] == "contrastive"][1:]  # the first one warms up


def bare_engine(run: Path, overrides: list[str]) -> float:
    """Tokens per second of the engine alone, on the prompts of the run's last step."""
    config = load_config(overrides)
    table = pq.read_table(sorted((run / "rollouts").glob("contrastive-*.parquet"))[-1])
    tokenizer = load_tokenizer(str(run / "policy"))
    prompts = [encode_prompt(tokenizer, text, chat=config.policy.chat) for text in table.column("prompt").to_pylist()]
    engine = build_engine(config.rollout, str(run / "policy"))
    from safetensors.torch import load_file

    weights = load_file(next((run / "checkpoints" / "contrastive-final" / "policy").glob("*.safetensors")))
    engine.load_weights(weights, policy_version=1)
    sampling = SamplingParameters(
        n=1,
        temperature=config.contrastive.temperature,
        top_p=1.0,
        max_tokens=config.prompting.max_completion_tokens,
        seed=1,
        stop=(),
    )
    rates = []
    for lap in range(4):
        requests = [GenerationRequest(f"{lap}/{i}", prompt) for i, prompt in enumerate(prompts)]
        started = time.perf_counter()
        tokens = sum(len(completion.token_ids) for completion in engine.generate(requests, sampling))
        rates.append(tokens / (time.perf_counter() - started))
    engine.close()
    return statistics.median(rates[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a finished run to start from, for example runs/demo")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/pipeline-cpu.json"))
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    arguments = parser.parse_args()

    run, rows = run_pipeline(arguments.run, arguments.steps, arguments.overrides)
    bare = bare_engine(run, arguments.overrides)
    step_s = statistics.median(row["step_s"] for row in rows)
    cluster = load_config(arguments.overrides).cluster
    members = {"rollout": cluster.rollout.count, "evaluation": cluster.evaluator.count, "learner": 1, "sync": 1}
    busy = {  # of one member
        role: statistics.median(row.get(f"busy_{role}", 0.0) for row in rows) / members[role] for role in ROLES
    }
    through_actors = statistics.median(row["tokens_per_s"] for row in rows)
    result = {
        "steps": len(rows),
        "step_s": step_s,
        "members": members,
        "busy_s": busy,
        "idle_share": {role: max(0.0, 1 - seconds / step_s) for role, seconds in busy.items()},
        "tokens_per_s": through_actors,
        "bare_vllm_tokens_per_s": bare,
        "ratio_to_bare_vllm": through_actors / bare,
        "environment": describe_environment(),
    }
    table = Table("role", "busy, s per step and member", "idle share", title=f"a step takes {step_s:.2f} s")
    for role in ROLES:
        table.add_row(role, f"{busy[role]:.2f}", f"{result['idle_share'][role]:.0%}")
    console = Console()
    console.print(table)
    console.print(
        f"rollout: {through_actors:,.0f} tokens/s with the evaluator at work beside it; "
        f"bare vLLM alone on the machine: {bare:,.0f} ({result['ratio_to_bare_vllm']:.0%})"
    )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    console.print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()
