"""Split KernelBench's levels 1 to 3 into training and held-out problems, near twins on one side.

    python scripts/kernelbench_split.py KERNELBENCH.parquet [--out cudal1_ray/problems/splits/kernelbench.json]

Two problems are near twins when a kernel for one is a kernel for the other after a few lines are changed. They form a
cluster, and a whole cluster is either trained on or held out:

- level 1: problems of one operator kind (`LEVEL_1`: all pointwise functions, all scans, dense 2D convolutions, ...);
- level 2: problems whose `Model` has the same set of operators (`operators`), where dimensionalities (Conv2d, Conv3d),
  the choice of pointwise function and reshaping do not count;
- level 3: networks of one architecture (`LEVEL_3`).

Which clusters are held out is drawn by a fixed seed, level by level. No more than half of a kind's problems are held
out, so that training keeps problems of every kind.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from cudal1_ray.problems.kernelbench import load_parquet
from cudal1_ray.problems.problem import Problem
from cudal1_ray.source.nodes import class_named
from cudal1_ray.source.parsing import PROBLEM, parse

SEED = 0
LEVELS = (1, 2, 3)

# Held-out problems wanted per level, about a quarter: 62 of 250.
HELD_OUT_PROBLEMS = {1: 22, 2: 26, 3: 14}

# Level 1: kind -> clusters of problem ids (KernelBench v0.1). The numbers are KernelBench's own.
LEVEL_1 = {
    "pointwise": [[5, 19, 20, 21, 22, 25, 26, 27, 28, 29, 30, 31, 32, 88], [12]],
    "softmax": [[23, 24]],
    "norm": [[33], [34, 35], [36], [37], [38, 39], [40]],
    "pooling": [[41, 42, 43], [44, 45, 46]],
    "reduction": [[47, 48, 49, 53], [51, 52]],
    "scan": [[89, 90, 91, 92, 93]],
    "loss": [[94, 96, 100], [95], [98], [99]],
    "matmul": [[1, 2, 6, 7, 8, 9, 13, 16, 17, 18], [3, 10, 11], [4], [14, 15], [97]],
    "convolution": [
        [67, 76],
        [50, 55, 56, 62, 63, 80],
        [54, 59, 60, 66],
        [64, 74, 79],
        [57, 65, 69, 71, 75, 78, 81],
        [58, 61, 68, 70, 72, 73, 77],
        [82, 83, 84, 85],
        [86, 87],
    ],
}

# Level 3: kind -> clusters of problem ids, by architecture.
LEVEL_3 = {
    "mlp": [[1, 2, 3]],
    "cnn": [
        [4, 5],
        [6, 7],
        [8, 9, 10],
        [11, 12],
        [13, 14, 15, 16],
        [17, 18],
        [19, 20, 21, 22, 23, 24],
        [25, 26],
        [27],
        [45],
    ],
    "attention": [[28], [29, 30], [31, 32], [43, 44, 50]],
    "recurrent": [[33, 34], [35, 36, 37, 38], [39, 40, 41, 42]],
    "other": [[46, 47], [48, 49]],
}

# What the names of operators become before two sets of them are compared; "" is left out.
SYNONYMS = dict.fromkeys(
    """relu leakyrelu sigmoid tanh gelu mish swish silu hardswish hardtanh clamp softplus add sub mul div multiply
    hardsigmoid elu selu softsign dropout""".split(),
    "pointwise",
) | dict.fromkeys("view squeeze unsqueeze flatten clone detach tensor reshape contiguous size".split(), "")
SYNONYMS |= {"linear": "matmul", "mm": "matmul", "bmm": "matmul", "gemm": "matmul", "adaptiveavgpool": "avgpool"}
BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.MatMult: "matmul"}


def operators(source: str) -> frozenset[str]:
    """Return the normalised operators of `Model.forward`: layers by class, functions and methods by name."""
    model = class_named(parse(source, PROBLEM), "Model")
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    layers = {
        _dotted(node.targets[0]): _dotted(node.value.func).rpartition(".")[2]
        for node in ast.walk(methods["__init__"])
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    }
    names = set()
    for node in ast.walk(methods["forward"]):
        if isinstance(node, ast.Call):
            name = _dotted(node.func)
            names.add(_normalised(layers.get(name, name.rpartition(".")[2])))
        elif isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            names.add(_normalised(BINARY[type(node.op)]))
    return frozenset(names - {""})


def clusters_of(problems: list[Problem]) -> dict[int, dict[str, list[list[int]]]]:
    """Return clusters of near twins, as KernelBench's numbers: level -> kind -> clusters.

    Raises ValueError when a problem of level 1 or 3 is in no cluster, or a cluster names a missing problem.
    """
    numbered = defaultdict(dict)
    for problem in problems:
        numbered[problem.level][int(problem.problem_id.rpartition("p")[2])] = problem
    by_level = {1: LEVEL_1, 2: _level_2(numbered[2]), 3: LEVEL_3}
    for level, kinds in by_level.items():
        listed = sorted(number for clusters in kinds.values() for cluster in clusters for number in cluster)
        if listed != sorted(numbered[level]):
            odd = sorted(set(listed) ^ set(numbered[level])) or listed
            raise ValueError(f"level {level}: clusters and table differ in problems {odd}")
    return by_level


def draw(clusters: dict[int, dict[str, list[list[int]]]], seed: int = SEED) -> dict[int, list[int]]:
    """Return the numbers that are held out of each level, drawn cluster by cluster with NumPy's default generator."""
    rng = np.random.default_rng(seed)
    held_out = {}
    for level in LEVELS:
        kinds = clusters[level]
        sizes = {kind: sum(map(len, members)) for kind, members in kinds.items()}
        pool = sorted((cluster, kind) for kind, members in kinds.items() for cluster in members)
        drawn, of_kind = [], defaultdict(int)
        for index in rng.permutation(len(pool)):
            cluster, kind = pool[index]
            fits = len(drawn) + len(cluster) <= HELD_OUT_PROBLEMS[level]
            if fits and 2 * (of_kind[kind] + len(cluster)) <= sizes[kind]:
                drawn += cluster
                of_kind[kind] += len(cluster)
        held_out[level] = sorted(drawn)
    return held_out


def split_of(problems: list[Problem], seed: int = SEED) -> dict:
    """Return the split as it is written: the numbers of both sides by level, and the clusters they were drawn from."""
    clusters = clusters_of(problems)
    held_out = draw(clusters, seed)
    levels = {}
    for level in LEVELS:
        every = sorted(number for members in clusters[level].values() for cluster in members for number in cluster)
        levels[str(level)] = {
            "train": [number for number in every if number not in held_out[level]],
            "held_out": held_out[level],
            "clusters": {kind: sorted(members) for kind, members in clusters[level].items()},
        }
    return {"data": "KernelBench v0.1", "seed": seed, "levels": levels}


def as_text(split: dict) -> str:
    """Return JSON with one line per list of numbers."""
    text = json.dumps(split, indent=1)
    return re.sub(r"\[[\s\d,\[\]]+\]", lambda match: " ".join(match.group().split()), text) + "\n"


def _level_2(problems: dict[int, Problem]) -> dict[str, list[list[int]]]:
    same = defaultdict(list)
    for number in sorted(problems):
        same[operators(problems[number].source)].append(number)
    kinds = defaultdict(list)
    for names, numbers in same.items():
        kinds[next(kind for kind in ("convtranspose", "conv", "matmul") if kind in names)].append(numbers)
    return dict(sorted(kinds.items()))


def _normalised(name: str) -> str:
    name = re.sub(r"[123]d$", "", name.replace("_", "").lower())
    return SYNONYMS.get(name, name)


def _dotted(node: ast.expr) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id if isinstance(node, ast.Name) else ""]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", type=Path, help="KernelBench's Parquet file")
    parser.add_argument("--out", type=Path, default=Path("cudal1_ray/problems/splits/kernelbench.json"))
    arguments = parser.parse_args()
    split = split_of(load_parquet(arguments.table, LEVELS))
    arguments.out.write_text(as_text(split), encoding="utf-8")
    for level, sides in split["levels"].items():
        print(f"level {level}: {len(sides['train'])} to train on, {len(sides['held_out'])} held out")


if __name__ == "__main__":
    main()
