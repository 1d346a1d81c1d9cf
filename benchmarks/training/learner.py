#!/usr/bin/env python3
r"""How fast the learner trains: MFU and tokens/s, in turn with a padded Transformers loop on the same sequences.

The learner is used directly: neither Ray nor vLLM is imported. One lap is one optimiser step on one batch; both sides
take the same batches by turns, after laps that are not counted. Lengths are drawn evenly from 256 to `--max-length`
tokens ("mixed"), or all are the longest ("full"); the first 256 of each, at most a half, are its prompt.

MFU: floating-point operations that the model needs for the tokens given, over the device's peak in dense bfloat16:
    6 x weights of the blocks x tokens                 forward and backward of all matrix products in the blocks
  + 6 x hidden size x vocabulary x completion tokens   of the output matrix, only where a completion token follows
  + 6 x layers x heads x head size x sum of length^2   of causal attention: half of the square, within each sequence

With all tokens trained on, that is the usual 6N and attention term; where adapters train alone, it is 4 instead of 6
for weights that stand still. Padding, what is computed twice to save memory, softmaxes and the optimiser count as time,
not as operations.

On the CPU, in a minute or two of an idle machine:
    python -m benchmarks.training.learner

On one H200 (torch, transformers, triton and deepspeed's wheels suffice; from the root of the repository, with SITE the
folder that deepspeed was unpacked to), the goals are MFU >= 40% and 1.3 times the loop's tokens/s:
    export PYTHONPATH=$PWD:$SITE HF_HUB_OFFLINE=1
    python -m benchmarks.training.learner --shape qwen2.5-coder-1.5b --out learner-1.5b.json
    python -m benchmarks.training.learner --shape qwen2.5-coder-1.5b --set compile=true --out learner-1.5b-compiled.json
    python -m benchmarks.training.learner --shape qwen2.5-coder-1.5b --policy PATH --out FILE   # other weights

On two (each rank takes the GPU of its number; the loop, which knows one GPU only, is left out):
    python -m torch.distributed.run --nproc-per-node 2 -m benchmarks.training.learner --shape qwen2.5-coder-7b \
        --checkpointing --out learner-7b.json
    $SITE/bin/deepspeed --num_gpus 2 --module benchmarks.training.learner ...    # by deepspeed's launcher
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from benchmarks.common.command_line import run_command
from benchmarks.common.policy_shapes import SHAPES, write_random_policy
from benchmarks.common.results import new_result, write_result

ROOT = Path(__file__).resolve().parents[2]
# Dense bfloat16, TFLOP/s, from the makers' data sheets; the first name found in the device's counts.
PEAK_TFLOPS = {
    "B200": 2250.0,
    "GH200": 989.0,
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100": 989.0,
    "H20": 148.0,
    "A100": 312.0,
    "L40S": 362.0,
    "L40": 181.0,
    "RTX 3090": 71.0,
}
GOAL_MFU, GOAL_RATIO = 0.40, 1.3
PROMPT_TOKENS = 256


def join_ranks(timeout_s: float) -> tuple[int, int]:
    """Join the ranks that torchrun or deepspeed started, each on its own GPU; return this rank and their number."""
    import torch

    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        local = int(os.environ["LOCAL_RANK"])
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu_of(local, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        torch.distributed.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout_s))
    return rank, world_size


def gpu_of(local: int, visible: str) -> str:
    """Return the GPU of that number among those in sight; without CUDA_VISIBLE_DEVICES all are."""
    named = [gpu for gpu in visible.split(",") if gpu]
    return named[local] if len(named) > local else str(local)


def draw_batches(kind: str, count: int, sequences: int, longest: int, vocabulary: int) -> list[list[Any]]:
    """Draw random tokens, the same on every rank: `count` batches of `sequences` sequences."""
    import numpy as np

    from cudal1_ray.learning import TrainingSequence

    generator, batches = np.random.default_rng(0), []
    for _ in range(count):
        lengths = generator.integers(PROMPT_TOKENS, longest, sequences, endpoint=True) if kind == "mixed" else None
        batch = []
        for length in [longest] * sequences if lengths is None else lengths.tolist():
            tokens, prompt = tuple(generator.integers(3, vocabulary, length).tolist()), min(PROMPT_TOKENS, length // 2)
            batch.append(TrainingSequence(tokens[:prompt], tokens[prompt:]))
        batches.append(batch)
    return batches


def operations(model_config: Any, body_weights: int, frozen: bool, sequences: Sequence[Any]) -> float:
    """Return the operations of one optimiser step, as the formula above counts them."""
    head_size = getattr(model_config, "head_dim", None) or model_config.hidden_size // model_config.num_attention_heads
    tokens, trained = sum(map(len, sequences)), sum(len(sequence.completion_token_ids) for sequence in sequences)
    squares = sum(len(sequence) ** 2 for sequence in sequences)
    attention = model_config.num_hidden_layers * model_config.num_attention_heads * head_size * squares
    head = model_config.hidden_size * model_config.vocab_size * trained
    return (4.0 if frozen else 6.0) * (body_weights * tokens + head) + 6.0 * attention


def body_weights(model: Any) -> int:
    """Return the number of weights in all matrices except embedding and output, whole where ZeRO-3 splits them."""
    outside = ("embed_tokens", "lm_head")
    whole = [(name, getattr(weight, "ds_shape", weight.shape)) for name, weight in model.named_parameters()]
    return sum(shape.numel() for name, shape in whole if len(shape) == 2 and not any(part in name for part in outside))


def build_learner(arguments: argparse.Namespace, folder: str, rank: int, world_size: int, cuda: bool) -> Any:
    from cudal1_ray.learning import Learner, LearnerConfig, PolicyConfig

    preset = arguments.learner or ("zero3" if world_size > 1 else "one_gpu" if cuda else "cpu")
    fields = yaml.safe_load((ROOT / "conf" / "learner" / f"{preset}.yaml").read_text())
    # The same optimiser and rows on both sides of the comparison, whatever the CPU's preset sets.
    overrides = {} if cuda else {"packing": True, "optimizer": "adamw", "zero_stage": 3 if world_size > 1 else 0}
    overrides |= {key: yaml.safe_load(value) for key, value in (pair.split("=", 1) for pair in arguments.set)}
    policy = PolicyConfig(
        kind="huggingface",
        path=folder,
        dtype="bfloat16" if cuda else "float32",
        attention=arguments.attention,
        gradient_checkpointing=arguments.checkpointing,
        lora_rank=arguments.lora_rank,
    )
    policy.validate()
    config = LearnerConfig(**{**fields, "device": "cuda" if cuda else "cpu", **overrides})
    learner = Learner(config, policy, folder, rank=rank, world_size=world_size)
    learner.start_stage(1e-5)
    return learner


class Stopwatch:
    """Laps of several sides, with what the GPU's memory reached in each."""

    def __init__(self, cuda: bool):
        self._cuda = cuda
        self.laps_s: dict[str, list[float]] = {}
        self.losses: dict[str, list[float]] = {}
        self.peak_gib: dict[str, float] = {}

    def lap(self, side: str, step: Callable[[], float], counts: bool) -> None:
        import torch

        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        started = time.perf_counter()
        loss = step()
        if self._cuda:
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() / 2**30
            self.peak_gib[side] = max(peak, self.peak_gib.get(side, 0.0))
        if counts:
            self.laps_s.setdefault(side, []).append(time.perf_counter() - started)
            self.losses.setdefault(side, []).append(loss)


def measure(arguments: argparse.Namespace, kind: str, learner: Any, loop: Any, peak: float | None) -> dict[str, Any]:
    """Measure all laps over one kind of lengths and return a row per side."""
    laps, config = arguments.laps, learner.model.config
    vocabulary = min(config.vocab_size, 100_000)
    batches = draw_batches(kind, arguments.warm_up + laps, arguments.sequences, arguments.max_length, vocabulary)
    watch, weights = Stopwatch(learner.device.type == "cuda"), body_weights(learner.model)
    frozen = arguments.lora_rank > 0
    if loop is not None:  # how many rows fit is found out with the longest, before anything is measured
        loop.step(draw_batches("full", 1, loop.rows, arguments.max_length, vocabulary)[0])
    for number, batch in enumerate(batches):
        counts = number >= arguments.warm_up
        watch.lap("learner", lambda batch=batch: learner.train_sft(batch)["loss"], counts)
        if loop is not None:
            watch.lap("padded loop", lambda batch=batch: loop.step(batch), counts)
        if learner.rank == 0:
            print(f"{kind}: lap {number - arguments.warm_up + 1} of {laps}", flush=True)
    counted = batches[arguments.warm_up :]
    rows = {}
    for side, seconds in watch.laps_s.items():
        speeds = [sum(map(len, batch)) / lap_s for batch, lap_s in zip(counted, seconds, strict=True)]
        work = [
            operations(config, weights, frozen, batch) / lap_s for batch, lap_s in zip(counted, seconds, strict=True)
        ]
        flops = statistics.median(work) / learner.world_size
        rows[side] = {
            "tokens_per_s": statistics.median(speeds),
            "tflops_per_device": flops / 1e12,
            "mfu": flops / peak if peak else None,
            "laps_s": seconds,
            "losses": watch.losses[side],
            "peak_memory_gib": watch.peak_gib.get(side),
        }
    result = {"lengths": kind, "tokens_per_batch": sum(map(len, counted[0])), "sides": rows}
    if loop is not None:
        pairs = zip(watch.laps_s["learner"], watch.laps_s["padded loop"], strict=True)
        result |= {"ratio": statistics.median(theirs / ours for ours, theirs in pairs), "loop_rows": loop.rows}
    return result


def show(results: list[dict[str, Any]], title: str) -> None:
    print(f"\n{title}")
    print(f"{'lengths':8} {'side':12} {'tokens/s':>10} {'TFLOP/s a device':>17} {'MFU':>7} {'peak GiB':>9}")
    for result in results:
        for side, row in result["sides"].items():
            mfu = "" if row["mfu"] is None else f"{row['mfu']:.1%}"
            peak = "" if row["peak_memory_gib"] is None else f"{row['peak_memory_gib']:.1f}"
            speeds = f"{row['tokens_per_s']:10,.0f} {row['tflops_per_device']:17.3g}"
            print(f"{result['lengths']:8} {side:12} {speeds} {mfu:>7} {peak:>9}")
        ours = result["sides"]["learner"]
        if "ratio" in result:
            met = "met" if result["ratio"] >= GOAL_RATIO else "NOT met"
            goal = f"; goal {GOAL_RATIO}: {met}" if result["lengths"] == "mixed" else ""  # nothing is padded otherwise
            print(f"  {result['ratio']:.2f} times the padded loop, of {result['loop_rows']} rows{goal}")
        if ours["mfu"] is not None:
            met = "met" if ours["mfu"] >= GOAL_MFU else "NOT met"
            print(f"  MFU {ours['mfu']:.1%}; goal {GOAL_MFU:.0%}: {met}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(SHAPES), help="randomly initialised; default: 1.5b, or tiny on CPU")
    parser.add_argument("--policy", help="a Hugging Face folder instead")
    parser.add_argument("--learner", help="preset in conf/learner; default: one_gpu, zero3 for several ranks, or cpu")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="learner settings over the preset's")
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--checkpointing", action="store_true", help="recompute activations, on both sides")
    parser.add_argument("--lora-rank", type=int, default=0, help="of the learner; the loop trains all weights")
    parser.add_argument("--lengths", nargs="+", choices=("mixed", "full"), default=["mixed", "full"])
    parser.add_argument("--max-length", type=int, help="default: 4096, or 1024 on CPU")
    parser.add_argument("--sequences", type=int, help="of a batch; default: 64, or 8 on CPU")
    parser.add_argument("--laps", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--rows", type=int, default=8, help="sequences of the loop's micro-batch, as memory allows")
    parser.add_argument("--no-loop", action="store_true", help="the learner alone")
    parser.add_argument("--peak-tflops", type=float, help="of a device that the table here does not know")
    parser.add_argument("--profile", type=Path, help="write where the GPU's time goes in one more lap of the learner")
    parser.add_argument("--out", type=Path, default=new_result("learner"))
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # deepspeed's launcher gives it
    return parser.parse_args()


def profile(learner: Any, batch: list[Any], path: Path) -> None:
    import torch

    with torch.profiler.profile() as profiler:
        learner.train_sft(batch)
    order = "self_device_time_total" if learner.device.type == "cuda" else "self_cpu_time_total"
    path.write_text(profiler.key_averages().table(sort_by=order, row_limit=60, max_name_column_width=90))


def main() -> None:
    arguments = parse()
    rank, world_size = join_ranks(timeout_s=1800)
    import torch

    cuda = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if cuda else "cpu"
    peak = arguments.peak_tflops or next((value for name, value in PEAK_TFLOPS.items() if name in device), None)
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if cuda else "cpu")  # deepspeed decides when it is imported
    arguments.shape = arguments.shape or ("qwen2.5-coder-1.5b" if cuda else "tiny")
    arguments.max_length = arguments.max_length or (4096 if cuda else 1024)
    arguments.sequences = arguments.sequences or (64 if cuda else 8)
    with ExitStack() as stack:
        folder = [arguments.policy]
        if not arguments.policy and rank == 0:
            folder = [stack.enter_context(tempfile.TemporaryDirectory(prefix="cudal1-learner-"))]
            dtype = "bfloat16" if cuda else "float32"
            write_random_policy(Path(folder[0]), arguments.shape, dtype, "cuda" if cuda else "cpu")
        if world_size > 1:
            torch.distributed.broadcast_object_list(folder)
        learner = build_learner(arguments, folder[0], rank, world_size, cuda)
        loop = None
        if world_size == 1 and not arguments.no_loop:
            from benchmarks.training.naive_training import NaiveLoop

            autocast = learner.config.autocast
            loop = NaiveLoop(
                folder[0],
                "bfloat16" if cuda else "float32",
                "cuda" if cuda else "cpu",
                arguments.rows,
                autocast,
                arguments.checkpointing,
            )
        if rank == 0:
            print(f"the learner: {', '.join(learner.describe().values())}", flush=True)
        results = [measure(arguments, kind, learner, loop, peak * 1e12 if peak else None) for kind in arguments.lengths]
        if arguments.profile:
            batch = draw_batches(arguments.lengths[0], 1, arguments.sequences, arguments.max_length, 1000)[0]
            profile(learner, batch, arguments.profile.with_suffix(f".{rank}.txt"))
        if world_size > 1:
            torch.distributed.barrier()  # the folder is rank 0's
    if rank == 0:
        what = arguments.policy or f"{arguments.shape}, random weights"
        show(results, f"{what}; {world_size} x {device}; medians of {arguments.laps} laps")
        configuration = vars(arguments) | {
            "device": device,
            "ranks": world_size,
            "peak_tflops": peak,
            "mfu_formula": "6 (block weights x tokens + hidden x vocabulary x completion tokens"
            " + layers x heads x head size x sum of length^2) / (s x ranks x peak)",
            "how": learner.describe(),
            "learner": vars(learner.config),
        }
        write_result(arguments.out, {"results": results}, configuration)
        print(f"written: {arguments.out}")


if __name__ == "__main__":
    run_command(main)
