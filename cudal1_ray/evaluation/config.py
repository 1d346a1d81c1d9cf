"""Every figure of the evaluator, typed. The paper's own figures are named where they differ from the defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..settings.bounds import bounded
from .rules import RulesConfig


@dataclass
class CheckConfig:
    """Correctness: on which inputs, and how near to the higher-precision reference."""

    # Look at the syntax tree first: what it refuses, or flags (`rules.findings`). Everything else holds without it.
    static_gate: bool = True
    # Trials on the problem's own inputs, fresh values each (paper: 1000 (2nd)).
    trials: int = bounded(2, least=1)
    # true: a candidate is asked the trials after the first only if it may be credited with more than 1.0, so not where
    # it runs the reference's own operations (training); false: every accepted candidate has passed all of them.
    lazy: bool = False
    # A problem whose inputs and outputs are larger than this together, MiB, is large: two such trials, the others on a
    # smaller batch, and outputs compared in windows at places that a candidate cannot foresee.
    large_mib: int = 256
    # Windows of 65,536 elements that are compared in a large problem's outputs.
    windows: int = 256
    # Further input distributions, one trial each; one the reference cannot digest is left out. Known: scaled,
    # shifted (down, or else up), negated, sparse (masks that let everything through, or nothing, as well), one_row
    # (of the problem's own is scaled, lowered and sparse), coherent (numbers that coarser formats round in one
    # direction, for outputs that are means, or long products).
    distributions: list[str] = field(default_factory=lambda: ["scaled", "shifted", "sparse", "one_row", "coherent"])
    # Trials with a smaller batch, where the reference allows it; 0 = scaled inputs do not come on a larger one, either.
    shape_trials: int = 1
    # Root-mean-square error allowed, as a share of the output's spread (fp16 rounding alone is 2e-4).
    rms_tolerance: float = 1e-4
    # Root-mean-square error allowed in each channel, and at each place along the last axis, as a share of its own size.
    slice_tolerance: float = 5e-4
    # Largest error of one element allowed, as a share of its size plus the output's spread.
    max_tolerance: float = 1e-3
    # Half precision is as exact as TF32, but ends at 65,504: where that is the tolerance, inputs come a million times
    # larger, too, if the reference gives finite outputs then, and so must the candidate.
    range_trial: bool = True
    # Both tolerances where no higher-precision reference can be computed.
    fallback_tolerance: float = 1e-3


@dataclass
class TimingConfig:
    """Measurement: interleaved batches, stopped when the confidence interval is narrow enough."""

    # Half width of the 95% interval of log(speedup) at which measuring stops (0.02 CPU, 0.005 CUDA).
    half_width: float = bounded(0.02, above=0)
    # Added to it, per unit of |log(speedup)|: 12x need not be known as sharply as 1.01x.
    half_width_growth: float = 0.02
    # But no more than this after several pairs of processes: at 0.0144 two measurements of the same code are within 2%
    # in 95% of cases, at any speedup.
    most_half_width: float = 1.0
    # Fewest pairs of batches (paper: as many as fit in 20 to 30 minutes).
    min_pairs: int = bounded(8, least=1)
    # Most pairs of batches.
    max_pairs: int = bounded(200, least=1)
    # So many, where one of them takes so long that the time is over before, up to three times that time.
    least_pairs: int = 3
    # Time for measuring one candidate, seconds (paper: 1200 to 1800); on the CPU as its processes count it.
    budget_s: float = bounded(4.5, above=0)
    # Fresh pairs of processes (reference and candidate) that the time is shared out to.
    contestants: int = bounded(6, least=1)
    # More of them, up to so many, each with as much time, until the 95% interval of what they show is no wider than is
    # wanted: where one of several pairs lies in memory makes it some percent faster for as long as it lives.
    most_contestants: int = 3
    # So many where what they show is a gain of some percent that may be below 1.01x, and it is the processes that
    # differ; half as many where it is not they, or where all but one had a slower core than that one.
    most_near_1: int = 0
    # Standard deviation between the log speedups of such pairs that is assumed where they do not show a larger one.
    process_spread: float = 0.0
    # What launches add to it, microseconds a call (of the reference's time, 0.009 at most).
    launch_spread_us: float = 0.0
    # A candidate is measured no further once the upper bound of its speedup is below this; 0 = never.
    leave_below: float = bounded(0.0, least=0, most=1)
    # Length of one batch aimed at, milliseconds.
    batch_ms: float = bounded(4.0, above=0)
    # Most calls in one batch.
    max_batch_calls: int = bounded(64, least=1)
    # Memory that one batch's inputs and outputs may take, MiB.
    batch_memory_mib: int = 256
    # A speedup above this is measured again with a fresh contestant (paper: 3, on another GPU (2nd)); 0 = never.
    remeasure_above: float = 3.0
    # So is one above this many times the problem's best so far, where that is known (2nd); 0 = never.
    remeasure_over_best: float = 2.0
    # Consecutive parts of the measurement whose mean speedups the verdict carries (paper: 7 (2nd)).
    buckets: int = bounded(7, least=1)
    # Share by which the two may differ (paper: 0.10 (2nd)).
    remeasure_difference: float = 0.10
    # They may differ by more where their intervals leave that open: by twice both half widths; false: never.
    remeasure_by_intervals: bool = True
    # Measurements of one candidate at most: where two differ, another may agree with one of them (paper: 2 (2nd)).
    most_measurements: int = 3
    # Seconds for which the device rests before that, where it is the same device.
    cool_down_s: float = 0.0
    # CUDA: pairs of batches after which the tensors of both come to lie elsewhere in the GPU's memory, some places of
    # which are faster than others; 0 = never.
    scatter_pairs: int = 0
    # CUDA: calls are timed without their launches as well, so that verdicts can tell what the device alone shows. That
    # takes a tenth of a second for each pair of processes.
    device_alone: bool = False
    # Bytes written between CUDA calls to empty the L2 cache, MiB (an H200's holds 60); 0 = not flushed.
    l2_flush_mib: int = 128


@dataclass
class LimitConfig:
    """What a contestant may use before it is stopped."""

    # Import and construction, seconds (an inline extension or torch.compile needs most of it).
    load_timeout_s: float = 120.0
    # The same of a candidate with nothing in it that compiles, where that is less, but ten times what the reference
    # needed at least.
    plain_load_timeout_s: float = 60.0
    # One call, seconds, at least; a candidate is also stopped beyond slowdown_limit x the reference's time.
    call_timeout_s: float = 10.0
    # First call, seconds (torch.compile, Triton and lazily built extensions compile in it).
    first_call_timeout_s: float = 120.0
    # The same of a candidate with nothing in it that compiles, where that is less: its endless loop holds up a whole
    # training step.
    plain_first_call_timeout_s: float = 30.0
    # Paper: a candidate must end within 1000x the reference's time.
    slowdown_limit: float = 1000.0
    # Resident memory, MiB.
    memory_mib: int = 4096
    # Share of the GPU's memory that torch may take in a contestant.
    gpu_memory_share: float = bounded(0.8, above=0, most=1)
    # Processes and threads at once.
    processes: int = 128
    # Open files.
    files: int = 512
    # Private scratch, MiB (it lies in memory), and the largest file in it.
    scratch_mib: int = 512
    # CPU seconds in all.
    cpu_s: int = 300


@dataclass
class EvaluationConfig:
    """Everything the evaluator can be told."""

    # cpu, cuda or cuda:N.
    device: str = "cpu"
    # Threads of a contestant on the CPU; it is pinned to as many cores.
    threads: int = bounded(1, least=1)
    # Where such a speedup is measured again: same_device | another_device (of a fleet with several, of the same
    # hardware; where none is left, the same after all) | auto (another one where a fleet has several GPUs).
    confirm_on: str = "auto"
    # What candidates are compared to: eager, compile, compile_reduce_overhead, cuda_graph, tuned_eager.
    against: str = "eager"
    # Weakest sandbox that is accepted: namespaces, landlock, seccomp, process (see sandbox/walls.py);
    # strongest first. At the last two a candidate can write whatever this user can, checkpoints and ~/.bashrc included:
    # to name one of them is to allow that, and reports say so.
    required_sandbox: str = "landlock"
    # false: problems come from strangers (serving). What runs them is bounded like a candidate then, no process of one
    # problem is kept for the next, and what it claims is doubted.
    trust_problems: bool = True
    # Use this level and no other; empty = the strongest that works here.
    sandbox: str = ""
    # Further folders that a contestant may read (toolchains outside the usual places).
    readable_paths: list[str] = field(default_factory=list)
    # Folder of compiled extensions; empty = a private one that goes away with the evaluator.
    compile_cache: str = ""
    # Folder of opened problems, with what is right for their inputs, for other evaluators of the device and for later
    # processes; this user's own and closed to others. Empty = a pool has a private one that goes away with it.
    problem_cache: str = ""
    # Compile for these CUDA architectures where no GPU is visible, e.g. "9.0".
    cuda_arch_list: str = ""
    # Problems whose reference contestant is kept running between candidates.
    live_references: int = 2
    # Memory that their inputs may take together, MiB, in each evaluator.
    live_mib: int = 4096
    # CUDA, baselines other than eager: no reference is kept running while more than this share of the GPU's memory is
    # in use by any process: each takes a context, its weights and what its libraries work in, up to some GiB.
    live_memory_share: float = bounded(0.5, least=0, most=1)
    # Lock file through which the evaluators of one device take turns; empty = this one has the device for itself.
    turns_file: str = ""
    # CUDA: both contestants of a measurement launch from one of these cores, the fastest at any moment, and everything
    # else keeps away from them (an EvaluatorPool chooses some); empty = from another one every time.
    measuring_cores: list[int] = field(default_factory=list)
    # Evaluators side by side on the device (EvaluatorPool): while one measures alone, others prepare and check.
    slots: int = 1
    # Processes that build extensions ahead for them, without the device.
    compilers: int = 1
    # Evaluations started again after the evaluator's own helper processes died.
    retries: int = 2
    # Seed of inputs and weights; -1 = drawn from the operating system (it cannot be guessed).
    seed: int = bounded(-1, least=-1)
    check: CheckConfig = field(default_factory=CheckConfig)
    timing: TimingConfig = field(default_factory=TimingConfig)
    limits: LimitConfig = field(default_factory=LimitConfig)
    rules: RulesConfig = field(default_factory=RulesConfig)

    def validate(self) -> None:
        """Raises UserError for values that types cannot exclude."""
        self.rules.validate()

    @property
    def in_flight(self) -> int:
        """Candidates that an EvaluatorPool wants at once: one in every slot and in every compiler, and enough others
        that no slot is idle while those of one problem wait for it to be opened.
        """
        return 2 * max(1, self.slots) + max(1, self.compilers)
