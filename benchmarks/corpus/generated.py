"""Check the candidates of generated problems (`sft.generated_problems`), without a GPU and on one.

    PYTHONPATH=.:$TRITON python -m benchmarks.corpus.generated run [--first 0] [--count 100]
    PYTHONPATH=.:$TRITON python -m benchmarks.corpus.generated compile [--names 'Conv1d|Conv3d']
    python -m benchmarks.corpus.generated emit FOLDER [--count 96]
    cudal1 evaluate --manifest FOLDER/manifest.jsonl --out FOLDER/verdicts.jsonl --device cuda evaluation=cuda_train

`run` and `compile` need no GPU: each candidate beside its reference, in double precision, at small sizes, by Triton's
interpreter; and its kernels compiled for Hopper (sm_90). `--names` takes the draws whose names begin with a pattern.
$TRITON is a folder with Triton, as for `benchmarks.corpus.check`.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.common.command_line import run_command
from benchmarks.corpus.check import compare, compile_kernels, require_triton, small_source
from benchmarks.corpus.emit import write_manifest
from cudal1_ray.evaluation.screening.static_check import check_static
from cudal1_ray.problems import CorpusEntry, Problem
from cudal1_ray.problems.generated import generate

# Sizes at which the interpreter is quick; channels are a multiple of every number of groups.
SMALL = {
    "batch_size": 3, "in_features": 12, "out_features": 32, "input_size": 12, "hidden_size": 32, "in_channels": 4,
    "out_channels": 16, "height": 9, "width": 7, "depth": 5, "length": 23, "dim": 70, "dim1": 13, "dim2": 37,
    "features": 11, "num_groups": 4, "kernel_size": 3, "output_dim": 7000, "embedding_dim": 1500, "num_features": 1500,
    "num_classes": 1500, "channels": 2, "sequence_length": 2100, "M": 70, "N": 90, "K": 50,
}  # fmt: skip


def draws(first: int, count: int) -> Iterator[tuple[Problem, CorpusEntry]]:
    """Yield generated problems with their candidates, each drawn with its number as seed."""
    for number in range(first, first + count):
        yield generate(np.random.default_rng(number), f"generated-{number}")


def small_sizes(problem: Problem) -> dict[str, int]:
    """Return the sizes for a problem; the number of an axis (`dim`) and a pooling's window, to which its padding fits,
    are left as they are.
    """
    own = {"kernel_size"} if "Pool" in problem.name.split("_")[0] else set()
    own |= {"dim"} if "self.dim" in problem.source else set()
    return {name: size for name, size in SMALL.items() if name not in own}


def check(first: int, count: int, names: str, once: bool) -> int:
    """Check candidates by Triton's interpreter, or `once` only compile their kernels; return how many fail.

    Raises:
        UserError: where there is no Triton.
    """
    require_triton()
    if not once:
        os.environ["TRITON_INTERPRET"] = "1"
    compiled = compile_kernels(Path(tempfile.gettempdir())) if once else []
    failed = checked = 0
    for problem, entry in draws(first, count):
        if not re.match(names, problem.name):
            continue
        checked += 1
        compiled.clear()
        try:
            finding = check_static(entry.code).refusal
            assert finding is None, f"static check: {finding}"
            with tempfile.TemporaryDirectory() as folder:
                source = small_source(problem.source, small_sizes(problem))
                compare(source, entry.code, problem.problem_id, Path(folder), once)
            assert compiled or not once, "no kernel was compiled"
        except Exception as error:  # of a candidate's code: anything
            failed += 1
            print(f"FAIL {problem.problem_id} {problem.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    print(f"{checked} candidates, {failed} failed")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("run", "compile", "emit"))
    parser.add_argument("folder", type=Path, nargs="?", help="of the manifest, with emit")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--names", default="", help="a pattern of the beginning of names, with run and compile")
    arguments = parser.parse_args()
    if arguments.mode != "emit":
        return 1 if check(arguments.first, arguments.count, arguments.names, arguments.mode == "compile") else 0
    if arguments.folder is None:
        parser.error("emit: give a folder")
    pairs = draws(arguments.first, arguments.count)
    write_manifest(arguments.folder, ((p.problem_id, p.problem_id, p.source, entry.code) for p, entry in pairs))
    return 0


if __name__ == "__main__":
    run_command(main)
