"""Operations that need a statistic of many elements: what is accumulated, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pass:
    """One sum or extreme over the elements: `kind` is "sum", "max" or "min"; it ends as the variable `name`."""

    name: str
    kind: str
    element: str
    after: str = ""


@dataclass(frozen=True)
class Statistic:
    """An operation on `x` by a statistic.

    Attributes:
        word: in a problem's name.
        passes: over the elements, each of which may use what those before it found. {n} is the number of elements.
        result: the new value of `x`.
        reduces: whether one value stands for all elements; else each element has its own.
        of_rows, of_channels, of_planes, of_everything: forms in a reference: over the last axis, over the second, over
            those after it, over all.
        says: what a design tells of it.
    """

    word: str
    passes: tuple[Pass, ...]
    result: str
    reduces: bool
    of_rows: tuple[str, ...] = ()
    of_channels: tuple[str, ...] = ()
    of_planes: tuple[str, ...] = ()
    of_everything: tuple[str, ...] = ()
    says: str = ""


SUM = Pass("total", "sum", "x")
HIGHEST = Pass("highest", "max", "x")
EXPONENTIALS = Pass("total", "sum", "tl.exp(x - highest)")
MEAN = Pass("mean", "sum", "x", "mean = mean / {n}")
SQUARES = Pass("total", "sum", "x * x")
# {eps} is given by who draws the operation.
VARIANCE = Pass("variance", "sum", "(x - mean) * (x - mean)", "inverse = tl.rsqrt(variance / {n} + {eps})")


def _reduction(name: str, ending: str = "") -> dict[str, tuple[str, ...]]:
    rows = (f"x = torch.{name}(x, dim=1, keepdim=True){ending}", f"x = torch.{name}(x, dim=-1, keepdim=True){ending}")
    channels = (f"x = torch.{name}(x, dim=1, keepdim=True){ending}",)
    return {"of_rows": rows, "of_channels": channels}


_SUMMED = "are summed in float32 in one pass"
REDUCTIONS = (
    Statistic("Sum", (SUM,), "total", True, **_reduction("sum"), says=_SUMMED,
              of_planes=("x = torch.sum(x, dim=AXES, keepdim=True)",),
              of_everything=("x = torch.sum(x)", "x = x.sum()")),
    Statistic("Mean", (SUM,), "total / {n}", True, **_reduction("mean"), says=f"{_SUMMED} and divided by their number",
              of_planes=("x = torch.mean(x, dim=AXES, keepdim=True)", "x = x.mean(dim=AXES, keepdim=True)"),
              of_everything=("x = torch.mean(x)", "x = x.mean()")),
    Statistic("Max", (HIGHEST,), "highest", True, **_reduction("max", "[0]"), says="are compared in one pass"),
    Statistic("Min", (Pass("lowest", "min", "x"),), "lowest", True, **_reduction("min", "[0]"),
              says="are compared in one pass"),
    Statistic("LogSumExp", (HIGHEST, EXPONENTIALS), "highest + tl.log(total)", True, **_reduction("logsumexp"),
              says="give their maximum first, which is subtracted before the exponentials are summed"),
    Statistic("Norm", (SQUARES,), "tl.sqrt(total)", True, says="are squared and summed in one pass",
              of_rows=("x = torch.norm(x, p=2, dim=1, keepdim=True)",),
              of_channels=("x = torch.norm(x, p=2, dim=1, keepdim=True)",)),
)  # fmt: skip
NORMALISATIONS = (
    Statistic("Softmax", (HIGHEST, EXPONENTIALS), "tl.exp(x - highest) / total", False,
              of_rows=("x = torch.softmax(x, dim=1)", "x = F.softmax(x, dim=1)", "x = F.softmax(x, dim=-1)"),
              of_channels=("x = torch.softmax(x, dim=1)", "x = F.softmax(x, dim=1)"),
              says="give maximum and sum of exponentials, then each is written as its share of the sum"),
    Statistic("LogSoftmax", (HIGHEST, EXPONENTIALS), "x - highest - tl.log(total)", False,
              of_rows=("x = torch.log_softmax(x, dim=1)", "x = F.log_softmax(x, dim=-1)"),
              of_channels=("x = F.log_softmax(x, dim=1)",),
              says="give maximum and sum of exponentials, then each is written less the logarithm of the sum"),
    Statistic("Normalize", (SQUARES,), "x / tl.maximum(tl.sqrt(total), 1e-12)", False,
              of_rows=("x = F.normalize(x, p=2, dim=1)", "x = F.normalize(x, p=2, dim=-1)"),
              of_channels=("x = F.normalize(x, p=2, dim=1)",),
              says="give the sum of squares, then each is divided by its root"),
    Statistic("SumNorm", (Pass("total", "sum", "tl.abs(x)"),), "x / (total + 1e-6)", False,
              of_rows=("x = x / (torch.sum(torch.abs(x), dim=1, keepdim=True) + 1e-6)",),
              of_channels=("x = x / (torch.sum(torch.abs(x), dim=1, keepdim=True) + 1e-6)",),
              says="give the sum of magnitudes, then each is divided by it"),
    Statistic("RMSNorm", (SQUARES,), "x / tl.sqrt(total / {n} + 1e-5)", False,
              of_rows=("x = x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)",),
              of_channels=("x = x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)",),
              says="give the mean square, then each is divided by its root"),
)  # fmt: skip


def standardisation(word: str, eps: str, forward: str, affine: bool) -> Statistic:
    """Return a norm that subtracts the mean and divides by the deviation, with `weight` and `bias` where it is affine."""
    result = "(x - mean) * inverse" + (" * weight + bias" if affine else "")
    after = VARIANCE.after.replace("{eps}", eps)
    passes = (MEAN, Pass(VARIANCE.name, VARIANCE.kind, VARIANCE.element, after))
    says = "give the mean, then the sum of squared differences from it, then each is written normalised"
    forms = (forward,)
    return Statistic(word, passes, result, False, forms, forms, forms, says=says)
