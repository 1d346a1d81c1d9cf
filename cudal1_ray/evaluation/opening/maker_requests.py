"""Opening a problem: the requests to its maker process, and the session that results."""

from __future__ import annotations

import os
import random
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from cudal1_ray.evaluation.baselines import coarse_products
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.correctness.comparison import (
    Expected,
    compared_on,
    expect,
    independent_of_input,
    indistinguishable,
    is_coarse,
    only_finite,
)
from cudal1_ray.evaluation.correctness.trials import random_picks
from cudal1_ray.evaluation.exchange import messages
from cudal1_ray.evaluation.exchange.channel import SharedRegion
from cudal1_ray.evaluation.exchange.messages import Attach, Character, FetchTrial, Open, Opened, Tensors, Traits, Tried
from cudal1_ray.evaluation.exchange.tensors import TensorSpec, aligned, view_of_bytes
from cudal1_ray.evaluation.host.handles import ContestantHandle, Misbehaviour
from cudal1_ray.evaluation.opening.session import (
    DRAWN,
    MAGNIFIED,
    MIXED,
    ProblemFault,
    ProblemSession,
    Trial,
    device_settings,
    resets_tf32,
)
from cudal1_ray.evaluation.sharing.turns import Turns
from cudal1_ray.problems import Problem

# Inputs that are never negative hide what is done to negative ones, so a shift goes below zero where possible. A mask
# that lets everything through hides a candidate that never reads it. Scaled inputs come on a larger batch, which
# exposes a candidate that is right only up to the problem's own size: one trial for both.
FORMS = {
    "scaled": ("larger", "scaled"), "shifted": ("lowered", "raised"), "sparse": ("sparse", "sparse_floats"),
    "one_row": ("one_row", "one_row_scaled", "one_row_sparse"),
}  # fmt: skip
# Sets of inputs, where none can be made out of others: the fewest, and the most within this many seconds.
_SMALL_BANK, _BANK, _BANK_S = 30, 128, 2.0
# Further sets of inputs, where the first ones seem to give the same outputs.
_MORE_SETS = 4
# Most bytes of the inputs and outputs of a call whose problem is opened within one turn.
_SMALL = 16 << 20
# Most bytes of the inputs and outputs of a trial on a part of a large problem's batch.
_PART = 32 << 20
# Memory in calls' inputs and outputs: new and last ones, and as many on the way, of two contestants.
_SIZES_AT_ONCE = 6
# Share of all memory that one problem may take beside others.
_MOST_AT_ONCE = 0.6
# Windows by which the referee knows each input that processes draw.
_INPUT_WINDOWS = 8
# Times that a small problem with constant outputs is opened, with other weights each time.
_OTHER_WEIGHTS = 5
# Seconds of requests about a small problem within one turn.
_TURN_S = 0.2
# Most bytes of inputs that are written out, without their recipe.
_WRITTEN_OUT = 32 << 20
# Bytes of a sparse region, which takes memory only for what is written.
_SPARSE = 64 << 30


class NeedsRoom(Exception):
    """The problem is so large that it must be opened while no other candidate uses this device."""


def may_draw(device: str, nbytes: int) -> bool:
    """Return whether each process draws inputs of that size itself; small ones are copied and mixed, in one kernel."""
    return device != "cpu" and nbytes > _SMALL


def needs_all(device: str, nbytes: int) -> bool:
    """Return whether a problem with `nbytes` of inputs and outputs is too large to be open beside others."""
    if device == "cpu":
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    else:
        total = torch.cuda.mem_get_info(device)[1]
    return _SIZES_AT_ONCE * nbytes > _MOST_AT_ONCE * total


def open_problem(
    maker: ContestantHandle, problem: Problem, config: EvaluationConfig, chance: random.Random, turns: Turns,
    *, has_room: bool, draws: bool = True,
) -> ProblemSession:  # fmt: skip
    """Execute a problem in a maker process and return its session. `draws`: contestants may draw its inputs themselves.
    Raise ProblemFault where it cannot be used, ServerDied where the server died, and NeedsRoom where it is too large
    beside others, without `has_room`.

    Outputs behind a ReLU may all be zero with the weights that were drawn: only a problem with constant outputs for
    other weights, too, is degenerate.
    """
    out = SharedRegion(_SPARSE, others_read_only=False)
    try:
        for attempt in range(1, _OTHER_WEIGHTS + 1):
            opening = _Opening(maker, out, problem, config, chance, turns, has_room=has_room, draws=draws)
            session = opening.session()
            if not session.degenerate or not opening.small or attempt == _OTHER_WEIGHTS:
                break
            session.close()
        if session.degenerate and config.rules.degenerate == "reject":
            session.close()
            raise ProblemFault("degenerate_input", "the reference's output does not depend on its input")
        return session
    except Misbehaviour as error:
        raise ProblemFault.of_reference(error, config.limits) from None
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, OverflowError) as error:
        if config.trust_problems:
            raise
        raise ProblemFault("reference_error", f"an answer that the harness never gives ({error})") from None
    finally:
        out.close()


class _Opening:
    """The requests to a maker about one problem, and the session that results."""

    def __init__(
        self, maker: ContestantHandle, out: SharedRegion, problem: Problem, config: EvaluationConfig,
        chance: random.Random, turns: Turns, *, has_room: bool, draws: bool,
    ) -> None:  # fmt: skip
        self.maker, self.out, self.problem, self.config = maker, out, problem, config
        self.chance, self.turns = chance, turns
        self.seed = chance.getrandbits(40)
        self.model_seed = chance.getrandbits(31)  # contestants know it, and it reveals nothing of the inputs' seed
        nothing = SharedRegion(1, others_read_only=True)
        maker.ask(Attach(nothing.size, out.size), 30.0, doing="setting up", fds=(nothing.fd, out.fd))
        nothing.close()
        coarse = config.rules.tf32 == "allow" and config.device != "cpu"
        request = Open(
            problem.source, self.seed, self.model_seed, device_settings(config),
            coarse_products=coarse or coarse_products(config.against, config.device),
            eval_mode=config.rules.mode == "eval", resets_tf32=resets_tf32(config), alone=has_room,
        )  # fmt: skip
        self.opened: Opened = maker.ask(request, config.limits.load_timeout_s, doing="the reference's construction")
        size = self.opened.io_bytes
        for claimed in (self.opened.nbytes, size):
            _within_limits(claimed, config)
        self.large, self.alone = size > config.check.large_mib << 20, needs_all(config.device, size)
        if self.alone and not has_room:
            raise NeedsRoom
        self.small = size <= _SMALL
        self.draws = draws and may_draw(config.device, size)
        # The same for all trials, or a constant output would not be recognised.
        windows = random_picks(chance, config.check.windows)
        self.picks = windows if self.large else None

    def session(self) -> ProblemSession:
        with self._one_turn():
            self._character()
            trials = self._trials()
            variation = self._variation([trial for trial in trials if trial.kind == "own"])
        if variation == "bank":  # values come from the problem itself, in many different sets
            with self._one_turn():
                trials += self._bank(trials[0])
        session = self._lay_out(trials, variation)
        session.degenerate = not self.traits.stochastic and self._degenerate(trials)
        session.alone = self.alone
        return session

    def _degenerate(self, trials: list[Trial]) -> bool:
        """Return whether a constant output would pass."""
        # A problem with fixed inputs is tried on others, or any function of them would look constant.
        fixed = self.traits.fixed_inputs
        varied = [
            trial for trial in trials if trial.kind == "own" or (fixed and trial.kind not in ("batch", MAGNIFIED))
        ]
        if independent_of_input([[expected.truth for expected in trial.expected] for trial in varied]):
            return True
        usual = [trial.expected for trial in trials if not trial.other_batch and trial.kind != MAGNIFIED]
        if not indistinguishable(usual, self.config.device):
            return False
        # Two sets may give the same number by chance.
        more = [self._own_trial().expected for _ in range(_MORE_SETS)]
        return indistinguishable([*usual, *more], self.config.device)

    def _one_turn(self) -> AbstractContextManager[None]:
        """Return the turn around requests that are answered, and compared, sooner than a turn comes."""
        return self.turns.keeping(_TURN_S) if self.small else nullcontext()

    def _character(self) -> None:
        request = Character(self.seed, self.picks, self.draws)
        with self.turns.beside_others():
            self.traits: Traits = self.maker.ask(request, self._wait_s, doing="the reference's forward")
        if self.traits.stateful:
            raise ProblemFault(
                "reference_error", "the reference keeps state between calls; let forward depend on its inputs alone"
            )

    def _trials(self) -> list[Trial]:
        """Return the trials of every kind that the problem allows, its own first."""
        check = self.config.check
        own = [self._own_trial() for _ in range(2 if self.large else max(2, check.trials))]
        trials = list(own)
        for kind in [*check.distributions, *["batch"] * check.shape_trials]:
            for form in FORMS.get(kind, (kind,)):
                if form == "larger" and (self.large or self.traits.fixed_inputs or not check.shape_trials):
                    continue
                if (trial := self._fair(form, own[0])) is not None:
                    trials.append(trial)
                    break
        coarse = any(e.dtype is torch.float32 and is_coarse(e, check) for e in own[0].expected)
        if check.range_trial and coarse and (trial := self._fair(MAGNIFIED, own[0])) is not None:
            trial.expected = [only_finite(expected) for expected in trial.expected]
            trials.append(trial)
        return trials

    def _fair(self, kind: str, own: Trial) -> Trial | None:
        """Return a trial of that kind, of a large problem on a part of its batch; None where it would not be fair."""
        trial = self._smaller(kind, own) if self.large else self._trial(kind)
        return trial if trial is not None and _usable(trial, own) else None

    def _smaller(self, kind: str, own: Trial) -> Trial | None:
        """Return a trial of a large problem on a small part of its batch. Take the whole batch where it has no part and
        that is not too much, or where inputs are fixed: whether they matter is checked at their own size.
        """
        large = self.config.check.large_mib << 20
        if kind != "batch" and self.traits.fixed_inputs:
            return self._trial(kind)
        most = max(1, min(large, _PART) * own.input_bytes // (own.input_bytes + own.output_bytes))
        trial = self._trial(kind, most_bytes=most)
        if trial is not None or kind == "batch" or own.input_bytes > 4 * large:
            return trial
        return self._trial(kind)

    def _variation(self, own: list[Trial]) -> str:
        """Return how the inputs of timed calls are made new."""
        if self.traits.drawing:
            return DRAWN
        if len({tuple(spec.shape for spec in trial.specs) for trial in own}) > 1:
            return "bank"
        fixed, own_is_finite = self.traits.fixed_inputs, all(expected.infinite is None for expected in own[0].expected)
        for way in MIXED[:2] if fixed else MIXED:
            finite = self._ask(way, self.chance.getrandbits(40), probe=True).finite
            if finite or (finite is not None and not own_is_finite):
                return way
        return "jitter" if fixed else "bank"

    def _bank(self, own: Trial) -> list[Trial]:
        size = max(1, own.input_bytes + own.output_bytes)
        count = min(_BANK, (self.config.timing.batch_memory_mib << 20) // size) - 2
        trials: list[Trial] = []
        deadline = time.monotonic() + _BANK_S
        for number in range(count):
            if number >= _SMALL_BANK and time.monotonic() > deadline:
                break
            trials.append(self._own_trial())
        return trials

    def _lay_out(self, trials: list[Trial], variation: str) -> ProblemSession:
        """Return the session with its pool: weights, constructor arguments, fixed inputs, room for renewed ones."""
        own = [trial for trial in trials if trial.kind == "own"]
        slot, start = max(256, *(trial.input_bytes for trial in own)), aligned(self.opened.nbytes)
        if variation == DRAWN:
            slot = max([256, *(trial.input_bytes for trial in trials if trial.input_picks is None)])
        homes = [] if variation in ("bank", DRAWN) else [start + i * slot for i in range(len(own))]
        room = max(1, min(self.config.timing.max_batch_calls, _WRITTEN_OUT // slot))
        batch = self.config.timing.batch_memory_mib << 20 if variation == "bank" else room * slot
        batch = 0 if variation == DRAWN else max(batch, *(trial.input_bytes for trial in trials))  # any trial fits
        pool = SharedRegion(start + (len(homes) + 1) * slot + batch + (1 << 20), others_read_only=True)
        pool.take(self.out, self.opened.nbytes)
        session = ProblemSession(
            self.problem.problem_id, self.problem.source, self.config, self.opened, self.traits, trials, variation,
            pool, homes, self.model_seed, room,
        )  # fmt: skip
        for trial, home in zip(own, homes, strict=False):
            session.place(trial, home)
            trial.values = []  # they stay in the pool, and may be gigabytes
        return session

    def _own_trial(self) -> Trial:
        if (trial := self._trial("own")) is None:
            raise Misbehaviour("runtime_error", "the problem's own inputs cannot be made once more")
        return trial

    def _trial(self, kind: str, *, most_bytes: int = 0) -> Trial | None:
        """Return a trial of `kind` or None. `most_bytes`: of the inputs on a part of the batch; 0 = the whole batch."""
        model_seed, seed = self.chance.getrandbits(31), self.chance.getrandbits(40)
        if self._ask(kind, seed, model_seed, most_bytes=most_bytes).skip:
            return None
        picks = None
        if kind == "own" and self.traits.drawing and not most_bytes:
            picks = random_picks(self.chance, _INPUT_WINDOWS)
        answer: Tensors = self.maker.ask(FetchTrial(picks), self._wait_s, doing="copying what the reference gave")
        _within_limits(sum(spec.nbytes for spec in (*answer.inputs, *answer.native, *answer.exact)), self.config)
        memory = memoryview(self.out.memory)
        places = answer.windows or [(spec.offset, spec.nbytes) for spec in answer.inputs]
        expected = self._expected(answer, memory)
        if unknown := _unknown(answer.structure):
            raise ProblemFault(
                "reference_error", f"forward gives {unknown}; let it give tensors, numbers, lists, dictionaries"
            )
        return Trial(
            kind, answer.inputs, [bytearray(memory[offset : offset + nbytes]) for offset, nbytes in places],
            answer.structure, expected, [spec.device for spec in answer.native], answer.mutated, model_seed,
            answer.in_order, other_batch=kind in ("batch", "larger") or most_bytes > 0, picks=self.picks, seed=seed,
            input_picks=picks,
        )  # fmt: skip

    def _expected(self, answer: Tensors, memory: memoryview) -> list[Expected]:
        """Return the expectations of a trial's outputs, which lie in `memory`."""
        # Tensors that a GPU compares are copied on their way there.
        stays = [compared_on(self.config.device, spec.nbytes) == "cpu" for spec in answer.native]

        def read(specs: list[TensorSpec]) -> list[torch.Tensor]:
            tensors = []
            for spec, copied in zip(specs, stays, strict=True):
                data = memory[spec.offset : spec.offset + spec.nbytes]
                tensors.append(view_of_bytes(bytearray(data) if copied else data, spec))
            return tensors

        native = read(answer.native)
        # Random layers draw other numbers in double precision, so there the native reference is the truth.
        exact = read(answer.exact) if answer.exact and not self.traits.stochastic else [None] * len(native)
        coarse = answer.coarse or [(0.0, 0.0)] * len(native)
        return [
            expect(n, e, self.config.check, self.config.device, shape, errors)
            for n, e, shape, errors in zip(native, exact, answer.shapes, coarse, strict=True)
        ]

    def _ask(self, kind: str, seed: int, model_seed: int = 0, *, probe: bool = False, most_bytes: int = 0) -> Tried:
        """Have the reference compute a trial; `probe`: only find out whether it can process such inputs."""
        request = messages.ComputeTrial(kind, seed, model_seed, probe, most_bytes, self.picks)
        with self.turns.beside_others():
            return self.maker.ask(request, self._wait_s, doing="the reference's forward")

    @property
    def _wait_s(self) -> float:
        return max(self.config.limits.first_call_timeout_s, self.config.limits.call_timeout_s)


def _usable(trial: Trial, own: Trial) -> bool:
    """Return whether a variation is fair: its outputs are as finite as the own trial's, and as many as its batch."""
    if any(e.infinite is not None for e in trial.expected) and not any(e.infinite is not None for e in own.expected):
        return False
    if trial.other_batch and trial.output_bytes == own.output_bytes:
        return all(not e.shape for e in trial.expected)
    return True


def _unknown(structure: Any) -> str:
    """Return the type of an output that does not consist of tensors, numbers, texts and None; else an empty text."""
    if isinstance(structure, dict) and isinstance(structure.get("?"), str):
        return structure["?"]
    inner = structure.values() if isinstance(structure, dict) else structure if isinstance(structure, list) else ()
    return next(filter(None, map(_unknown, inner)), "")


def _within_limits(claimed_bytes: int, config: EvaluationConfig) -> None:
    """Raise Misbehaviour where a problem claims more of the sparse region than this process may hold."""
    if not config.trust_problems and not 0 <= claimed_bytes <= config.limits.memory_mib << 20:
        raise Misbehaviour("memory_limit", f"{claimed_bytes / 2**20:.0f} MiB of {config.limits.memory_mib} MiB allowed")
