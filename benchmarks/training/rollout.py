#!/usr/bin/env python3
"""What a rollout actor costs: its tokens/s beside those of bare vLLM, on the same prompts in the same run.

Bare vLLM is `LLM.generate` in a plain process: no Ray, no seeds per completion, vLLM's own processes and sampler; the
same model, engine arguments, prompts and n, log-probabilities included. Both stay up and take rounds in turn, the order
turning too, so that whatever else the machine does hits both. The ratio is the mean over rounds of that of neighbours.
`--lanes actor bare bare_one_process` adds vLLM with its core in the caller's process, as ours has it. Ctrl-C or SIGTERM
ends it with the rounds that are done.

On a CPU, with a policy made here (1.5 M parameters, random weights):

    python -m benchmarks.training.rollout

On GPUs, with a real policy. Two GPUs give each side one; on a single one both share it, so each gets a part of its
memory (both rest while the other works):

    python -m benchmarks.training.rollout --policy PATH --prompts 32 --n 8 --max-tokens 1024 --rounds 8 \
        --out FILE.json recipe=kernelbench_four_gpus rollout.max_model_len=4096
    python -m benchmarks.training.rollout --policy PATH --prompts 32 --n 8 --max-tokens 1024 --rounds 8 --bare-gpu 0 \
        --out FILE.json recipe=kernelbench_four_gpus rollout.max_model_len=4096 \
        rollout.gpu_memory_utilization=0.4
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from rich.console import Console
from rich.table import Table

from benchmarks.common.command_line import parse_with_settings, run_command
from benchmarks.common.policy_shapes import write_configured_policy
from benchmarks.common.results import new_result, write_result
from cudal1_ray.actors.fleet import Fleet
from cudal1_ray.actors.placement import actor_options, connect
from cudal1_ray.actors.rollout import RolloutFleet
from cudal1_ray.actors.rollout_member import RolloutActor
from cudal1_ray.analysis.statistics import geometric_ratio
from cudal1_ray.config import Config, load_config
from cudal1_ray.learning import encode_prompt, load_tokenizer
from cudal1_ray.problems import load_problems
from cudal1_ray.prompting import PromptBuilder
from cudal1_ray.rollout import GenerationRequest, RolloutConfig, SamplingParameters
from cudal1_ray.rollout.vllm_environment import applied, vllm_environment
from cudal1_ray.training.stopping import Stopper

LANES = ("actor", "bare", "bare_one_process")
START_S = 900.0


def generate(
    rollouts: RolloutFleet, name: str, prompts: list[tuple[int, ...]], completions: int, max_tokens: int, seed: int
) -> tuple[int, float]:
    """Return tokens generated, and seconds from the first request to the last completion in this process.

    Args:
        name: distinguishes the requests from those of other rounds.
    """
    requests = [
        GenerationRequest(f"{name}/{group}/{i}", prompt)
        for group, prompt in enumerate(prompts)
        for i in range(completions)
    ]
    started, tokens = time.perf_counter(), 0
    rollouts.start(requests, SamplingParameters(max_tokens=max_tokens, seed=seed))
    while rollouts.outstanding:
        tokens += sum(len(completion.token_ids) for completion in rollouts.collect())
    return tokens, time.perf_counter() - started


class ActorLane:
    """Our rollout fleet with one engine, asked as the training loop asks it."""

    def __init__(self, config: Config, policy: str):
        connect(config.cluster)
        role = dataclasses.replace(config.cluster.rollout, count=1)

        def start(_: int):
            return ray.remote(RolloutActor).options(**actor_options(role)).remote(config.rollout, policy)

        rollout = config.rollout
        fleet = Fleet("rollout", start, role, max_replacements=0)
        self._rollouts = RolloutFleet(fleet, workers=rollout.tensor_parallel, sleeps=rollout.sleep_mode)
        fleet.wait_until_ready()

    def round(
        self, number: int, prompts: list[tuple[int, ...]], completions: int, max_tokens: int
    ) -> tuple[int, float]:
        """Return the tokens and the seconds of one round, as `generate` does."""
        return generate(self._rollouts, str(number), prompts, completions, max_tokens, number)

    def stop(self) -> None:
        self._rollouts.fleet.stop()


class BareLane:
    """vLLM's own `LLM` in a process of its own, which does nothing else."""

    def __init__(self, config: Config, policy: str, one_process: bool, gpu: int | None):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        settings = vllm_environment(config.rollout) | {"OMP_NUM_THREADS": str(config.cluster.rollout.threads)}
        if not one_process:
            settings["VLLM_ENABLE_V1_MULTIPROCESSING"] = None  # vLLM's own default
        if gpu is not None:
            settings["CUDA_VISIBLE_DEVICES"] = str(gpu)
        # Not a daemon: vLLM has children.
        self._process = context.Process(target=_bare_vllm, args=(theirs, config.rollout, policy))
        with applied(settings):  # from the process's first moment: torch counts its threads when it is imported
            self._process.start()
        self._receive(START_S)

    def round(
        self, number: int, prompts: list[tuple[int, ...]], completions: int, max_tokens: int
    ) -> tuple[int, float]:
        """Return tokens generated, and the seconds that `LLM.generate` took."""
        self._pipe.send((prompts, completions, max_tokens))
        return self._receive(3600.0)

    def stop(self) -> None:
        with contextlib.suppress(OSError):  # an interrupt reaches it too
            self._pipe.send(None)
        self._process.join(60)
        if self._process.is_alive():
            self._process.terminate()

    def _receive(self, timeout_s: float) -> Any:
        if not self._pipe.poll(timeout_s):
            raise SystemExit(f"bare vLLM did not answer within {timeout_s:g} s")
        try:
            return self._pipe.recv()
        except EOFError:
            raise SystemExit("bare vLLM ended; its own message is above") from None


def _bare_vllm(pipe, rollout: RolloutConfig, policy: str) -> None:
    """Build the engine in the other process, then run a round for every request."""
    from vllm import LLM, SamplingParams

    from cudal1_ray.rollout.vllm_arguments import engine_arguments

    engine = LLM(
        **engine_arguments(rollout, policy),
        disable_log_stats=True,
        logprobs_mode="processed_logprobs",
    )
    pipe.send("ready")
    while (work := pipe.recv()) is not None:
        prompts, completions, max_tokens = work
        sampling = SamplingParams(n=completions, temperature=1.0, max_tokens=max_tokens, logprobs=0)
        started = time.perf_counter()
        outputs = engine.generate([{"prompt_token_ids": list(prompt)} for prompt in prompts], sampling, use_tqdm=False)
        seconds = time.perf_counter() - started
        pipe.send((sum(len(completion.token_ids) for output in outputs for completion in output.outputs), seconds))


def prompts_of(config: Config, policy: str, count: int, max_tokens: int) -> list[tuple[int, ...]]:
    """Return one-shot prompts of the configured problems, as many as wanted, over again where there are fewer."""
    tokenizer = load_tokenizer(policy)

    def encode(text: str) -> tuple[int, ...]:
        return encode_prompt(tokenizer, text, chat=config.policy.chat)

    builder = PromptBuilder(config.prompting, lambda text: len(encode(text)))
    room = config.rollout.max_model_len - max_tokens - 1
    prompts = [encode(builder.one_shot(problem).text) for problem in load_problems(config.problems)]
    prompts = [prompt for prompt in prompts if len(prompt) <= room]
    if not prompts:
        raise SystemExit(f"no prompt leaves room for {max_tokens} tokens: raise rollout.max_model_len")
    return [prompts[i % len(prompts)] for i in range(count)]


def compare(rates: dict[str, list[float]], lane: str) -> dict[str, Any]:
    """Return the ratio of the actor's rates to those of another lane, round by round, with a t interval over rounds."""
    ratios = [actor / other for actor, other in zip(rates["actor"], rates[lane], strict=True)]
    ratio, interval = geometric_ratio(ratios)
    return {"ratio": ratio, "interval": interval, "per_round": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", help="a Hugging Face folder; else the configured policy from scratch")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--n", type=int, default=8, help="completions of each prompt")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=8, help="of each side, after one that warms up")
    parser.add_argument("--lanes", nargs="+", choices=LANES, default=["actor", "bare"])
    parser.add_argument("--bare-gpu", type=int, help="GPU of the bare engines, as nvidia-smi counts; else the last one")
    parser.add_argument("--out", type=Path, default=new_result("rollout"))
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    arguments = parse_with_settings(parser)
    if "actor" not in arguments.lanes or len(set(arguments.lanes)) < 2:
        parser.error("--lanes: actor and at least one other")
    console, config = Console(), load_config(arguments.overrides)
    gpu = arguments.bare_gpu
    if config.rollout.device == "cuda" and gpu is None:
        import torch

        visible = [int(device) for device in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if device.isdigit()]
        gpu = (visible or range(torch.cuda.device_count()))[-1]

    with tempfile.TemporaryDirectory(prefix="cudal1-rollout-", ignore_cleanup_errors=True) as folder:
        policy = arguments.policy
        if not policy:
            policy = folder
            write_configured_policy(config, Path(folder), "--policy")
        prompts = prompts_of(config, policy, arguments.prompts, arguments.max_tokens)
        lanes = {
            name: ActorLane(config, policy) if name == "actor" else BareLane(config, policy, name != "bare", gpu)
            for name in arguments.lanes
        }
        rates: dict[str, list[float]] = {name: [] for name in lanes}
        tokens: dict[str, list[int]] = {name: [] for name in lanes}
        Stopper().listen()  # SIGTERM ends the rounds as Ctrl-C does: a background process has no Ctrl-C
        try:
            for number in range(arguments.rounds + 1):
                for name in list(lanes) if number % 2 else reversed(lanes):
                    token_count, seconds = lanes[name].round(number, prompts, arguments.n, arguments.max_tokens)
                    console.print(f"round {number}, {name}: {token_count / seconds:,.0f} tokens/s", highlight=False)
                    if number:  # the first warms up
                        rates[name].append(token_count / seconds)
                        tokens[name].append(token_count)
        except KeyboardInterrupt:  # the rounds that all lanes have done are worth their table
            console.print("interrupted")
        for lane in lanes.values():
            lane.stop()
    complete = min(map(len, rates.values()))
    if not complete:
        raise SystemExit("no round was complete")
    finished = complete == arguments.rounds
    rates, tokens = ({name: row[:complete] for name, row in rows.items()} for rows in (rates, tokens))

    comparisons = {f"actor_over_{name}": compare(rates, name) for name in lanes if name != "actor"}
    table = Table("lane", "tokens/s, median", "tokens a round", title=f"{len(prompts)} prompts, n = {arguments.n}")
    for name in lanes:
        ordered = sorted(rates[name])
        table.add_row(name, f"{ordered[len(ordered) // 2]:,.0f}", f"{sum(tokens[name]) / len(tokens[name]):,.0f}")
    console.print(table)
    for name, comparison in comparisons.items():
        low, high = comparison["interval"] or (math.nan, math.nan)
        line = f"{name.replace('_', ' ')}: {comparison['ratio']:.1%} ({low:.1%} to {high:.1%})"
        console.print(line, highlight=False)
    result = {
        "finished": finished,
        "prompts": len(prompts),
        "prompt_tokens_mean": sum(map(len, prompts)) / len(prompts),
        "tokens_per_s": rates,
        "tokens": tokens,
        **comparisons,
    }
    write_result(arguments.out, result, vars(arguments))
    console.print(f"written: {arguments.out}")


if __name__ == "__main__":
    run_command(main)
