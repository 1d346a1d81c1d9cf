"""The configured device, as this process sees it."""

from __future__ import annotations

import copy
import glob
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.compiling.cache import require_cache_folder
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.opening.folder import problem_folder


def prepared(config: EvaluationConfig | None) -> EvaluationConfig:
    """Return a copy of a configuration (None: the default), validated, and completed by the GPU's architecture.

    Raises:
        UserError: for choices that do not exist, and for a device, a baseline, or a folder of opened problems or of
            compiled extensions that is not available here.
    """
    config = copy.deepcopy(config or EvaluationConfig())
    if not isinstance(config, EvaluationConfig):
        raise UserError(f"config={config!r:.60}: give an EvaluationConfig, as cudal1_ray.evaluation_config() does")
    config.validate()
    require_device(config.device)
    problem_folder(config)
    if config.compile_cache:
        require_cache_folder(config.compile_cache)
    if config.device != "cpu" and not config.cuda_arch_list:
        config.cuda_arch_list = visible_architecture()
    return config


def require_device(device: str) -> None:
    """Raise UserError when `cpu`, `cuda` or `cuda:N` is not available here."""
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(index or 0) >= count:
        devices = "no CUDA device" if not count else "one CUDA device" if count == 1 else f"{count} CUDA devices"
        instead = f"a device below cuda:{count}" if count else "evaluation=cpu, or --device cpu of `cudal1 evaluate`"
        raise UserError(f"evaluation.device={device}: PyTorch sees {devices} here; use {instead}")


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread of this process within the context. OpenMP's other threads would wait at barriers for the
    core that a contestant holds, and on a GPU machine may run on the core that launches. Two threads took 3.5 s for a
    candidate on two busy cores, one took 1.9 s; an idle machine shows no difference.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def device_name(device: str) -> str:
    """Return the name that the manufacturer gives the device `cpu`, `cuda` or `cuda:N`."""
    if device == "cpu":
        return processor_name()
    import torch

    return torch.cuda.get_device_name(device)


@dataclass(frozen=True)
class Machine:
    """The hardware and software that candidates are measured with.

    Attributes:
        device: name of the GPU or the processor, as its manufacturer gives it.
        details: one line with what a kernel's author has to know beyond the name: memory, compute capability and
            multiprocessors (SMs) of a GPU, and the versions of PyTorch, CUDA and Triton.
        on_gpu: whether the device is a GPU.
    """

    device: str
    details: str = ""
    on_gpu: bool = False


def describe_machine(device: str) -> Machine:
    """Return the hardware and software that this process sees for `cpu`, `cuda` or `cuda:N`."""
    import torch

    software = f"PyTorch {torch.__version__.partition('+')[0]}"
    if device == "cpu":
        return Machine(processor_name(), software)
    gpu = torch.cuda.get_device_properties(device)
    details = f"{gpu.total_memory / 2**30:.0f} GiB, compute capability {gpu.major}.{gpu.minor}"
    details += f", {gpu.multi_processor_count} SMs, {software}, CUDA {torch.version.cuda}"
    with suppress(metadata.PackageNotFoundError):
        details += f", Triton {metadata.version('triton')}"
    return Machine(torch.cuda.get_device_name(device), details, on_gpu=True)


def processor_name() -> str:
    """Return the name of this machine's processor, its architecture where there is none."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def visible_architecture() -> str:
    """Return the architecture that nvcc compiles for, as in TORCH_CUDA_ARCH_LIST ("9.0a"); empty without a visible GPU.

    From compute capability 9.0 on, the suffix is needed for that architecture's own instructions.
    """
    import torch

    if not torch.cuda.is_available():
        return ""
    major, minor = torch.cuda.get_device_capability()
    return f"{major}.{minor}{'a' if major >= 9 else ''}"


def gpu_for_contestants(device: str) -> tuple[str, tuple[str, ...]]:
    """Return, for `cuda` or `cuda:N`, the CUDA_VISIBLE_DEVICES with which a process sees this GPU and no other, and the
    device nodes that it has to open for that.
    """
    import torch

    index = int(device.partition(":")[2] or 0)
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if index < len(visible) and visible[index].startswith("MIG-"):  # a MIG slice has its own device nodes
        return visible[index], tuple(sorted(glob.glob("/dev/nvidia*")))
    uuid = str(torch.cuda.get_device_properties(index).uuid)
    return f"GPU-{uuid}", gpu_nodes(uuid)


def gpu_nodes(uuid: str, nodes: str = "/dev", descriptions: str = "/proc/driver/nvidia/gpus") -> tuple[str, ...]:
    """Return the paths in `nodes` of the driver and of the GPU with that UUID, or of all GPUs if none is described so.

    Args:
        descriptions: folder in which the driver describes each GPU.
    """
    every = {int(path.rpartition("nvidia")[2]): path for path in glob.glob(f"{nodes}/nvidia[0-9]*")}
    minors = set(every)
    for path in glob.glob(f"{descriptions}/*/information"):
        with open(path, encoding="utf-8", errors="replace") as lines:
            fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if fields.get("GPU UUID") == f"GPU-{uuid}" and fields.get("Device Minor", "").isdigit():
            minors &= {int(fields["Device Minor"])}
    driver = [f"{nodes}/{name}" for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "dxg")]
    return tuple(path for path in (*(every[minor] for minor in sorted(minors)), *driver) if os.path.exists(path))
