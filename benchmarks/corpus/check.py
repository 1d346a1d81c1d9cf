"""Check the corpus's candidates on a machine without a GPU.

    TRITON=folder-with-triton
    PYTHONPATH=.:$TRITON python -m benchmarks.corpus.check run KERNELBENCH.parquet [pattern ...]
    PYTHONPATH=.:$TRITON python -m benchmarks.corpus.check compile KERNELBENCH.parquet [pattern ...]

`run`: static checks of the evaluator, then each candidate against its reference in double precision at small sizes,
on several distributions and with weights that change between calls: Triton by its interpreter, CUDA by CPU threads.
`compile`: Triton kernels are compiled for Hopper (sm_90), and their size reported; CUDA is compiled by nvcc in both.
Triton is installed by `pip install --no-deps --target $TRITON triton==3.6.0`.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import os
import tempfile
import time
import types
from pathlib import Path
from typing import Any

from benchmarks.common.command_line import run_command
from cudal1_ray.errors import UserError
from cudal1_ray.source.parsing import PROBLEM, parse, parse_expression

# The largest error that a candidate may have, relative to the output's mean magnitude, unless PyTorch's own error in
# single precision is larger than a twentieth of it.
TOLERANCE = 2e-5
TRIALS = 3


def small_source(source: str, values: dict[str, Any]) -> str:
    """Return the problem's source with these constants, hyper-parameters included."""
    tree = parse(source, PROBLEM)
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id in values:
                node.value = parse_expression(repr(values[target.id])).body
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for index, name in enumerate(target.elts):
                    if isinstance(name, ast.Name) and name.id in values:
                        node.value.elts[index] = parse_expression(repr(values[name.id])).body
    return ast.unparse(tree)


def load(source: str, name: str, folder: Path) -> types.ModuleType:
    """Run a source as a module with a file of its own, which Triton needs to read its kernels."""
    path = folder / f"{name.replace('-', '_')}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def randomise(model: Any, generator: Any) -> None:
    """Draw new values for all parameters and buffers; buffers positive, as variances are."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            fan = parameter[0].numel() if parameter.dim() > 1 else 1
            scale = 0.5 if parameter.dim() <= 1 else 1.0 / max(1, fan) ** 0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)


def compare(reference_source: str, candidate_source: str, key: str, folder: Path, once: bool) -> str:
    """Return the errors of each trial: of the candidate and of the reference in single precision.

    With `once` the candidate is only called, which is how its kernels are compiled.

    Raises:
        AssertionError: the candidate's output is wrong.
    """
    import torch

    reference, candidate = load(reference_source, f"reference_{key}", folder), load(candidate_source, key, folder)
    generator = torch.Generator().manual_seed(5)
    torch.manual_seed(1)
    arguments = reference.get_init_inputs()
    single, new = reference.Model(*arguments), candidate.ModelNew(*arguments)
    randomise(single, generator)
    new.load_state_dict(single.state_dict(), strict=True)
    names = [name for name, _ in single.named_parameters()]
    assert names == [name for name, _ in new.named_parameters()], "parameters have other names"
    double = reference.Model(*arguments)  # not a copy: a model may hold functions that are bound to its parts
    double.load_state_dict(single.state_dict())
    double = double.double()
    torch.manual_seed(3)
    example_inputs, notes = reference.get_inputs(), []
    for trial in range(TRIALS):
        torch.manual_seed(10 + trial)
        inputs = [_drawn(value, trial) for value in example_inputs]
        kept = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        with torch.no_grad():
            output = new(*inputs)
            if once:
                return ""
            expected = double(*[_double(value) for value in kept])
            eager = single(*kept)
        for value, before in zip(inputs, kept, strict=True):
            assert not isinstance(value, torch.Tensor) or torch.equal(value, before), "an input was written to"
        assert output.shape == expected.shape, f"shape {tuple(output.shape)} instead of {tuple(expected.shape)}"
        assert output.dtype == eager.dtype, f"type {output.dtype} instead of {eager.dtype}"
        if not output.is_floating_point():
            assert torch.equal(output, eager), "integers differ"
            continue
        finite = expected.isfinite() & eager.isfinite()  # a product of thousands may overflow
        if not finite.all():
            continue
        spread = expected.abs().mean() + 1e-6
        error, own = (((v.double() - expected).abs() / (expected.abs() + spread)).max().item() for v in (output, eager))
        notes.append(f"{error:.0e}/{own:.0e}")
        assert error < max(TOLERANCE, 20 * own), f"trial {trial}: error {error:.2e}, PyTorch's own {own:.2e}"
        for (name, buffer), (_, other) in zip(double.named_buffers(), new.named_buffers(), strict=True):
            assert torch.allclose(buffer.double(), other.double(), rtol=1e-4, atol=1e-5), f"buffer {name} differs"
        randomise(single, generator)
        double.load_state_dict(single.state_dict())
        new.load_state_dict(single.state_dict())
    return " ".join(notes)


def _double(value: Any) -> Any:
    import torch

    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _drawn(value: Any, trial: int) -> Any:
    """Return an input of this trial: uniform, normal, or three times as wide. Scalars and masks stay."""
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return torch.rand_like(value) if trial == 0 else torch.randn_like(value) * (1 if trial == 1 else 3)


def compile_kernels(folder: Path) -> list[tuple[str, Any]]:
    """Make every Triton launch of this process a compilation for sm_90; the list receives (name, compiled kernel)."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction, KernelInterface

    class Hopper:
        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self):
            return 0

        def set_current_device(self, device):
            pass

        def get_current_stream(self, device):
            return 0

        def get_active_torch_device(self):
            return torch.device("cpu")

        def map_python_to_cpp_type(self, kind):
            return kind

    driver.set_active(Hopper())
    compiled: list[tuple[str, Any]] = []

    def launch(self, grid):
        def go(*arguments, **options):
            extents = grid(options) if callable(grid) else grid
            assert all(extent < 65536 for extent in extents[1:]), f"grid {extents}"
            compiled.append((self.__name__, self.run(*arguments, grid=grid, warmup=True, **options)))

        return go

    KernelInterface.__getitem__ = JITFunction.__getitem__ = launch
    return compiled


def require_triton() -> None:
    """Raise UserError where there is no Triton, which a machine without a GPU need not have."""
    if importlib.util.find_spec("triton") is None:
        install = "pip install --no-deps --target $TRITON triton==3.6.0"
        raise UserError(f"triton: not installed; `{install}`, and put $TRITON on PYTHONPATH")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("mode", choices=("run", "compile"))
    parser.add_argument("table", type=Path, help="KernelBench's Parquet file")
    parser.add_argument("patterns", nargs="*", help="check only candidates whose key matches one of these")
    parser.add_argument("--builds", type=Path, default=Path(tempfile.gettempdir()) / "cudal1-corpus-builds")
    arguments = parser.parse_args()
    require_triton()
    if arguments.mode == "run":
        os.environ["TRITON_INTERPRET"] = "1"
    os.environ.setdefault("TRITON_CACHE_DIR", str(arguments.builds / "triton"))

    import torch
    import torch.utils.cpp_extension

    from benchmarks.corpus import emulated
    from benchmarks.corpus.sources import all_sources
    from cudal1_ray.evaluation.screening.static_check import check_static
    from cudal1_ray.problems.kernelbench import load_parquet

    torch.set_num_threads(1)
    emulated.install(arguments.builds / "cuda", runs=arguments.mode == "run")
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(multi_processor_count=4)
    torch.cuda.current_stream = lambda *_: types.SimpleNamespace(cuda_stream=0)
    compiled = compile_kernels(arguments.builds) if arguments.mode == "compile" else []
    problems = {problem.problem_id: problem for problem in load_parquet(arguments.table, (1, 2, 3))}
    small = {}
    failed = count = 0
    for source in all_sources(arguments.patterns):
        count, began = count + 1, time.perf_counter()
        compiled.clear()
        if source.level not in small:
            package = importlib.import_module(f"benchmarks.corpus.level{source.level}")
            small[source.level] = getattr(package, "SMALL", {})
        published = problems[source.problem_id].source
        try:
            finding = check_static(source.draft.code).refusal
            assert finding is None, f"static check: {finding}"
            with tempfile.TemporaryDirectory() as folder:
                problem = small_source(published, small[source.level].get(source.draft.problem, {}))
                once = arguments.mode == "compile"
                note = compare(problem, source.draft.code, source.key, Path(folder), once)
            note += " ".join(f" {name}: {len(kernel.asm['cubin'])} bytes" for name, kernel in compiled)
            print("ok  ", source.key, note, f"{time.perf_counter() - began:.1f} s", flush=True)
        except Exception as error:  # a candidate's code: anything
            failed += 1
            print("FAIL", source.key, f"{type(error).__name__}: {str(error)[:1200]}", flush=True)
    print(f"{count} candidates, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    run_command(main)
