"""One contestant as the referee sees it: its model loaded, its calls in batches, every answer checked."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from cudal1_ray.evaluation.baselines import dressing
from cudal1_ray.evaluation.compiling.compiler import Extensions
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.exchange import messages
from cudal1_ray.evaluation.exchange.channel import SharedRegion
from cudal1_ray.evaluation.exchange.placed_outputs import PlacedOutput
from cudal1_ray.evaluation.exchange.server_messages import Request
from cudal1_ray.evaluation.exchange.tensors import DTYPES, WINDOW, TensorSpec, aligned, view_of_bytes, window_starts
from cudal1_ray.evaluation.exchange.variant import Variant
from cudal1_ray.evaluation.host.handles import ContestantHandle, ForkServer, Misbehaviour, NoAnswer
from cudal1_ray.evaluation.host.kept_process import KeptProcess
from cudal1_ray.evaluation.opening.session import HANDED_WINDOWS, ProblemSession, device_settings, resets_tf32
from cudal1_ray.evaluation.sandbox.process_watch import Instant
from cudal1_ray.evaluation.screening.hints import compiles, compiles_in_calls, longest_alone_s, tunes_in_calls
from cudal1_ray.evaluation.screening.static_check import StaticCheck, check_static

# Longest wait for a batch, as a multiple of the slowest one so far.
_MUCH_SLOWER = 20
# Bytes of one call's inputs above which old inputs are freed before new ones are made.
_LET_GO_FIRST = 1 << 30
# Most tensors of one batch whose places are listed.
_MOST_PLACED = 4096
# Errors in which reading a forged answer may end.
_NO_ANSWER = (KeyError, TypeError, ValueError, RuntimeError, OverflowError)


class ReferenceFailed(Misbehaviour):
    """The reference misbehaved, not the candidate."""


class TimedContestant:
    """A contestant that has loaded its model: calls in batches, each batch timed by the referee's own clocks."""

    def __init__(
        self, server: ForkServer, session: ProblemSession, code: str, role: str, cores: list[int],
        extensions: Extensions | None = None, process: KeptProcess | None = None, *, streams: bool = False,
    ) -> None:  # fmt: skip
        """Start a contestant and have it build its model. `process`: an existing one, which goes on after this
        contestant is closed. `streams`: see `ForkServer.spawn`; the two sides of a comparison have the same.
        """
        self.session, self.role, self.process = session, role, process
        self.failed = self._closed = self.called = self._spoilt = False
        self.config: EvaluationConfig = session.config
        self.generation = server.generation
        self._call_s = 0.0  # the longest call so far, by the wall clock
        self.compiles_in_calls, self.tunes_in_calls = compiles_in_calls(code), tunes_in_calls(code)
        limits = self.config.limits
        self.call_limit_s, self._first_call_limit_s = limits.call_timeout_s, limits.first_call_timeout_s
        alone_s = math.inf
        if role == "candidate":
            alone_s = longest_alone_s(code, limits, session.load_s)
            if not compiles(code):
                self._first_call_limit_s = min(self._first_call_limit_s, limits.plain_first_call_timeout_s)
        self.out = SharedRegion(session.out_bytes, others_read_only=False)
        try:
            handle = process.take() if process else server.spawn(role=role, cores=cores, streams=streams)
        except BaseException:
            self.out.close()
            raise
        self.handle: ContestantHandle = handle
        self.handle.shares(session.shared_mib)
        try:
            regions = session.pool.fd, self.out.fd
            self.ask(messages.Attach(session.pool.size, self.out.size), 30.0, "setting up", regions)
            extensions = extensions or Extensions()
            request, start = _load_request(session, code, role, extensions), time.monotonic()
            fds = tuple(extensions.libraries.values())
            answer = self.ask(request, limits.load_timeout_s, "import and construction", fds, alone_s)
            self.unmatched: list[str] = [name[:100] for name in answer[:8]]
            if role == "reference":
                session.load_s = time.monotonic() - start
        except BaseException:
            self.close()
            raise

    def ask(
        self, request: Request, timeout_s: float, doing: str, fds: tuple[int, ...] = (), alone_s: float = math.inf
    ) -> Any:
        """Return what `ContestantHandle.ask` returns; raise the reference's failures as ReferenceFailed."""
        try:
            return self.handle.ask(request, timeout_s, doing=doing, fds=fds, alone_s=alone_s)
        except Misbehaviour as error:
            raise self._own(error) from None

    def _own(self, error: Exception) -> Exception:
        """Return the error as this contestant's: a reference's Misbehaviour is ReferenceFailed."""
        self.failed = True
        if self.role == "reference" and isinstance(error, Misbehaviour):
            return ReferenceFailed(error.reason, error.detail)
        return error

    def prepare(
        self, variants: list[Variant], seeds: list[int] | None, *,
        reuse: bool = False, late: bool = False, ready: bool = False, unclocked: bool = False, gap: int = 0,
    ) -> None:  # fmt: skip
        """Have the inputs of the next calls made. `reuse`: free the last calls' inputs first, so that new values get
        their addresses; always done with inputs too large to exist twice. `late`: make each input only when its call's
        turn comes; with `ready`, before as well. `unclocked`: for calls without an inner clock. `gap`: bytes to hold
        after the inputs.
        """
        reuse = reuse or self.session.own[0].input_bytes > _LET_GO_FIRST
        spoil, self._spoilt = self.session.spoils and not self._spoilt, False
        request = messages.Prepare(variants, seeds, reuse, late, ready, unclocked, gap, spoil)
        self.ask(request, 60.0, "preparing inputs")

    def space(self, before: int, after: int, *, reuse: bool) -> None:
        """Do the part of `prepare` that can be done before it: hold bytes `before` the next inputs, unless these reuse
        the old places, have as many ready as will be left `after` them, and overwrite the last outputs.
        """
        self.ask(messages.Space(before, after, reuse, self.session.spoils), 60.0, "moving its memory")
        self._spoilt = True

    def scatter(self, mib: int, *, reserve_mib: int = 0) -> None:
        """Free inputs and outputs; move later allocations by `mib`, in a new piece of `reserve_mib` (0 = the old)."""
        self.ask(messages.Scatter(mib, reserve_mib), 60.0, "moving its memory")

    def go(self, calls: int, *, unclocked: bool = False, queued: bool = False, turn: int | None = None) -> list[float]:
        """Run the prepared calls; return the seconds of each, or of all together, by the inner clock (none if
        `unclocked`). `queued`: on a GPU each is launched before the device begins it. `turn`: run only this `late`
        call.
        """
        limit = self.call_limit_s * max(1, calls)
        if not self.called:
            limit = max(limit, self._first_call_limit_s)
            self.called = True
        elif self._call_s:  # bounds the wait for an endless loop in one of many calls
            limit = min(limit, self.call_limit_s + _MUCH_SLOWER * calls * self._call_s)
        start = time.monotonic()
        inner: list[int] = self.ask(messages.Go(unclocked, queued, turn), limit, "forward")
        if calls:
            self._call_s = max(self._call_s, (time.monotonic() - start) / calls)
            if not self.compiles_in_calls:  # extensions exist by now, whatever shape comes next
                plain_s = self.config.limits.plain_first_call_timeout_s
                self._first_call_limit_s = min(self._first_call_limit_s, plain_s)
        if len(inner) != (0 if unclocked else 1 if self.config.device == "cpu" else calls):
            raise NoAnswer("a time for each call")
        return [time * 1e-9 for time in inner]

    def hand_over(self, picks: list[float]) -> None:
        """Wait until the contestant has handed over the outputs of all calls, or windows of them."""
        request = messages.HandOver(picks[:HANDED_WINDOWS], self.session.handed_bytes)
        self.ask(request, 60.0, "handing over outputs")

    def handed(self, call: int) -> bytes:
        """Return one call's output as `hand_over` received it."""
        room = self.session.handed_bytes
        return bytes(self.out.memory[call * room : (call + 1) * room])

    def where(self, calls: int, first: int = 0) -> list[PlacedOutput] | None:
        """Return where the outputs of all calls from `first` on lie, for `read`; None where the contestant's memory is
        closed, or where listing the places takes longer than handing an output over.
        """
        tensors = len(self.session.own[0].expected)
        if self.config.device != "cpu" or not self.handle.reads_memory or calls * tensors > _MOST_PLACED:
            return None
        placed: list[PlacedOutput] = self.ask(messages.Where(first), 60.0, "handing over outputs")
        if len(placed) != calls - first:
            raise NoAnswer("a place for each call's output")
        return placed

    def read(self, output: PlacedOutput, picks: list[float] | None) -> CallResult:
        """Return what `fetch` returns, without the contestant, which does not notice and cannot act meanwhile."""
        try:
            if output.nbytes(picks) > self.out.size:  # no right answer is as large
                raise ValueError("more than fits")
            values = output.read(self.handle.read, picks)
        except (Misbehaviour, *_NO_ANSWER) as error:
            unreadable = Misbehaviour("result_forgery", f"an output that cannot be read ({error})")
            raise self._own(error if isinstance(error, Misbehaviour) else unreadable) from None
        return CallResult(output.structure, values, [tensor.shape for tensor in output.tensors], picks)

    def fetch(self, call: int, picks: list[float] | None) -> CallResult:
        """Return the outputs of one call; of large tensors only the windows at `picks`, from 0 to 1."""
        answer: messages.Output = self.ask(messages.Fetch(call, picks), 60.0, "handing over outputs")
        if len(answer.shapes) != len(answer.tensors):
            raise NoAnswer("a shape for each output")
        return CallResult(answer.structure, self._read(answer.tensors), answer.shapes, picks)

    def fetch_inputs(self, call: int, picks: list[float], into: CallResult) -> None:
        """Fetch one call's inputs after the call, of large ones at `picks`, and whose memory its output shares; to be
        called after all outputs have been fetched.
        """
        answer: messages.FetchedInputs = self.ask(messages.FetchInputs(call, picks), 60.0, "handing over inputs")
        into.inputs, into.input_picks = [data for _, data in self._read(answer.tensors)], picks
        into.aliased, into.borrowed = answer.aliased, answer.borrowed

    def _read(self, specs: list[TensorSpec]) -> list[tuple[TensorSpec, bytearray]]:
        """Return the tensors, copied out of the shared region first, so that no compared value can change any more."""
        if sum(spec.nbytes for spec in specs) > self.out.size:  # each spec might name the whole region
            raise NoAnswer("more than fits")
        copies = []
        for spec in specs:
            dense = spec.elements() * DTYPES[spec.dtype].itemsize
            whole = spec.nbytes in (0, spec.expected_nbytes()) and (not spec.strides or spec.nbytes in (0, dense))
            if not whole or spec.offset + spec.nbytes > self.out.size:
                raise NoAnswer("tensor outside the region")
            with memoryview(self.out.memory) as memory:
                copies.append((spec, bytearray(memory[spec.offset : spec.offset + spec.nbytes])))
        return copies

    def instant(self) -> Instant:
        try:
            return self.handle.watch.instant()
        except ProcessLookupError:
            raise self._own(self.handle.death()) from None

    def reset(self) -> None:
        self.ask(messages.Reset(), 60.0, "resetting")

    def close(self) -> None:
        """End the contestant, or give its process back; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self.process is None:
            self.handle.close()
        elif self.failed:  # it may have left the process in any state
            self.process.drop()
        else:
            self.process.clear()
        self.out.close()


def _load_request(session: ProblemSession, code: str, role: str, extensions: Extensions) -> messages.Load:
    """Return what a contestant needs to build its model; the same for the reference and for a candidate."""
    config, opened = session.config, session.opened
    look = check_static(code, config.rules, gate=config.check.static_gate) if role == "candidate" else StaticCheck()
    against = config.against if role == "reference" else "eager"
    # Arguments may contain objects that the problem file defines.
    names_the_problem = not opened.init or any(b"reference" in packed for packed in (opened.init, opened.arguments))
    return messages.Load(
        role, code, list(look.handlers), device_settings(config), session.source if names_the_problem else "", opened,
        session.traits.drawing, eval_mode=config.rules.mode == "eval", resets_tf32=resets_tf32(config),
        outputs=str(config.rules.outputs), in_order=session.in_order, model_seed=session.model_seed,
        against=against, dressing=dressing(against),
        extensions=list(extensions.libraries), failed_extensions=extensions.failed,
    )  # fmt: skip


@dataclass
class CallResult:
    """One call's result, in the referee's own memory; of large outputs the windows at `picks`, of large inputs those at
    `input_picks`.
    """

    structure: Any
    outputs: list[tuple[TensorSpec, bytearray]]
    shapes: list[tuple[int, ...]]  # of the whole outputs
    picks: list[float] | None = None
    aliased: bool = False  # whether the output shares memory with another call's
    borrowed: str = ""  # whose memory the output lies in, where that is not its own
    inputs: list[bytearray] = field(default_factory=list)
    input_picks: list[float] = field(default_factory=list)

    @property
    def devices(self) -> list[str]:
        return [spec.device for spec, _ in self.outputs]

    @property
    def nbytes(self) -> int:
        return sum(len(data) for data in (*self.inputs, *(data for _, data in self.outputs)))

    def begins_as(self, handed: bytes) -> bool:
        """Return whether the output begins as `handed` over, as far as that fitted: a large one by first windows."""
        offset = 0
        for (spec, data), shape in zip(self.outputs, self.shapes, strict=True):
            expected, starts = data, window_starts(math.prod(shape), self.picks and self.picks[:HANDED_WINDOWS])
            if starts is not None and spec.elements() < math.prod(shape):  # windows, and these are the first of them
                expected = data[: len(starts) * WINDOW * DTYPES[spec.dtype].itemsize]
            elif starts is not None:
                row = view_of_bytes(data, spec).reshape(-1)
                parts = (row[start : start + WINDOW].view(torch.uint8).numpy().tobytes() for start in starts)
                expected = bytearray().join(parts)
            if expected != handed[offset : offset + len(expected)] and offset + len(expected) <= len(handed):
                return False
            offset = aligned(offset + len(expected))
        return True

    def tensors(self) -> list[torch.Tensor]:
        return [view_of_bytes(data, spec) for spec, data in self.outputs]
