"""Settings of the evaluator, typed. The paper's own figures are named where they differ from the defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.baselines import check_baseline
from cudal1_ray.evaluation.rules import RulesConfig
from cudal1_ray.settings.bounds import bounded, one_of, several_of

_DEVICE = re.compile(r"cpu|cuda(:\d{1,4})?")
# Pairs of batches that each pair of processes takes at least: fewer have no interval (timing/statistics.py).
_FEWEST_PAIRS = 3


@dataclass
class CheckConfig:
    """Correctness: on which inputs, and how near to the higher-precision reference."""

    # Read the syntax tree first and refuse, or flag (`rules.findings`), what it shows. Other checks hold without it.
    static_gate: bool = True
    # Trials on the problem's own inputs, with fresh values each (paper: 1000 (2nd)).
    trials: int = bounded(2, least=1)
    # true: a candidate is asked the trials after the first only if it may be credited with more than 1.0, so not where
    # it runs the reference's own operations (training); false: every accepted candidate has passed all of them.
    lazy: bool = False
    # A problem whose inputs and outputs are larger than this together, MiB, is large: two such trials, the others on a
    # smaller batch, and outputs compared in windows at places that a candidate cannot foresee.
    large_mib: int = 256
    # Windows of 65,536 elements that are compared in a large problem's outputs.
    windows: int = 256
    # Further input distributions, one trial each, except those for which the reference gives no finite output: scaled,
    # shifted (down, or else up), negated, sparse (masks that let everything through, or nothing, too), one_row (one row
    # of the problem's own is scaled, lowered and sparse), coherent (numbers that coarser formats round in one
    # direction, for outputs that are means or long products).
    distributions: list[str] = several_of("scaled", "shifted", "sparse", "one_row", "coherent", or_else=("negated",))
    # Trials with a smaller batch, where the reference allows it; at 0 scaled inputs come on no larger batch either.
    shape_trials: int = 1
    # Root-mean-square error allowed, as a share of the output's spread (fp16 rounding alone is 2e-4).
    rms_tolerance: float = 1e-4
    # Root-mean-square error allowed in each channel, and at each place along the last axis, as a share of its own size.
    slice_tolerance: float = 5e-4
    # Largest error of one element allowed, as a share of its size plus the output's spread.
    max_tolerance: float = 1e-3
    # Half precision is as exact as TF32, but ends at 65,504. Where the tolerance is that of TF32, a candidate must give
    # finite outputs for inputs a million times as large, if the reference does.
    range_trial: bool = True
    # Both tolerances where no higher-precision reference can be computed.
    fallback_tolerance: float = 1e-3


@dataclass
class TimingConfig:
    """Measurement: interleaved batches, stopped when the confidence interval is narrow enough."""

    # Half width of the 95% interval of log(speedup) at which measuring stops (0.02 CPU, 0.005 CUDA).
    half_width: float = bounded(0.02, above=0)
    # Half width that is added per unit of |log(speedup)|: 12x need not be known as precisely as 1.01x.
    half_width_growth: float = 0.02
    # Largest half width at which measuring stops after several pairs of processes: at 0.0144 two measurements of the
    # same code are within 2% in 95% of cases, at any speedup.
    most_half_width: float = 1.0
    # Fewest pairs of batches (paper: as many as fit in 20 to 30 minutes).
    min_pairs: int = bounded(8, least=1)
    # Most pairs of batches.
    max_pairs: int = bounded(200, least=1)
    # Fewest pairs of batches where they take longer than `budget_s`, for at most six times that time.
    least_pairs: int = 3
    # Time for measuring one candidate, seconds (paper: 1200 to 1800); on the CPU as its processes count it.
    budget_s: float = bounded(4.5, above=0)
    # Fresh pairs of processes (reference and candidate) that share the time, which has to hold three batches of each.
    contestants: int = bounded(6, least=1)
    # Most pairs of processes: further ones, each with as much time, follow until the 95% interval of their speedups is
    # as narrow as wanted. Where a pair lies in memory makes it some percent faster for as long as it lives.
    most_contestants: int = 3
    # Most pairs of processes where they show a gain of some percent that may be below 1.01x, and differ by more than
    # their own calls do; half as many where they do not, or where all but one ran on a slower core than that one.
    most_near_1: int = 0
    # Standard deviation between the log speedups of pairs of processes that is assumed where they show no larger one.
    process_spread: float = 0.0
    # Standard deviation that launches add to it, microseconds a call (at most 0.009 of the reference's time).
    launch_spread_us: float = 0.0
    # Stop measuring a candidate once the upper bound of its speedup is below this; 0 = never.
    leave_below: float = bounded(0.0, least=0, most=1)
    # Time of one batch of the reference's calls that is aimed at, milliseconds.
    batch_ms: float = bounded(4.0, above=0)
    # Most calls in one batch.
    max_batch_calls: int = bounded(64, least=1)
    # Memory that one batch's inputs and outputs may take, MiB.
    batch_memory_mib: int = 256
    # A speedup above this is measured again with a fresh contestant (paper: 3, on another GPU (2nd)); 0 = never.
    remeasure_above: float = 3.0
    # A speedup above this many times the problem's best so far, if that is known, is measured again (2nd); 0 = never.
    remeasure_over_best: float = 2.0
    # Consecutive parts of the measurement whose mean speedups the verdict carries (paper: 7 (2nd)).
    buckets: int = bounded(7, least=1)
    # Share of the smaller by which two measurements may differ (paper: 0.10 (2nd)).
    remeasure_difference: float = 0.10
    # Two measurements may differ by twice both half widths where that is more; false: never.
    remeasure_by_intervals: bool = True
    # Most measurements of one candidate: where two differ, another may agree with one of them (paper: 2 (2nd)).
    most_measurements: int = bounded(3, least=2)
    # Seconds for which the device rests before a speedup is measured again on it.
    cool_down_s: float = 0.0
    # CUDA: pairs of batches after which the tensors of both move in the GPU's memory, where some places are faster than
    # others; 0 = never.
    scatter_pairs: int = 0
    # CUDA: time calls without their launches as well, for `device_speedup` of verdicts, which takes 0.1 s for each pair
    # of processes.
    device_alone: bool = False
    # Bytes written between CUDA calls to empty the L2 cache, MiB (an H200's holds 60); 0 = not flushed.
    l2_flush_mib: int = 128

    def require_time(self) -> None:
        """Raise UserError where the time does not hold the fewest batches of all pairs of processes."""
        least_s = 1e-3 * self.contestants * _FEWEST_PAIRS * self.batch_ms
        if least_s > self.budget_s:
            raise UserError(
                f"evaluation.timing.contestants={self.contestants}: {_FEWEST_PAIRS} batches in each, of "
                f"evaluation.timing.batch_ms={self.batch_ms:g}, take {least_s:g} s; lower one of the two, or raise "
                f"evaluation.timing.budget_s={self.budget_s:g}"
            )


# Reasons for which a limit ends a process -> the settings of `LimitConfig` that may have set it.
_LIMITS_BEHIND = {
    "timeout": ("load_timeout_s", "first_call_timeout_s", "call_timeout_s"),
    "memory_limit": ("memory_mib", "gpu_memory_share"),
    "resource_exhaustion": ("files", "processes", "scratch_mib"),
}


@dataclass
class LimitConfig:
    """What a process may use before it is stopped."""

    # Import and construction, seconds; an inline extension or torch.compile takes most of it.
    load_timeout_s: float = bounded(120.0, above=0)
    # Import and construction of a candidate, seconds without a child process, such as a compiler, but at least ten
    # times what the reference needed; where calls may compile, at least first_call_timeout_s.
    plain_load_timeout_s: float = 60.0
    # One call, seconds, at least; a candidate is also stopped beyond slowdown_limit x the reference's time.
    call_timeout_s: float = 10.0
    # First call, seconds (torch.compile, Triton and lazily built extensions compile in it).
    first_call_timeout_s: float = bounded(120.0, above=0)
    # First call of a candidate in which nothing compiles, seconds: its endless loop holds up a whole training step.
    plain_first_call_timeout_s: float = 30.0
    # Paper: a candidate must end within 1000x the reference's time.
    slowdown_limit: float = 1000.0
    # Resident memory, MiB.
    memory_mib: int = 4096
    # Share of the GPU's memory that torch may take in one process.
    gpu_memory_share: float = bounded(0.8, above=0, most=1)
    # Processes and threads at once, beside those that torch starts for `threads`.
    processes: int = 128
    # Open files.
    files: int = 512
    # Private scratch, MiB, and the largest file in it; it lies in memory.
    scratch_mib: int = bounded(512, least=1)
    # CPU seconds in all.
    cpu_s: int = 300

    def behind(self, reason: str) -> str:
        """Return the limits of which one may have ended a process that failed for `reason`, in brackets; "" if none."""
        keys = [f"{name}={getattr(self, name):.16g}" for name in _LIMITS_BEHIND.get(reason, ())]
        return f" (evaluation.limits: {', '.join(keys)})" if keys else ""


@dataclass
class EvaluationConfig:
    """Settings of one evaluator, or of those that share a device."""

    # cpu, cuda or cuda:N.
    device: str = "cpu"
    # Threads of reference and candidate on the CPU, which are pinned to as many cores.
    threads: int = bounded(1, least=1)
    # Where a large speedup is measured again: same_device | another_device (of a fleet, of the same hardware; the same
    # device where none is left) | auto (another one where a fleet has several GPUs).
    confirm_on: str = one_of("auto", "same_device", "another_device")
    # What candidates are compared to: eager, compile, compile_reduce_overhead, cuda_graph, tuned_eager, or a .py file
    # with dress(model), which returns what is called in the model's place.
    against: str = "eager"
    # Weakest sandbox that is accepted: namespaces, landlock, seccomp (see sandbox/walls.py); strongest first. At the
    # last a candidate can write whatever this user can, checkpoints and ~/.bashrc included: to name it is to allow
    # that, and reports state it.
    required_sandbox: str = one_of("landlock", "namespaces", "seccomp")
    # false: problems come from strangers (serving). What runs them is bounded like a candidate then, no process of one
    # problem is kept for the next, and what it claims is doubted.
    trust_problems: bool = True
    # Use this level and no other; empty = the strongest that works here.
    sandbox: str = one_of("", "namespaces", "landlock", "seccomp")
    # Further folders that a candidate may read (toolchains outside the usual places).
    readable_paths: list[str] = field(default_factory=list)
    # Folder of compiled extensions; empty = a private one that is removed with the evaluator.
    compile_cache: str = ""
    # Folder of opened problems, with what is right for their inputs, for other evaluators of the device and for later
    # processes; this user's own and closed to others. Empty = in training `.opened-problems` in runs_dir, for all runs
    # there; else a pool has a private one that is removed with it.
    problem_cache: str = ""
    # Compile for these CUDA architectures where no GPU is visible, e.g. "9.0".
    cuda_arch_list: str = ""
    # Problems that an evaluator keeps open between candidates.
    live_references: int = 2
    # Memory that the open problems of one evaluator may take together, MiB.
    live_mib: int = 4096
    # Evaluators side by side on the device (EvaluatorPool): while one measures alone, others prepare and check.
    slots: int = bounded(1, least=1)
    # Processes that build extensions ahead for them, without the device.
    compilers: int = 1
    # Seed of inputs and weights; -1 = drawn from the operating system (it cannot be guessed).
    seed: int = bounded(-1, least=-1)
    check: CheckConfig = field(default_factory=CheckConfig)
    timing: TimingConfig = field(default_factory=TimingConfig)
    limits: LimitConfig = field(default_factory=LimitConfig)
    rules: RulesConfig = field(default_factory=RulesConfig)

    def validate(self) -> None:
        """Raise UserError for values that types cannot exclude."""
        if not _DEVICE.fullmatch(self.device):
            raise UserError(f"evaluation.device={self.device:.40}: must be cpu, cuda or cuda:N")
        if complaint := check_baseline(self.against, self.device):
            raise UserError(f"evaluation.against: {complaint}")
        self.rules.validate()

    @property
    def in_flight(self) -> int:
        """Return the number of candidates that an EvaluatorPool wants at once: one in every slot and in every compiler,
        and enough others that no slot is idle while those of one problem wait for it to be opened.
        """
        return 2 * max(1, self.slots) + max(1, self.compilers)
