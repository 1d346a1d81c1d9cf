"""Operations that need a statistic of many elements: what is accumulated, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# A statistic is over these.
ROWS, GROUPS, PLANES, CHANNELS, EVERYTHING = "rows", "groups", "planes", "channels", "everything"


@dataclass(frozen=True)
class Pass:
    """One sum or extreme over the elements.

    Attributes:
        name: the variable that holds it.
        kind: "sum", "max" or "min".
        element: an expression of each element `x`.
        after: a line after it; empty for none. {n} is the number of elements.
    """

    name: str
    kind: str
    element: str
    after: str = ""


@dataclass(frozen=True)
class Statistic:
    """An operation on `x` by a statistic.

    Attributes:
        word: in a problem's name.
        passes: over the elements, each of which may use the results of those before it.
        result: the new value of `x`. {n} is the number of elements.
        reduces: whether one value stands for all elements; else each element has its own.
        effect: what a design reports of the elements, as a sentence's predicate.
        forms: by what the statistic is over, the lines that a reference may have for it. AXES are those of a plane.
    """

    word: str
    passes: tuple[Pass, ...]
    result: str
    reduces: bool
    effect: str
    forms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def walks(self) -> int:
        """Return how many times a kernel that cannot hold all elements goes over them."""
        return len(self.passes) + (not self.reduces)


SUM = Pass("total", "sum", "x")
HIGHEST = Pass("highest", "max", "x")
LOWEST = Pass("lowest", "min", "x")
EXPONENTIALS = Pass("total", "sum", "tl.exp(x - highest)")
MAGNITUDES = Pass("total", "sum", "tl.abs(x)")
SQUARES = Pass("total", "sum", "x * x")
MEAN = Pass("mean", "sum", "x", "mean = mean / {n}")


def _reduction(name: str, ending: str = "") -> dict[str, tuple[str, ...]]:
    channels = f"x = torch.{name}(x, dim=1, keepdim=True){ending}"
    return {ROWS: (channels, f"x = torch.{name}(x, dim=-1, keepdim=True){ending}"), CHANNELS: (channels,)}


def _on_axis_1(*forms: str) -> dict[str, tuple[str, ...]]:
    return {ROWS: forms, CHANNELS: forms}


_SUMMED = "are summed in float32 in one pass"
_SHARES = "give maximum and sum of exponentials, then each is written"
REDUCTIONS = (
    Statistic("Sum", (SUM,), "total", True, _SUMMED, {
        **_reduction("sum"),
        EVERYTHING: ("x = torch.sum(x)", "x = x.sum()"),
    }),
    Statistic("Mean", (SUM,), "total / {n}", True, f"{_SUMMED} and divided by their number", {
        **_reduction("mean"),
        PLANES: ("x = torch.mean(x, dim=AXES, keepdim=True)", "x = x.mean(dim=AXES, keepdim=True)"),
        EVERYTHING: ("x = torch.mean(x)", "x = x.mean()"),
    }),
    Statistic("Max", (HIGHEST,), "highest", True, "are compared in one pass", _reduction("max", "[0]")),
    Statistic("Min", (LOWEST,), "lowest", True, "are compared in one pass", _reduction("min", "[0]")),
    Statistic("LogSumExp", (HIGHEST, EXPONENTIALS), "highest + tl.log(total)", True,
              "give their maximum first, which is subtracted before the exponentials are summed",
              _reduction("logsumexp")),
    Statistic("Norm", (SQUARES,), "tl.sqrt(total)", True, "are squared and summed in one pass",
              _on_axis_1("x = torch.norm(x, p=2, dim=1, keepdim=True)")),
)  # fmt: skip
NORMALISATIONS = (
    Statistic("Softmax", (HIGHEST, EXPONENTIALS), "tl.exp(x - highest) / total", False,
              f"{_SHARES} as its share of the sum", {
        ROWS: ("x = torch.softmax(x, dim=1)", "x = F.softmax(x, dim=1)", "x = F.softmax(x, dim=-1)"),
        CHANNELS: ("x = torch.softmax(x, dim=1)", "x = F.softmax(x, dim=1)"),
    }),
    Statistic("LogSoftmax", (HIGHEST, EXPONENTIALS), "x - highest - tl.log(total)", False,
              f"{_SHARES} less the logarithm of the sum", {
        ROWS: ("x = torch.log_softmax(x, dim=1)", "x = F.log_softmax(x, dim=-1)"),
        CHANNELS: ("x = F.log_softmax(x, dim=1)",),
    }),
    Statistic("Normalize", (SQUARES,), "x / tl.maximum(tl.sqrt(total), 1e-12)", False,
              "give the sum of squares, then each is divided by its root", {
        ROWS: ("x = F.normalize(x, p=2, dim=1)", "x = F.normalize(x, p=2, dim=-1)"),
        CHANNELS: ("x = F.normalize(x, p=2, dim=1)",),
    }),
    Statistic("SumNorm", (MAGNITUDES,), "x / (total + 1e-6)", False,
              "give the sum of magnitudes, then each is divided by it",
              _on_axis_1("x = x / (torch.sum(torch.abs(x), dim=1, keepdim=True) + 1e-6)")),
    Statistic("RMSNorm", (SQUARES,), "x / tl.sqrt(total / {n} + 1e-5)", False,
              "give the mean square, then each is divided by its root",
              _on_axis_1("x = x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)")),
)  # fmt: skip


def standardisation(word: str, eps: str, affine: bool) -> Statistic:
    """Return a norm that subtracts the mean and divides by the deviation; an affine one has `weight` and `bias`.

    Args:
        eps: the kernel's expression of what is added to the variance.
    """
    inverse = f"inverse = tl.rsqrt(variance / {{n}} + {eps})"
    passes = (MEAN, Pass("variance", "sum", "(x - mean) * (x - mean)", inverse))
    result = "(x - mean) * inverse" + (" * weight + bias" if affine else "")
    effect = "give the mean, then the sum of squared differences from it, then each is written normalised"
    return Statistic(word, passes, result, False, effect)
