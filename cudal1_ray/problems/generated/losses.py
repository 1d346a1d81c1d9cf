"""Losses alone: a pointwise function of predictions and targets, or a function of their rows, then a mean or sum.

KernelBench holds out cross entropy, the Kullback-Leibler divergence and the triplet margin, so none of these tables has
them, in whatever form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1_ray.problems.generated.alone import Alone, kernel, launch
from cudal1_ray.problems.generated.steps import one_of

if TYPE_CHECKING:
    import numpy as np

# Most elements of an input that is reduced to one value. A mean of N differs between inputs by some 1 / sqrt(N) of its
# size, and an evaluator allows 1e-4: of six means of 67 M binary cross entropies, all pass for the first one in 55% of
# cases. Up to 64 MiB of inputs, which three of these do not reach, it tries inputs of other distributions as well.
SUMMED = 1 << 22
# Blocks of 1024 elements that one program sums.
BLOCKS = 16
RAND = "torch.rand({})"
SIGNS = "torch.randint(0, 2, ({},)).float() * 2 - 1"
BINARY = "torch.randint(0, 2, ({},)).float()"


@dataclass(frozen=True)
class Loss:
    """A loss of each element.

    Attributes:
        word: in a problem's name.
        written: the reference's expression of each element. {a} is the argument.
        function: name of the library's function of it, in `F`, where `word` is its module; empty for none.
        lines: the kernel's lines that give `loss` of the elements `p` and `t`.
        argument: the constructor's argument that it has, in the library too; empty for none.
        values: those that the argument may have.
        targets: how `get_inputs` makes the targets; {} is their shape.
    """

    word: str
    written: str
    function: str
    lines: tuple[str, ...]
    argument: str = ""
    values: tuple[str, ...] = ()
    targets: str = RAND


_OF_INPUTS = {"": "predictions and targets", "weights": "predictions, targets and weights", "row": "the predictions"}
_SIZE = "size = tl.abs(p - t)"
LOSSES = (
    Loss("MSELoss", "(predictions - targets) ** 2", "mse_loss", ("loss = (p - t) * (p - t)",)),
    Loss("L1Loss", "torch.abs(predictions - targets)", "l1_loss", ("loss = tl.abs(p - t)",)),
    Loss("SmoothL1Loss", "", "smooth_l1_loss",
         (_SIZE, "loss = tl.where(size < beta, 0.5 * size * size / beta, size - 0.5 * beta)"),
         "beta", ("0.5", "1.0", "2.0")),
    Loss("HuberLoss", "", "huber_loss",
         (_SIZE, "loss = tl.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))"),
         "delta", ("0.25", "0.5", "1.5")),
    Loss("HingeLoss", "torch.clamp({a} - predictions * targets, min=0)", "",
         ("loss = margin - p * t", "loss = tl.where(loss < 0.0, 0.0, loss)"),
         "margin", ("0.5", "1.0", "2.0"), SIGNS),
    Loss("SquaredHingeLoss", "torch.relu({a} - predictions * targets) ** 2", "",
         ("gap = margin - p * t", "loss = tl.where(gap < 0.0, 0.0, gap * gap)"),
         "margin", ("0.5", "1.0", "2.0"), SIGNS),
    Loss("BCEWithLogitsLoss", "", "binary_cross_entropy_with_logits",
         ("loss = tl.where(p > 0.0, p, 0.0) - p * t + tl.log(1.0 + tl.exp(-tl.abs(p)))",), targets=BINARY),
    Loss("SoftMarginLoss", "torch.log(1 + torch.exp(-targets * predictions))", "soft_margin_loss",
         ("loss = tl.log(1.0 + tl.exp(-t * p))",), targets=SIGNS),
    Loss("PoissonNLLLoss", "torch.exp(predictions) - targets * predictions", "poisson_nll_loss",
         ("loss = tl.exp(p) - t * p",)),
    Loss("LogCoshLoss", "torch.log(torch.cosh(predictions - targets))", "",
         (_SIZE, "# log(2) is taken off; exp(-2 size) never overflows",
          "loss = size + tl.log(1.0 + tl.exp(-2.0 * size)) - 0.6931471805599453")),
    Loss("CharbonnierLoss", "torch.sqrt((predictions - targets) ** 2 + {a})", "",
         ("loss = tl.sqrt((p - t) * (p - t) + eps)",), "eps", ("1e-3", "0.01", "0.1")),
    Loss("QuantileLoss", "torch.maximum({a} * (targets - predictions), ({a} - 1) * (targets - predictions))", "",
         ("gap = t - p", "loss = tl.where(gap > 0.0, quantile * gap, (quantile - 1.0) * gap)"),
         "quantile", ("0.1", "0.25", "0.9")),
)  # fmt: skip


@dataclass(frozen=True)
class RowLoss:
    """A loss of each row.

    Attributes:
        word: in a problem's name.
        body: the reference's lines that give `loss` of each row.
        sums: accumulated per lane: name -> the kernel's expression of the elements `p` and `t`.
        lines: the kernel's lines that give `loss` of a row from these.
        reads: what a design reports of the elements, as a sentence.
        classes: whether the targets are the numbers of classes.
    """

    word: str
    body: tuple[str, ...]
    sums: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    reads: str
    classes: bool = False


_MARGIN = (
    "own = predictions.gather(1, targets.unsqueeze(1))",
    "gaps = torch.clamp(1 - own + predictions, min=0)",
    "loss = (gaps.sum(dim=1) - 1) / predictions.shape[1]",
)
_COSINE = (("dot", "p * t"), ("pp", "p * p"), ("tt", "t * t"))
ROW_LOSSES = (
    RowLoss("CosineLoss", ("loss = 1 - F.cosine_similarity(predictions, targets, dim=1)",), _COSINE,
            ("norms = tl.maximum(tl.sqrt(pp), 1e-8) * tl.maximum(tl.sqrt(tt), 1e-8)", "loss = 1.0 - dot / norms"),
            "One walk over both rows sums their products and both squares, one sum per lane each."),
    RowLoss("DiceLoss", ("overlap = (predictions * targets).sum(dim=1)",
                         "loss = 1 - (2 * overlap + 1) / ((predictions ** 2 + targets ** 2).sum(dim=1) + 1)"),
            (("dot", "p * t"), ("squares", "p * p + t * t")), ("loss = 1.0 - (2.0 * dot + 1.0) / (squares + 1.0)",),
            "One walk over both rows sums their products and their squares, one sum per lane each."),
    RowLoss("RelativeErrorLoss", ("error = ((predictions - targets) ** 2).sum(dim=1)",
                                  "loss = error / ((targets ** 2).sum(dim=1) + 1e-6)"),
            (("error", "(p - t) * (p - t)"), ("tt", "t * t")), ("loss = error / (tt + 1e-6)",),
            "One walk over both rows sums the squared differences and the squared targets, one sum per lane each."),
    RowLoss("MultiMarginLoss", _MARGIN, (("gaps", "gap"),), ("loss = gaps / columns",),
            "The score of the target's class is loaded first; one walk over the row sums how far the other scores "
            "reach into the margin.", classes=True),
)  # fmt: skip


def draw_loss(rng: np.random.Generator) -> Alone:
    """Draw a loss."""
    if rng.random() < 0.3:
        return _of_rows(one_of(ROW_LOSSES, rng), rng)
    return _of_elements(one_of(LOSSES, rng), rng)


def _of_elements(loss: Loss, rng: np.random.Generator) -> Alone:
    """Draw a reduction of a loss of each element, perhaps with weights, or with targets that are alike in all rows."""
    library = (loss.function, loss.word) if loss.function else ()
    form = one_of([form for form in (loss.written, *library) if form], rng)
    total = one_of(("mean", "mean", "sum", "batchmean"), rng)
    shape, sizes = _shape(rng)
    extra = one_of(("", "", "", "weights", "row"), rng) if form == loss.written else ""
    if extra == "row" and shape.count(",") > 1:
        extra = ""
    argument = ((loss.argument, one_of(loss.values, rng)),) if loss.argument else ()
    kept = tuple(f"self.{name} = {name}" for name, _ in argument)
    state, value = _loss_of_reference(loss, form, total, extra)
    by_batch = " / predictions.shape[0]" if total == "batchmean" else ""
    summing, forward = _summed(loss, extra, " / total" if total == "mean" else by_batch)
    of_targets = shape.split(", ")[-1] if extra == "row" else shape
    targets = loss.targets.replace(",)", ")") if "," in of_targets else loss.targets
    inputs = [("predictions", RAND.format(shape)), ("targets", targets.format(of_targets))]
    inputs += [("weights", RAND.format(shape))] if extra == "weights" else []
    divides = {"mean": " and divides by their number", "sum": "", "batchmean": " and divides by the batch size"}[total]
    design = [
        f"A program handles {BLOCKS} neighbouring blocks of 1024 elements of {_OF_INPUTS[extra]}.",
        "The loss of each element is computed in registers and added to one sum per lane.",
        f"Each program stores one sum, so there are no atomics; PyTorch adds these few{divides}.",
    ]
    if extra == "row":
        design.insert(1, "The targets are one row, loaded by the offset modulo the columns, and stay in the cache.")
    return Alone(
        words=(loss.word, *(["weighted"] if extra == "weights" else []), *([total] if total != "mean" else [])),
        sentence=one_of((f"Model that computes {loss.word}.", f"Computes {loss.word} of two tensors."), rng),
        arguments=argument,
        state=state or kept,
        kept=kept,
        inputs=tuple(inputs),
        body=(f"return {value}{by_batch}",),
        sizes=sizes,
        kernels=(summing,),
        forward=forward,
        technique="operation fusion",
        analysis=_analysis("each element's loss"),
        design=tuple(design),
    )


def _loss_of_reference(loss: Loss, form: str, total: str, extra: str) -> tuple[tuple[str, ...], str]:
    """Return the constructor's lines for a module of the library, if it is one, and the expression of the loss."""
    reduce = "mean" if total == "mean" else "sum"
    option = f"{loss.argument}=self.{loss.argument}" if loss.argument else ""
    reduction = 'reduction="sum"' if reduce == "sum" else ""
    if form == loss.function:
        return (), f"F.{form}({', '.join(filter(None, ['predictions, targets', option, reduction]))})"
    if form == loss.word:
        options = ", ".join(filter(None, [option.replace("self.", ""), reduction]))
        return (f"self.loss_fn = nn.{form}({options})",), "self.loss_fn(predictions, targets)"
    value = loss.written.format(a=f"self.{loss.argument}")
    if extra == "weights":
        value = f"weights * ({value})" if " - " in value else f"weights * {value}"
    return (), f"torch.{reduce}({value})"


def _summed(loss: Loss, extra: str, division: str) -> tuple[str, tuple[str, ...]]:
    """Return a kernel that sums a loss over pieces of the input, and the lines of `forward`."""
    name = f"{_snake(loss.word)}_kernel"
    tensors = ["predictions", "targets", *(["weights"] if extra == "weights" else [])]
    numbers = [(loss.argument, f"self.{loss.argument}")] if loss.argument else []
    numbers.append(("total", "total"))
    numbers += [("columns", "predictions.shape[-1]")] if extra == "row" else []
    body = [
        "offsets = first + block * BLOCK + tl.arange(0, BLOCK)",
        "mask = offsets < total",
        "p = tl.load(predictions_ptr + offsets, mask=mask, other=0.0)",
        f"t = tl.load(targets_ptr + offsets{' % columns' if extra == 'row' else ''}, mask=mask, other=0.0)",
        *loss.lines,
        *(["loss *= tl.load(weights_ptr + offsets, mask=mask, other=0.0)"] if extra == "weights" else []),
        "summed += tl.where(mask, loss, 0.0)",
    ]
    lines = [
        "program = tl.program_id(0)",
        "first = program.to(tl.int64) * BLOCKS * BLOCK",
        "summed = tl.zeros([BLOCK], tl.float32)",
        "for block in range(BLOCKS):",
        *(f"    {line}" for line in body),
        "tl.store(partial_ptr + program, tl.sum(summed, 0))",
    ]
    parameters = [*(f"{each}_ptr" for each in (*tensors, "partial")), *(number for number, _ in numbers)]
    arguments = [*tensors, "partial", *(value for _, value in numbers), f"BLOCKS={BLOCKS}", "BLOCK=1024"]
    forward = (
        f"{', '.join(tensors)} = {', '.join(f'{each}.contiguous()' for each in tensors)}",
        "total = predictions.numel()",
        f"programs = triton.cdiv(total, {BLOCKS} * 1024)",
        "partial = predictions.new_empty(programs)",
        *launch(name, "(programs,)", arguments),
        f"return partial.sum(){division}",
    )
    return kernel(name, [*parameters, "BLOCKS: tl.constexpr", "BLOCK: tl.constexpr"], lines), forward


def _of_rows(loss: RowLoss, rng: np.random.Generator) -> Alone:
    """Draw a reduction of a loss of each row."""
    total = one_of(("mean", "mean", "sum"), rng)
    batch, columns = one_of((128, 256, 512), rng), one_of((1000, 2048, 4096, 8192), rng)
    axis = "num_classes" if loss.classes else one_of(("embedding_dim", "num_features"), rng)
    shape, name = f"batch_size, {axis}", f"{_snake(loss.word)}_kernel"
    targets = f"torch.randint(0, {axis}, (batch_size,))" if loss.classes else RAND.format(shape)
    load = ["p = tl.load(predictions_ptr + base + at, mask=mask, other=0.0)"]
    before = ["base = row * columns"]
    if loss.classes:
        before += ["target = tl.load(targets_ptr + row)", "own = tl.load(predictions_ptr + base + target)"]
        load += ["gap = 1.0 - own + p", "gap = tl.where((gap > 0.0) & mask & (at != target), gap, 0.0)"]
    else:
        load.append("t = tl.load(targets_ptr + base + at, mask=mask, other=0.0)")
    lines = [
        "row = tl.program_id(0).to(tl.int64)",
        *before,
        *(f"{each} = tl.zeros([BLOCK], tl.float32)" for each, _ in loss.sums),
        "for start in range(0, columns, BLOCK):",
        "    at = start + tl.arange(0, BLOCK)",
        "    mask = at < columns",
        *(f"    {line}" for line in load),
        *(f"    {each} += {value}" for each, value in loss.sums),
        *(f"{each} = tl.sum({each}, 0)" for each, _ in loss.sums),
        *loss.lines,
        "tl.store(loss_ptr + row, loss)",
    ]
    forward = (
        "predictions, targets = predictions.contiguous(), targets.contiguous()",
        "rows, columns = predictions.shape",
        "loss = predictions.new_empty(rows)",
        *launch(name, "(rows,)", ["predictions", "targets", "loss", "columns", "BLOCK=1024"]),
        f"return loss.{total}()",
    )
    parameters = ["predictions_ptr", "targets_ptr", "loss_ptr", "columns", "BLOCK: tl.constexpr"]
    body = (*loss.body, f"return loss.{total}()")
    module = loss.classes and rng.random() < 0.5
    state: tuple[str, ...] = ()
    if module:
        state = (f"self.loss_fn = nn.MultiMarginLoss({'' if total == 'mean' else 'reduction=' + repr(total)})",)
        body = ("return self.loss_fn(predictions, targets)",)
    return Alone(
        (loss.word, *([total] if total != "mean" else [])),
        f"Model that computes {loss.word} of rows.",
        (),
        state,
        (),
        (("predictions", RAND.format(shape)), ("targets", targets)),
        body,
        (("batch_size", str(batch)), (axis, str(columns))),
        (kernel(name, parameters, lines),),
        forward,
        "operation fusion",
        _analysis("each row's loss"),
        (
            "A program owns one row, which is walked over in blocks of 1024 elements.",
            loss.reads,
            f"The program stores the row's loss; PyTorch takes the {total} of these few. There are no atomics.",
        ),
    )


def _shape(rng: np.random.Generator) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Draw the inputs' shape as text, and its sizes: of at most `SUMMED` elements."""
    axes = {
        "output_dim": (("batch_size", (512, 1024, 2048)), ("output_dim", (1024, 2046, 2048))),
        "dim2": (("batch_size", (4, 8)), ("features", (16, 32)), ("dim1", (64, 128)), ("dim2", (127, 128))),
    }[one_of(("output_dim", "output_dim", "dim2"), rng)]
    sizes = tuple((name, str(one_of(options, rng))) for name, options in axes)
    return ", ".join(name for name, _ in sizes), sizes


def _snake(word: str) -> str:
    """Return a word as a function's name."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()


def _analysis(what: str) -> str:
    return (
        f"Memory bandwidth bounds it: the reference writes tensors on the way to {what} and reads them again, a kernel "
        "launch each. A kernel that reads the inputs once and keeps only sums saves all of that traffic."
    )
