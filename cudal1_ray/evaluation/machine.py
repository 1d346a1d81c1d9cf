"""What candidates are measured with: the device and the libraries, as the machine that evaluates reports them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

from .hardware import device_name


@dataclass(frozen=True)
class Machine:
    """The device and the libraries of an evaluator.

    Attributes:
        device: name of the GPU or the processor, as its maker has it.
        memory_gib: of the GPU; 0.0 for a CPU.
        compute_capability: of the GPU, such as "9.0"; empty for a CPU.
        multiprocessors: streaming multiprocessors of the GPU; 0 for a CPU.
        software: versions by library: PyTorch, and on a GPU CUDA and, where it is installed, Triton.
    """

    device: str
    memory_gib: float = 0.0
    compute_capability: str = ""
    multiprocessors: int = 0
    software: tuple[tuple[str, str], ...] = ()

    @property
    def details(self) -> str:
        """One line: what a kernel's author has to know beyond the name."""
        hardware = []
        if self.compute_capability:
            hardware = [
                f"{self.memory_gib:.0f} GiB",
                f"compute capability {self.compute_capability}",
                f"{self.multiprocessors} SMs",
            ]
        return ", ".join([*hardware, *(f"{name} {version}" for name, version in self.software)])


def describe_machine(device: str) -> Machine:
    """Returns what this process sees of ``cpu``, ``cuda`` or ``cuda:N`` and of the libraries."""
    import torch

    software = [("PyTorch", torch.__version__.partition("+")[0])]
    if device == "cpu":
        return Machine(device_name(device), software=tuple(software))
    software.append(("CUDA", torch.version.cuda or ""))
    try:
        software.append(("Triton", metadata.version("triton")))
    except metadata.PackageNotFoundError:
        pass
    found = torch.cuda.get_device_properties(device)
    return Machine(
        device_name(device),
        found.total_memory / 2**30,
        f"{found.major}.{found.minor}",
        found.multi_processor_count,
        tuple(software),
    )
