"""DeepSpeed: its configuration from ours, the process group, and an engine around a policy. Imports it on first use."""

from __future__ import annotations

import contextlib
import datetime
import io
import logging
import math
import os
import warnings
from typing import TYPE_CHECKING, Any

from cudal1_ray.learning.config import LearnerConfig
from cudal1_ray.learning.optimisers import build_optimiser
from cudal1_ray.uncollected import uncollected

if TYPE_CHECKING:
    import torch


def choose_device(config: LearnerConfig) -> str:
    """Return cuda or cpu, as configured; for "auto" cuda where there is one."""
    import torch

    if config.device != "auto":
        return config.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def deepspeed_config(config: LearnerConfig, bfloat16: bool, device: str = "cpu") -> dict[str, Any]:
    """Return the dictionary that `deepspeed.initialize` takes, for weights in bfloat16 or in fp32.

    Micro-batches vary in size and number, so DeepSpeed is configured for one sequence a step; losses arrive with their
    denominator, and the learner marks which backward pass is the last of a step.
    """
    zero: dict[str, Any] = {"stage": config.zero_stage}
    if config.zero_stage:
        zero |= {"overlap_comm": False, "contiguous_gradients": True}
    if config.zero_stage == 3:
        zero |= {"stage3_gather_16bit_weights_on_model_save": False, "overlap_comm": device == "cuda"}
    for name, key in (("offload_optimizer", "offload_optimizer"), ("offload_parameters", "offload_param")):
        if (where := getattr(config, name)) != "none":
            zero[key] = {"device": where, "pin_memory": False}
            if where == "nvme":
                zero[key]["nvme_path"] = config.nvme_path
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # In fp32 without ZeRO the learner clips itself: DeepSpeed would not return the norm.
        "gradient_clipping": config.max_grad_norm if config.zero_stage or bfloat16 else 0.0,
        "zero_optimization": zero,
        "bf16": {"enabled": bfloat16},
        # torch's own AdamW instead of an extension that would be compiled for minutes at the start.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": None,
        "wall_clock_breakdown": False,
    }
    if bfloat16 and config.zero_stage:
        # Gradients of many micro-batches are added in fp32: in bfloat16 the later ones would drown.
        settings["data_types"] = {"grad_accum_dtype": "fp32"}
    return settings


def start_process_group(
    device: str, rank: int, world_size: int, rendezvous: tuple[str, int] | None, timeout_s: float
) -> None:
    """Join the other ranks, once per process. Every rank has a process, and on CUDA a device, of its own.

    Args:
        rendezvous: host and free port of rank 0; not needed when there is one rank.
    """
    os.environ["DS_ACCELERATOR"] = device  # before the first import: DeepSpeed decides then
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # DeepSpeed calls collectives by names that torch is about to change; nothing a reader could do about.
    warnings.filterwarnings("ignore", message=r"`torch\.distributed\.\w+` is deprecated", category=FutureWarning)
    import torch

    with _Quiet(), uncollected():
        import deepspeed
        import deepspeed.ops

    # A shared-memory all-reduce for CPUs, compiled for half a minute at every start; gloo does the same.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    distributed = torch.distributed
    if not distributed.is_initialized():
        # Of a group that another library ended, as vLLM does at its own end, DeepSpeed would keep parts.
        deepspeed.utils.groups._release_process_group_references()
        timeout = datetime.timedelta(seconds=timeout_s)
        if world_size == 1:
            store: torch.distributed.Store = distributed.HashStore()
        else:
            if rendezvous is None:
                raise ValueError(f"{world_size} ranks need a rendezvous: host and port of rank 0")
            store = distributed.TCPStore(*rendezvous, world_size, is_master=rank == 0, timeout=timeout)
        backend = "nccl" if device == "cuda" else "gloo"
        distributed.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timeout)
    elif (distributed.get_rank(), distributed.get_world_size()) != (rank, world_size):
        raise ValueError(f"this process is rank {distributed.get_rank()} of {distributed.get_world_size()} already")
    os.environ["LOCAL_RANK"] = "0"  # DeepSpeed insists on it; an actor sees its own device only
    with _Quiet():
        deepspeed.init_distributed(dist_backend=distributed.get_backend(), auto_mpi_discovery=False, verbose=False)


def start_engine(module: torch.nn.Module, config: LearnerConfig, settings: dict[str, Any], device: str) -> Any:
    """Start a DeepSpeed engine with the configured optimiser on the module's trainable parameters."""
    import deepspeed

    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    on_cpu = device == "cpu" or config.offload_optimizer != "none"
    optimizer = build_optimiser(named, config, fused=not on_cpu or config.zero_stage == 0)
    with _Quiet(), contextlib.redirect_stdout(io.StringIO()):  # one of its optimisers prints how much memory is used
        engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=settings, dist_init_required=False)
    return engine


def clip_gradients(engine: Any, config: LearnerConfig) -> float | None:
    """Clip the gradients, already summed over ranks, in fp32 without ZeRO, and return their norm before.

    It is None elsewhere, where DeepSpeed clips in its step.
    """
    import torch

    optimizer = engine.optimizer
    if config.zero_stage or not hasattr(optimizer, "param_groups") or engine.bfloat16_enabled():
        return None
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return float(torch.nn.utils.clip_grad_norm_(parameters, config.max_grad_norm or math.inf, foreach=True))


def step_if_finite(engine: Any, config: LearnerConfig, learning_rate: float) -> float:
    """Clip, make an optimiser step unless a gradient is not finite, and return the norm before clipping."""
    for group in engine.optimizer.param_groups:
        group["lr"] = learning_rate * group.get("rate_factor", 1.0)
    norm = clip_gradients(engine, config)
    if norm is None or math.isfinite(norm):
        engine.step()
    else:  # without ZeRO nothing else would keep it from the weights
        engine.optimizer.zero_grad()
    if norm is None:  # DeepSpeed makes no step with a gradient that is not finite
        norm = float(engine.get_global_grad_norm() or 0.0)
    return norm


def gather_rows(mine: dict[int, Any], world_size: int) -> dict[int, Any]:
    """Return the rows of all ranks by their numbers, the same on each; `mine` are this rank's."""
    import torch

    if world_size == 1:
        return mine
    shares: list[Any] = [None] * world_size
    torch.distributed.all_gather_object(shares, mine)
    return {index: row for share in shares for index, row in share.items()}


class _Quiet:
    """DeepSpeed's logger sets its own level when imported, and writes to stdout: kept to errors meanwhile and after."""

    def __enter__(self) -> None:
        self._before = logging.root.manager.disable
        logging.disable(logging.WARNING)

    def __exit__(self, *_: object) -> None:
        logging.disable(self._before)
        logger = logging.getLogger("DeepSpeed")
        logger.setLevel(logging.ERROR)
        for handler in logger.handlers:
            handler.setLevel(logging.ERROR)
