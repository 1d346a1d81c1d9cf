"""One candidate in an interpreter of its own: the way of KernelBench's evaluator, for comparison only.

Five random trials against the reference, then a hundred timed runs of each between events after three warm-ups: what
that evaluator does at its defaults, in the same order. It trusts the candidate; ours does not.

    python -m benchmarks.evaluator.per_candidate_process REFERENCE CANDIDATE cpu|cuda
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from typing import Any

import torch

TRIALS, WARM_UPS, RUNS = 5, 3, 100


def load(path: str, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def milliseconds(model: Any, inputs: list[Any], device: str) -> float:
    """Return the mean time of a run, milliseconds."""
    for _ in range(WARM_UPS):
        model(*inputs)
    times = []
    for _ in range(RUNS):
        if device == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            model(*inputs)
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        else:
            begin = time.perf_counter()
            model(*inputs)
            times.append(1e3 * (time.perf_counter() - begin))
    return statistics.mean(times)


def main(reference_path: str, candidate_path: str, device: str) -> dict[str, Any]:
    def move(values: list[Any]) -> list[Any]:
        return [value.to(device) if isinstance(value, torch.Tensor) else value for value in values]

    reference, candidate = load(reference_path, "reference"), load(candidate_path, "candidate")
    models = []
    for kind in (reference.Model, candidate.ModelNew):
        torch.manual_seed(42)
        init = move(reference.get_init_inputs())
        torch.manual_seed(42)
        models.append(kind(*init).to(device))
    with torch.no_grad():
        for trial in range(TRIALS):
            torch.manual_seed(trial)
            inputs = move(reference.get_inputs())
            expected, output = models[0](*inputs), models[1](*inputs)
            if expected.shape != output.shape or not torch.allclose(expected, output, atol=1e-2, rtol=1e-2):
                return {"wrong": trial}
        inputs = move(reference.get_inputs())
        times = [milliseconds(model, inputs, device) for model in models]
    return {"speedup": times[0] / times[1]}


if __name__ == "__main__":
    try:
        print(json.dumps(main(*sys.argv[1:4])))
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {str(error)[:200]}"}))
