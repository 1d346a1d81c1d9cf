"""What of the exemplars can be configured."""

from __future__ import annotations

from dataclasses import dataclass

from cudal1_ray.errors import UserError
from cudal1_ray.settings import bounded, check_values, one_of, several_of

CELL_AXES = ("length", "operations")
# Honest failures, by the evaluator's names: what a candidate that cheats is rejected for is not among them.
FAILURE_REASONS = (
    "unparsable",
    "missing_model",
    "compile_error",
    "runtime_error",
    "crash",
    "timeout",
    "memory_limit",
    "wrong_output",
    "wrong_structure",
    "output_dtype",
    "output_device",
    "nan_comparison",
    "input_mutation",
)


@dataclass
class ExemplarsConfig:
    """Which exemplars a contrastive prompt shows (CUDA-L1, section on contrastive exemplar selection).

    A comment that starts with the names of rules lists those that read the field; their docstrings have the
    formulas.
    """

    # Name of the selection rule: none, uniform, top_k, recent, best_worst, bucket, island, power_law, shinka_weighted,
    # openevolve_mix, map_elites, novelty_filtered, prioritised, failures_included, or a registered one.
    strategy: str = "bucket"
    # Exemplars that a new run starts with: a corpus as sft.corpus takes it, of which the candidates with a recorded
    # speedup count, or the folder of another run. What only other hardware measured is measured again, and so is what a
    # run measured in other sizes, under other rules or against another baseline. Empty: none.
    seed_from: str = ""
    # How many exemplars a prompt shows. The paper: N = 2.
    count: int = 2
    # Exemplars within this factor of the fastest known are not shown, even if none are left to show. 1: all can be (the
    # paper). Above 1, something faster than what is shown is known to exist; where the best is shown, the reward asks
    # for more than was ever found, and a policy answers with copies or with something slower.
    headroom: float = bounded(1.0, least=1)
    # Order in the prompt: ascending or descending by speedup, or as drawn.
    order: str = one_of("ascending", "descending", "drawn")
    # bucket: width ds of a bucket B_k = [s_k, s_k + ds), in units of speedup. The paper gives no figure.
    bucket_width: float = bounded(0.25, above=0)
    # bucket: lower edge of the bucket k = 0, in units of speedup.
    bucket_start: float = bounded(0.0)
    # bucket, island, novelty_filtered, failures_included: temperature of exp((s - mu) / tau), in units of speedup. The
    # paper gives no figure.
    tau: float = bounded(1.0, above=0)
    # island: number of sub-populations per problem (FunSearch uses 10 for far larger populations).
    islands: int = bounded(4, least=1)
    # island: after this many accepted exemplars of a problem, the weaker half of its islands is reseeded.
    island_reset_every: int = bounded(64, least=1)
    # island: after this many accepted exemplars of a problem, the best of each island joins the next; 0: never.
    # OpenEvolve: every 50 generations.
    island_migrate_every: int = 32
    # power_law, shinka_weighted, openevolve_mix: the number of the fastest that take part, or are the elite
    # of openevolve_mix; 0: all accepted. ShinkaEvolve: 40. OpenEvolve: 100.
    archive_size: int = 40
    # power_law: exponent alpha of P ~ rank^-alpha. ShinkaEvolve: 1.
    power_law_alpha: float = 1.0
    # shinka_weighted: sharpness lambda of the sigmoid. ShinkaEvolve: 10.
    shinka_lambda: float = 10.0
    # openevolve_mix: share of draws among all accepted exemplars alike. OpenEvolve: 0.2.
    exploration_ratio: float = bounded(0.2, least=0, most=1)
    # openevolve_mix: share of draws from the elite; the rest is drawn in proportion to speedup. OpenEvolve: 0.7.
    exploitation_ratio: float = bounded(0.7, least=0, most=1)
    # map_elites: the features that make a cell: length, operations, or both.
    cell_axes: list[str] = several_of(*CELL_AXES)
    # map_elites: ratio of the longest to the shortest code in a cell.
    cell_length_ratio: float = bounded(1.5, above=1)
    # novelty_filtered: exemplars whose codes are more similar (estimated cosine, at most 1) are not shown together.
    # ShinkaEvolve, of embeddings: 0.99.
    novelty_threshold: float = bounded(0.95, least=-1)
    # prioritised: exponent alpha of P ~ priority^alpha; 0 is uniform. Prioritized Experience Replay: 0.6.
    priority_alpha: float = 0.6
    # prioritised: least priority, in units of speedup, above 0.
    priority_epsilon: float = bounded(0.01, above=0)
    # failures_included: how many of the `count` exemplars are rejected candidates.
    failures: int = 1
    # Keep candidates that were rejected, too, where all of their reasons are among failure_reasons.
    remember_failures: bool = False
    # failures_included: what a candidate may have been rejected for to be shown.
    failure_reasons: list[str] = several_of(*FAILURE_REASONS)

    def validate(self) -> None:
        """Raise UserError naming the first field whose value cannot work."""
        check_values(self, "exemplars.")
        from cudal1_ray.exemplars.selection import strategy_names  # imports this module

        if self.strategy not in strategy_names():
            raise UserError(f"exemplars.strategy is {self.strategy!r}: use one of {', '.join(strategy_names())}")
        if self.exploration_ratio + self.exploitation_ratio > 1.0:
            raise UserError(
                f"exemplars.exploitation_ratio is {self.exploitation_ratio}: with exemplars.exploration_ratio "
                f"({self.exploration_ratio}) it must be 1 or less"
            )
