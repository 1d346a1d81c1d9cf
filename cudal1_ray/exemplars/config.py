"""What of the exemplars can be configured."""

from __future__ import annotations

from dataclasses import dataclass

from cudal1_ray.errors import UserError

ORDERS = ("ascending", "descending", "drawn")


@dataclass
class ExemplarsConfig:
    """Which exemplars a contrastive prompt shows (CUDA-L1, section on contrastive exemplar selection)."""

    # Name of the selection rule: none, uniform, top_k, recent, best_worst, bucket, island, or a registered
    # one.
    strategy: str = "bucket"
    # How many exemplars a prompt shows. The paper: N = 2.
    count: int = 2
    # Order in the prompt: ascending or descending by speedup, or as drawn.
    order: str = "ascending"
    # bucket: width ds of a bucket B_k = [s_k, s_k + ds), in units of speedup. The paper gives no figure.
    bucket_width: float = 0.25
    # bucket: lower edge of the bucket k = 0, in units of speedup.
    bucket_start: float = 0.0
    # bucket, island: temperature of exp((s - mu) / tau), in units of speedup. The paper gives no figure.
    tau: float = 1.0
    # island: number of sub-populations per problem (FunSearch uses 10 for far larger populations).
    islands: int = 4
    # island: after this many accepted exemplars of a problem, the weaker half of its islands is reseeded.
    island_reset_every: int = 64

    def validate(self) -> None:
        """Raises UserError naming the first field whose value cannot work."""
        if self.count < 0:
            raise UserError(f"exemplars.count is {self.count}: it must be 0 or more")
        if self.order not in ORDERS:
            raise UserError(f"exemplars.order is {self.order!r}: use one of {', '.join(ORDERS)}")
        for field in ("bucket_width", "tau"):
            if not getattr(self, field) > 0.0:
                raise UserError(f"exemplars.{field} is {getattr(self, field)}: it must be above 0")
        for field in ("islands", "island_reset_every"):
            if getattr(self, field) < 1:
                raise UserError(f"exemplars.{field} is {getattr(self, field)}: it must be 1 or more")
