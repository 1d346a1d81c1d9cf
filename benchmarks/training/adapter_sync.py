#!/usr/bin/env python3
"""How well an engine follows a learner whose adapters train: sent as adapters, or merged into the engine's weights.

A learner and one engine as `cudal1 train` starts them. Per learning rate: the same supervised steps on the bundled
problems and their candidates, and after each a weight sync and a look at the same tokens from both sides.

    gap_mean, gap_max   |log p (engine) - log p (learner)|, nats per token, at temperature 1
    followed            slope of the engine's change of log p since before the first step over the learner's change:
                        1 where the engine moves as far as the learner does, 0 where nothing of the update arrives
    unfollowed          rms of what is left of the engine's change, as a share of the learner's change
    sync_s, publish_s   pause to resume of the engine; gathering and packing on the learner

    python -m benchmarks.training.adapter_sync --out FILE.json
    python -m benchmarks.training.adapter_sync --model FOLDER --out FILE.json cluster=one_gpu \
        policy.attention=auto learner.compile=false rollout.max_model_len=4096
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.common.command_line import parse_with_settings, run_command
from benchmarks.common.policy_shapes import write_configured_policy
from benchmarks.common.results import new_result, write_result
from benchmarks.training.rollout import generate
from benchmarks.training.weight_sync import LearnerAndEngines
from cudal1_ray.config import Config, load_config
from cudal1_ray.learning import TrainingSequence, encode_completion, encode_prompt, load_tokenizer
from cudal1_ray.problems import load_corpus, load_problems
from cudal1_ray.rollout import AdapterShape

WAYS = ("adapter", "merged")
# Sequences trained on in every step; as many others are looked at.
SEQUENCES = 16
# Most tokens of prompt and completion together.
MOST_TOKENS = 1024


def sequences_of(config: Config, model: str) -> list[TrainingSequence]:
    """Return problems as prompts and candidates of the bundled corpus as answers, in an order of their own."""
    tokenizer = load_tokenizer(model)
    sources = {problem.problem_id: problem.source for problem in load_problems(config.problems)}
    sequences = []
    for entry in load_corpus():
        if entry.problem_id in sources:
            prompt = encode_prompt(tokenizer, sources[entry.problem_id], chat=False)
            sequence = TrainingSequence(prompt, encode_completion(tokenizer, entry.code))
            if len(sequence) <= min(MOST_TOKENS, config.rollout.max_model_len - 2):
                sequences.append(sequence)
    order = np.random.default_rng(0).permutation(len(sequences))
    return [sequences[i] for i in order[: 2 * SEQUENCES]]


class Pair(LearnerAndEngines):
    """A learner and an engine that gets its weights one of the two ways."""

    def __init__(self, config: Config, model: str, way: str):
        self.adapters = way == "adapter"
        shape = AdapterShape(config.policy.lora_rank, config.policy.lora_alpha) if self.adapters else None
        super().__init__(config, model, shape)
        served, reason = self.rollouts.fleet.call_all("serves_adapters")[0]
        if self.adapters and not served:
            raise SystemExit(f"this engine serves no adapters: {reason}")

    def sync(self) -> dict[str, float]:
        self.version += 1
        started = time.perf_counter()
        weights = self.learner.publish(adapters=self.adapters)
        published = time.perf_counter()
        self.rollouts.load_weights(weights, self.version)
        return {"publish_s": published - started, "sync_s": self.rollouts.sync_phases_s[0]["total"]}

    def scores(self, sequences: list[TrainingSequence]) -> tuple[np.ndarray, np.ndarray]:
        """Return log-probabilities under the engine and under the learner, [tokens] each."""
        pairs = [(sequence.prompt_token_ids, sequence.completion_token_ids) for sequence in sequences]
        theirs = np.concatenate(self.rollouts.score(pairs))
        return theirs, np.concatenate(self.learner.score(sequences))

    def tokens_per_s(self, sequences: list[TrainingSequence], completions: int, max_tokens: int) -> float:
        """Return the tokens generated a second, median of three rounds after one that warms up."""
        prompts = [sequence.prompt_token_ids for sequence in sequences]
        rounds = [
            generate(self.rollouts, f"{self.version}/{seed}", prompts, completions, max_tokens, seed)
            for seed in range(4)
        ]
        return statistics.median(tokens / seconds for tokens, seconds in rounds[1:])


def follow(
    pair: Pair, rate: float, steps: int, trained: list, held_out: list, beginning: Path
) -> list[dict[str, float]]:
    """Return one row per step; the learner starts from `beginning`."""
    pair.learner.load(beginning)
    pair.sync()
    pair.learner.start_stage(rate)
    engine_before, learner_before = pair.scores(held_out)
    rows = []
    for step in range(1, steps + 1):
        loss = pair.learner.train_sft(trained, SEQUENCES)["loss"]
        seconds = pair.sync()
        engine, learner = pair.scores(held_out)
        gap = np.abs(engine - learner)
        engine_change, learner_change = engine - engine_before, learner - learner_before
        power = float((learner_change**2).mean())
        slope = float((engine_change * learner_change).mean() / max(power, 1e-12))
        rest = float(((engine_change - slope * learner_change) ** 2).mean() / max(power, 1e-12)) ** 0.5
        rows.append(
            {
                "step": step,
                "loss": loss,
                "gap_mean": float(gap.mean()),
                "gap_max": float(gap.max()),
                "change_mean": float(np.abs(learner_change).mean()),
                "followed": slope,
                "unfollowed": rest,
                **seconds,
            }
        )
    return rows


def show(console: Console, results: list[dict[str, Any]]) -> None:
    table = Table("way", "learning rate", "step", "gap, mean", "change, mean", "followed", "unfollowed", "sync, s")
    for result in results:
        for row in result["steps"]:
            figures = [f"{row[key]:.3g}" for key in ("gap_mean", "change_mean", "followed", "unfollowed", "sync_s")]
            table.add_row(result["way"], f"{result['learning_rate']:g}", str(row["step"]), *figures)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a Hugging Face folder; else the configured policy from scratch, in bfloat16")
    parser.add_argument("--rates", nargs="+", type=float, default=[1e-5, 1e-4])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--n", type=int, default=8, help="completions of each prompt where generation is timed")
    parser.add_argument("--max-tokens", type=int, default=128, help="of each of those")
    parser.add_argument("--out", type=Path, default=new_result("adapter-sync"))
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    arguments = parse_with_settings(parser)

    config, console = load_config(arguments.overrides), Console()
    config.policy.kind, config.policy.dtype, config.rollout.dtype = "huggingface", "bfloat16", "bfloat16"
    config.policy.lora_rank, config.learner.optimizer = arguments.rank, "adamw"
    results, figures = [], {}
    with tempfile.TemporaryDirectory(prefix="cudal1-adapter-sync-") as folder:
        model = arguments.model or str(Path(folder) / "model")
        if not arguments.model:
            write_configured_policy(config, Path(model), "--model")
        sequences = sequences_of(config, model)
        trained, held_out = sequences[:SEQUENCES], sequences[SEQUENCES:]
        for way in WAYS:
            pair = Pair(config, model, way)
            beginning = Path(folder) / f"beginning-{way}"
            pair.learner.save(beginning)
            for rate in arguments.rates:
                rows = follow(pair, rate, arguments.steps, trained, held_out, beginning)
                results.append({"way": way, "learning_rate": rate, "steps": rows})
                console.print(f"{way}, {rate:g}: gap {rows[-1]['gap_mean']:.3g}, followed {rows[-1]['followed']:.3f}")
            speed = pair.tokens_per_s(held_out, arguments.n, arguments.max_tokens)
            figures[way] = {"start_s": pair.start_s, "tokens_per_s": speed}
            console.print(f"{way}: up in {pair.start_s:.0f} s, {speed:,.0f} tokens/s", highlight=False)
            pair.stop()
            configuration = vars(arguments) | {"alpha": config.policy.lora_alpha}
            write_result(arguments.out, {"engines": figures, "results": results}, configuration)
    show(console, results)
    console.print(f"written: {arguments.out}")


if __name__ == "__main__":
    run_command(main)
