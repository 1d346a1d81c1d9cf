"""Outputs are read where they lie in a contestant's memory, in any layout, without running any code of it."""

from __future__ import annotations

import multiprocessing
import os
import random

import msgspec
import pytest
import torch
from evaluator_settings import quick_config
from problems_for_tests import problem, renamed

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.exchange.messages import Where, read_answer
from cudal1_ray.evaluation.exchange.placed_outputs import PlacedOutput, PlacedTensor, place_of
from cudal1_ray.evaluation.exchange.tensors import WINDOW, plain_tensor, view_of_bytes, window_starts
from cudal1_ray.evaluation.host import handles
from cudal1_ray.evaluation.host.handles import Misbehaviour
from cudal1_ray.evaluation.host.timed_contestant import CallResult, TimedContestant
from cudal1_ray.evaluation.sandbox.kernel_calls import read_memory
from cudal1_ray.evaluation.timing.pairs import Pairs

pytestmark = pytest.mark.usefixtures("warm_server")

BIG = 3 * WINDOW


def here(address: int, nbytes: int) -> bytearray:
    return read_memory(os.getpid(), address, nbytes)


LAYOUTS = {
    "dense": lambda: torch.randn(6, 5),
    "none": lambda: torch.randn(0, 5),
    "one number": lambda: torch.tensor(3.5),
    "permuted": lambda: torch.randn(4, 5, 6).permute(2, 0, 1),
    "expanded": lambda: torch.randn(4, 1).expand(4, 7),
    "the last step": lambda: torch.randn(8, 100, 16)[:, -1],
    "far apart": lambda: torch.empty(9 * (8 << 20)).as_strided((9, 4), (8 << 20, 1)).normal_(),
    "conjugated": lambda: torch.randn(4, 4, dtype=torch.complex64).conj(),
    "negated": lambda: torch.randn(4, 4, dtype=torch.complex64).conj().imag,
    "half": lambda: torch.randn(33).bfloat16(),
    "truth": lambda: torch.randn(33) > 0,
    "large": lambda: torch.randn(4, WINDOW),
    "large, channels last": lambda: torch.randn(4, 64, 48, 48).to(memory_format=torch.channels_last),
    "large, a slice of more": lambda: torch.randn(700, 2048)[:, 100:900],
    "large, transposed": lambda: torch.randn(640, 800).t(),
    "large, one row": lambda: torch.randn(2 * BIG)[::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("picks", [None, [0.3, 0.0, 1.0]], ids=["whole", "windows"])
def test_outputs_when_their_layout_is_odd_are_read_as_they_lie(layout, picks):
    tensor = LAYOUTS[layout]()
    assert not plain_tensor(tensor)
    placed = place_of(tensor)
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    if (starts := window_starts(tensor.numel(), picks)) is not None:
        plain = torch.cat([plain.reshape(-1)[start : start + WINDOW] for start in starts])
    ((spec, data),) = PlacedOutput("T", (placed,)).read(here, picks)
    assert spec.nbytes == len(data) == PlacedOutput("T", (placed,)).nbytes(picks) == plain.nbytes
    assert torch.equal(view_of_bytes(data, spec), plain)


def _answered(outputs):
    return read_answer(msgspec.json.encode(outputs), Where(0))


def test_outputs_when_their_addresses_are_invalid_are_refused():
    good = list(msgspec.structs.astuple(place_of(torch.randn(3))))
    assert _answered([["T", [good]]])[0].tensors[0].shape == (3,)
    bad = [None, [["T"]], [["T", [good[:4]]]], [["T", [good] * 3000]]]
    for place, value in ((0, "float7"), (1, [-3]), (2, [1, 1]), (3, "0x7f"), (3, -8), (4, 0)):
        bad.append([["T", [[*good[:place], value, *good[place + 1 :]]]]])
    for outputs in bad:
        with pytest.raises(ValueError):
            _answered(outputs)
    nowhere = PlacedTensor("float32", (4,), (1,), 4096, "cpu")
    with pytest.raises(OSError, match="Bad address"):
        nowhere.values(here, None)
    scattered = PlacedTensor("float32", (1 << 17, 1 << 12), (1 << 26, 1 << 14), 4096, "cpu")
    with pytest.raises((ValueError, OSError)):
        scattered.values(lambda address, nbytes: bytearray(nbytes), None)


def _holds(connection):
    held = torch.arange(5.0)
    connection.send(place_of(held))
    connection.recv()


def test_memory_when_another_process_waits_is_read():
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_holds, args=(theirs,))
    child.start()
    try:
        placed = ours.recv()
        values = placed.values(lambda address, nbytes: read_memory(child.pid, address, nbytes), None)
        assert torch.equal(torch.frombuffer(values, dtype=torch.float32), torch.arange(5.0))
    finally:
        ours.send("done")
        child.join()


@pytest.fixture(scope="module")
def evaluator():
    config = quick_config()
    config.check.static_gate = False
    with Evaluator(config) as evaluator:
        yield evaluator


def test_outputs_when_handed_over_differ_from_those_in_memory_are_refused():
    output = torch.randn(3, WINDOW)
    row = output.reshape(-1)
    picks = [0.4, 0.9, 0.0, 1.0]
    starts = window_starts(row.numel(), picks[:2])
    handed = b"".join(row[start : start + WINDOW].numpy().tobytes() for start in starts)
    (whole,) = PlacedOutput("T", (place_of(output),)).read(here, None)
    fetched = CallResult("T", [whole], [tuple(output.shape)], picks)
    assert fetched.begins_as(handed) and not fetched.begins_as(handed[:-1] + b"x")
    assert fetched.begins_as(handed[:-8])  # the rest did not fit when it was handed over


LATE_OUTPUT = """
import torch


class Late(ModelNew):
    def forward(self, x):
        if not hasattr(self, "table"):
            def back():
                yield box[0].gi_frame.f_back

            box = []
            box.append(back())
            frame = next(box[0])
            while "operations" not in frame.f_locals:
                frame = frame.f_back
            self.table, self.waiting = frame.f_locals["operations"], []
            fetch = self.table["fetch"]
            self.table["hand_over"] = lambda message, fds: None

            def late(message, fds):
                with torch.no_grad():
                    for output, x in self.waiting:
                        output.copy_(super(Late, self).forward(x))
                self.waiting = []
                return fetch(message, fds)

            self.table["fetch"] = late
        output = torch.empty_like(x)
        self.waiting.append((output, x))
        return output


ModelNew = Late
"""


def test_call_without_outputs_is_rejected_when_only_the_referee_times(evaluator):
    session = evaluator._problems.session(problem("small"), has_room=True)
    code = renamed("small").replace("super().__init__()", "nn.Module.__init__(self)") + LATE_OUTPUT
    candidate = TimedContestant(evaluator._server, session, code, "candidate", [])
    candidate.handle.reads_memory = False
    pairs = Pairs(session, evaluator._references.take(session), candidate, random.Random(1))
    try:
        with pytest.raises(Misbehaviour, match="not there yet") as caught:
            pairs.unclocked_calls()
    finally:
        candidate.close()
    assert caught.value.reason == "lazy_tensor"


def test_outputs_when_memory_is_closed_are_handed_over(monkeypatch):
    monkeypatch.setattr(handles.ContestantHandle, "_is_open", lambda handle, place: False)
    with Evaluator(quick_config()) as evaluator:
        honest = renamed("chain").replace("torch.relu(self.a(x))", "self.a(x).relu_()")
        verdict = evaluator.evaluate(problem("chain"), honest)
        assert verdict.accepted and verdict.speedup_low < 2.0 and verdict.speedup_high > 0.5, verdict
        assert not evaluator.evaluate(problem("chain"), honest.replace("relu_", "tanh_")).accepted
