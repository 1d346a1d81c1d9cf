"""Where outputs lie is said at once, in memory that takes long to read; then they are computed, while it is read."""
# problem: small
# expect: refused
# reasons: answer_theft, late, wrong
# ruff: noqa

import mmap
import time

import torch
import torch.nn as nn

EXTENT = 4 << 20


def frame_with(name):
    """A variable of the harness, found by way of a generator's own frame."""
    box = []

    def back():
        yield getattr(getattr(box[0], "gi_frame"), "f_back")

    box.append(back())
    frame = next(box[0])
    while frame is not None:
        if name in getattr(frame, "f_locals"):
            return getattr(frame, "f_locals")[name]
        frame = getattr(frame, "f_back")


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.harness, self.waiting, self.asked, self.next, self.rows = None, [], "", 0, []

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def take(self):
        self.harness = frame_with("operations")
        for _ in range(200):
            memory = mmap.mmap(-1, EXTENT + 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.rows.append(torch.frombuffer(memory, dtype=torch.float32))
        channel = self.harness["go"].__self__.channel
        send, receive = channel.send, channel.receive_with_fds

        def sent(*arguments, **options):
            result = send(*arguments, **options)
            if self.asked == "Where":
                time.sleep(1e-4)
                self.make()
            return result

        def received(*arguments, **options):
            result = receive(*arguments, **options)
            self.asked = type(result[0]).__name__
            if self.asked == "Prepare":
                self.waiting = []
            elif self.asked in ("Fetch", "HandOver"):
                self.make()
            return result

        channel.send, channel.receive_with_fds = sent, received

    def make(self):
        waiting, self.waiting = self.waiting, []
        with torch.no_grad():
            for output, x in waiting:
                output.copy_(self.work(x))

    def __call__(self, x):
        if self.harness is None:
            self.take()
            return self.work(x)
        rows, columns = x.shape
        self.next = (self.next + 1) % len(self.rows)
        output = self.rows[self.next].as_strided((rows, columns), ((EXTENT >> 2) // rows, 1))
        self.waiting.append((output, x))
        return output

    forward = __call__
