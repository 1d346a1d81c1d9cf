"""Correctness of one candidate, on the trusted side: asks it the trials, and compares its answers."""

from __future__ import annotations

import cmath
import random
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.correctness.at_once import near
from cudal1_ray.evaluation.correctness.comparison import (
    Difference,
    Expected,
    compare,
    error_of,
    expect_again,
    is_small,
    shape_difference,
)
from cudal1_ray.evaluation.exchange.messages import COARSER, Inspect, Lock
from cudal1_ray.evaluation.exchange.tensors import view_of_bytes
from cudal1_ray.evaluation.exchange.variant import Variant
from cudal1_ray.evaluation.host.handles import Misbehaviour
from cudal1_ray.evaluation.host.timed_contestant import CallResult, TimedContestant
from cudal1_ray.evaluation.opening.session import MAGNIFIED, ProblemSession, Trial
from cudal1_ray.evaluation.sharing.turns import LONGEST_TURN_S, Turns
from cudal1_ray.wording import counted

# Most bytes of the inputs and outputs of a small call, which come and go within milliseconds.
_SMALL = 64 << 20
# Longest call, ms, that costs a measurement beside it less than waiting for libraries costs all others.
_BRIEF_MS = 150.0
# Seconds in which processes that a candidate started have to end; compilers on a busy machine take their time.
_ENDING_S = 5.0
_WORDS = {
    "own": "on the problem's own inputs", "scaled": "on inputs 2.5 times as large", "batch": "on a smaller batch",
    "larger": "on a larger batch of scaled inputs", "lowered": "on inputs lower by 0.75",
    "raised": "on inputs higher by 0.75", "negated": "on inputs of the other sign",
    "sparse": "on inputs of which half are zero", "sparse_floats": "on floats of which half are zero",
    "coherent": "on numbers that coarser formats round one way",
    MAGNIFIED: "on inputs a million times as large",
}  # fmt: skip


def kind_in_words(kind: str) -> str:
    """Return words for the inputs of a kind of trial."""
    return "on inputs of which one row is unlike the others" if kind.startswith("one_row") else _WORDS.get(kind, kind)


def ask_trial(
    contestant: TimedContestant, trial: Trial, variant: Variant, chance: random.Random, *,
    briefly: bool = False, turn: AbstractContextManager[None] | None = None,
) -> CallResult:  # fmt: skip
    """Make one call on a trial's inputs; return its outputs as far as they are known, and its inputs after the call.
    `briefly`: windows of large outputs, at places of their own, are enough. `turn`: held around the call alone, since
    copying its results disturbs no measurement, and may take longer.
    """
    seeds = [trial.model_seed] if contestant.session.traits.stochastic else None
    with turn or nullcontext():
        contestant.prepare([variant], seeds, reuse=True)
        contestant.go(1)
    fetched = contestant.fetch(0, random_picks(chance, 16) if briefly and not trial.picks else trial.picks)
    contestant.fetch_inputs(0, trial.input_picks or random_picks(chance), fetched)
    return fetched


def random_picks(chance: random.Random, number: int = 8) -> list[float]:
    """Return places in a large tensor to compare, from 0 (its first element) to 1 (its last)."""
    return [*(chance.random() for _ in range(number - 2)), 0.0, 1.0]  # both ends always


def compare_call(
    fetched: CallResult, trial: Trial, config: EvaluationConfig, answered: CallResult | None = None,
    off: Sequence[tuple[float, float]] = (),
) -> Difference | None:  # fmt: skip
    """Return None when structure, devices, shapes, dtypes and values are right. `answered`: the reference's answer to
    the same inputs, where these are not the trial's own: sizes and plain numbers may depend on them. `off`: how far
    that reference's outputs are from the trial's, by `errors_of`.
    """
    structure, devices, shapes = trial.structure, trial.devices, [entry.shape for entry in trial.expected]
    expected: list[Expected | None] = list(trial.expected)
    if answered is not None:
        structure, devices, shapes = answered.structure, answered.devices, answered.shapes
        passed = near(fetched.outputs, answered.outputs, config.check)  # these expect nothing more
        of_trial = [*trial.expected, *[None] * len(answered.outputs)]
        all_off = [*off, *[(0.0, 0.0)] * len(answered.outputs)]
        expected = [
            None if passes else expect_again(view_of_bytes(data, spec), earlier, config.check, config.device, error)
            for (spec, data), earlier, error, passes in zip(answered.outputs, of_trial, all_off, passed, strict=False)
        ]
    elif trial.picks is None:
        expected = [entry.windows(fetched.picks) for entry in trial.expected]
    if difference := structure_difference(fetched.structure, structure):
        return Difference("wrong_structure", difference)
    if len(fetched.outputs) != len(expected):
        return Difference("wrong_structure", f"{counted(len(fetched.outputs), 'tensor')} instead of {len(expected)}")
    for number, (got, device) in enumerate(zip(fetched.devices, devices, strict=True)):
        if got != device:
            return Difference("output_device", f"output {number} lies on {got} instead of {device}")
    for number, ((spec, data), shape, right_shape, want) in enumerate(
        zip(fetched.outputs, fetched.shapes, shapes, expected, strict=True)
    ):
        if wrong := shape_difference(shape, right_shape):
            return Difference(wrong.reason, f"output {number}: {wrong.detail}")
        if want is None:
            continue
        if spec.nbytes != spec.expected_nbytes():
            return Difference("output_dtype", f"output {number}: dtype {spec.dtype} instead of {want.dtype}")
        if wrong := compare(view_of_bytes(data, spec), want, config.device):
            return Difference(wrong.reason, f"output {number}: {wrong.detail}")
    return None


def errors_of(fetched: CallResult, trial: Trial, config: EvaluationConfig) -> list[tuple[float, float]]:
    """Return the error of each output of a call with the trial's inputs, as `error_of` gives it."""
    expected = trial.expected if trial.picks is not None else [of.windows(fetched.picks) for of in trial.expected]
    return [error_of(output, of, config.device) for output, of in zip(fetched.tensors(), expected, strict=False)]


def refuse_shared_memory(session: ProblemSession, fetched: CallResult) -> None:
    """Raise Misbehaviour where a call's output lies in the memory of an earlier one, which needs no comparison."""
    if fetched.aliased and session.reference_seen and not session.reference_aliases:
        raise Misbehaviour(
            "output_aliasing", "the outputs of several calls share memory: an earlier one is overwritten"
        )


def inputs_changed(fetched: CallResult, memory: Any, variant: Variant, drawn: Sequence[bytearray | memoryview]) -> bool:
    """Return whether the inputs came back changed. `drawn`: a trusted process's bytes of them in the same windows,
    where each process draws its own.
    """
    if variant.drawn is not None:
        return list(fetched.inputs) != list(drawn)
    if len(fetched.inputs) != len(variant.specs):
        return True
    return any(variant.changed(memory, number, fetched.input_picks, data) for number, data in enumerate(fetched.inputs))


def structure_difference(got: Any, expected: Any, place: str = "the output") -> str:
    """Return where the nesting differs first, and how; empty where it does not. Plain numbers may differ in their last
    digits.
    """
    parts: list[tuple[Any, Any, str]] | None = None
    if isinstance(got, list) and isinstance(expected, list):
        if len(got) != len(expected):
            return f"{place} has {counted(len(got), 'part')} instead of {len(expected)}"
        parts = [(a, b, f"{place}[{number}]") for number, (a, b) in enumerate(zip(got, expected, strict=True))]
    elif isinstance(got, dict) and isinstance(expected, dict) and got.keys() == expected.keys():
        if "=" not in expected:
            parts = [(got[key], value, f"{place}[{key!r}]") for key, value in expected.items()]
        elif _same_plain(str(got["="]), str(expected["="])):
            return ""
    elif got == expected:
        return ""
    if parts is not None:
        return next(filter(None, (structure_difference(*part) for part in parts)), "")
    return f"{place} is {_in_words(got)} instead of {_in_words(expected)}"


def _same_plain(got: str, expected: str) -> bool:
    try:
        a, b = complex(got), complex(expected)
    except ValueError:
        return got == expected
    return cmath.isclose(a, b, rel_tol=1e-5) or (cmath.isnan(a) and cmath.isnan(b))


def _in_words(structure: Any) -> str:
    """Return words for a part of an output, as `harness.structure_of` describes it."""
    if structure == "T":
        return "a tensor"
    if isinstance(structure, list):
        return f"a list of {len(structure)}"
    if not isinstance(structure, dict):
        return "unknown"
    if "=" in structure:
        return f"{structure['=']!s:.40}"
    if "?" in structure:
        return f"of type {structure['?']!s:.40}"
    return f"a dictionary of {', '.join(structure)!s:.40}"


def first_turn(session: ProblemSession, turns: Turns, *, answered_before: bool = False) -> AbstractContextManager[None]:
    """Return the turn around the first call of a new process; `answered_before`: around a later one. On a GPU the first
    call loads libraries, for a sixth of a second to more than one, and hardly uses the device where the problem is
    small or the reference quick: no evaluator waits for it.
    """
    trial = session.own[0]
    small = trial.input_bytes + trial.output_bytes <= _SMALL or 0 < session.reference_ms <= _BRIEF_MS
    loads = session.config.device != "cpu" and small
    return nullcontext() if loads and not answered_before else turns.beside_others()


def comparison_turn(trial: Trial, turns: Turns) -> AbstractContextManager[None]:
    """Return the turn around comparisons of a trial's outputs; only large ones are compared on a GPU."""
    small = all(is_small(expected.nbytes) for expected in trial.expected)
    return nullcontext() if small else turns.beside_others()


class Correctness:
    """The trials of one candidate: the first, then all others in an unforeseeable order; errors raise Misbehaviour."""

    def __init__(self, contestant: TimedContestant, chance: random.Random, turns: Turns) -> None:
        self._contestant, self._chance, self._turns = contestant, chance, turns
        self._first = self._before = contestant.session.own[0]
        self._earlier: list[CallResult] = []

    def first(self, *, briefly: bool = False) -> None:
        """Ask one of the problem's own trials; `briefly`: windows of large outputs only, of code that passed before."""
        # Code that tunes itself would choose by chance beside others' work: all wait for it, once it has been right.
        self._ask([self._first], briefly=briefly, alone=briefly and self._contestant.tunes_in_calls)

    def others(self) -> None:
        """Ask all other trials, in one turn unless code may compile for a new shape or outputs take long to copy."""
        session = self._contestant.session
        rest = session.own[1 : max(2, session.config.check.trials)]
        rest += [trial for trial in session.trials if trial.kind != "own"]
        self._chance.shuffle(rest)
        # The smaller batch comes right before the larger one: code that compiles for each size has less to do, and
        # errors with any size but one are not mistaken for errors with other values.
        rest.sort(key=lambda trial: trial.kind == "larger")
        smaller = next((place for place, trial in enumerate(rest) if trial.kind == "batch"), len(rest))
        if rest and rest[-1].kind == "larger":
            rest.insert(smaller + 1, rest.pop())
        if rest and rest[-1].other_batch:  # code that compiles anew for the old size must do so before it is locked
            rest.append(self._first)
        together = not self._contestant.compiles_in_calls and all(is_small(trial.output_bytes) for trial in rest)
        for group in [rest] if together and rest else [[trial] for trial in rest]:
            self._ask(group)

    def _ask(self, group: list[Trial], *, briefly: bool = False, alone: bool = False) -> None:
        contestant, session, turns = self._contestant, self._contestant.session, self._turns
        # A call that compiles takes long and hardly uses the device: no evaluator waits for it.
        compiles = contestant.compiles_in_calls and (group[0] is self._first or self._is_new_shape(group[0]))
        turn = nullcontext() if compiles else first_turn(session, turns, answered_before=bool(self._earlier))
        if alone:
            turn = turns.alone(LONGEST_TURN_S)
        with turn if len(group) > 1 else nullcontext():
            calls = nullcontext() if len(group) > 1 else turn
            answers = [self._answer(trial, briefly=briefly, turn=calls) for trial in group]
        for trial, (fetched, changed) in zip(group, answers, strict=True):
            with comparison_turn(trial, turns):
                wrong = compare_call(fetched, trial, session.config)
            if wrong is not None:
                raise Misbehaviour(*_named(wrong, trial, fetched, self._earlier, contestant))
            if changed and not trial.mutated:
                raise Misbehaviour("input_mutation", f"the inputs were overwritten ({kind_in_words(trial.kind)})")
            refuse_shared_memory(session, fetched)
            self._earlier.append(fetched)

    def _is_new_shape(self, trial: Trial) -> bool:
        return trial.other_batch or self._before.other_batch

    def _answer(self, trial: Trial, *, briefly: bool, turn: AbstractContextManager[None]) -> tuple[CallResult, bool]:
        """Return a trial's result, and whether its inputs were overwritten, before the next ones take their place."""
        contestant, session = self._contestant, self._contestant.session
        if self._is_new_shape(trial):
            contestant.called = False
        self._before, variant = trial, session.ask(trial)
        try:
            fetched = ask_trial(contestant, trial, variant, self._chance, briefly=briefly, turn=turn)
        except Misbehaviour as error:
            if trial.other_batch and error.reason == "runtime_error":
                raise Misbehaviour("shape_overfit", f"another batch size: {error.detail}") from None
            if error.reason in ("lazy_tensor", "output_dtype"):
                right = ", ".join(f"{entry.dtype} {list(entry.shape)}" for entry in trial.expected)
                raise Misbehaviour(error.reason, f"{error.detail}; expected: {right}") from None
            raise
        return fetched, inputs_changed(fetched, session.pool.memory, variant, trial.values)


def settle(candidate: TimedContestant) -> None:
    """Bar the candidate from new processes before timing; raise Misbehaviour for changed global state or a live one."""
    changed = candidate.ask(Inspect(), 30.0, "looking at global state")
    changed = [name for name in changed if name not in COARSER]  # a rule decides on these: see `refuse_by_rules`
    if changed:
        reason = "checker_patch" if "modes" in changed else "global_state_tamper"
        raise Misbehaviour(reason, f"the candidate changed global state: {', '.join(changed)}; leave it as it is")
    deadline = time.monotonic() + _ENDING_S
    while candidate.handle.watch.family():
        if time.monotonic() > deadline:
            raise Misbehaviour("leftover_process", "a process of the candidate's outlives its call")
        time.sleep(0.02)
    before = candidate.handle.watch.seccomp_filters()
    candidate.ask(Lock(), 30.0, "locking")
    if before >= 0 and candidate.handle.watch.seccomp_filters() != before + 1:
        raise Misbehaviour("result_forgery", "the harness was kept from locking the process")


def _named(
    wrong: Difference, trial: Trial, fetched: CallResult, earlier: list[CallResult], contestant: TimedContestant
) -> tuple[str, str]:
    """Return the most specific reason for a wrong output, and a line for a reader."""
    detail = f"{wrong.detail} ({kind_in_words(trial.kind)})"
    if contestant.unmatched:
        detail += f"; weights without a place in ModelNew: {', '.join(contestant.unmatched[:4])}"
    if trial.kind == MAGNIFIED:
        return "precision_downgrade", f"out of its range where float32 is not: {detail}"
    own = contestant.session.own[0]
    if wrong.reason == "precision_downgrade":  # so small an error occurs with any size
        return wrong.reason, detail
    if trial.other_batch and not (trial.kind == "larger" and _wrong_from_the_start(fetched, trial, own)):
        return "shape_overfit", f"another batch size: {detail}"
    if wrong.reason in ("wrong_output", "partial_compute", "tolerance_exploit"):
        data = [data for _, data in fetched.outputs]
        if data and any([part for _, part in before.outputs] == data for before in earlier):
            return "result_cache", f"the same output as for earlier inputs: {detail}"
    return wrong.reason, detail


def _wrong_from_the_start(fetched: CallResult, trial: Trial, own: Trial) -> bool:
    """Return whether a larger batch's outputs are wrong within the problem's own size, so that the size is no cause."""
    for output, expected, usual in zip(fetched.tensors(), trial.expected, own.expected, strict=False):
        if output.shape != expected.shape or not expected.shape:
            continue
        rows = slice(usual.shape[0])
        infinite = None if expected.infinite is None else expected.infinite[rows]
        first = replace(expected, truth=expected.truth[rows], infinite=infinite, small=(), slices=())
        if compare(output[rows], first) is not None:
            return True
    return False
