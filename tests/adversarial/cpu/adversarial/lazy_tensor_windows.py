"""Only those windows of outputs that are asked for, computed where they would be copied to, in the time of a copy."""
# problem: large_relu
# expect: refused
# reasons: answer_theft, late, wrong
# ruff: noqa

import sys

import torch
import torch.nn as nn


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


def work(x, out=None):
    return torch.clamp(x, min=0, out=out).mul_(2)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.harness, self.waiting = None, {}

    def take(self):
        """The harness hands over what is computed then."""
        self.harness = frame_with("operations")
        contestant = self.harness["go"].__self__
        modules = {name.rsplit(".", 1)[-1]: module for name, module in sys.modules.items() if ".exchange." in name}
        tensors, messages = modules["tensors"], modules["messages"]
        fetch, hand_over, prepare = (self.harness[name] for name in ("fetch", "hand_over", "prepare"))

        def fetched(asked, fds):
            output = contestant.outputs[asked.call]
            x = self.waiting.get(id(output))
            starts = tensors.window_starts(output.numel(), asked.picks)
            if x is None or starts is None:
                if x is not None:
                    work(x, output)
                return fetch(asked, fds)
            size = len(starts) * tensors.WINDOW
            spec = tensors.TensorSpec("float32", (size,), (), 0, 4 * size)
            row = tensors.row_in_place(contestant.out, spec)
            for number, start in enumerate(starts):
                part = slice(number * tensors.WINDOW, (number + 1) * tensors.WINDOW)
                work(x.view(-1)[start : start + tensors.WINDOW], row[part])
            return messages.Output("T", [spec], [tuple(output.shape)])

        def handed_over(asked, fds):
            for output in contestant.outputs:
                if id(output) in self.waiting:
                    work(self.waiting[id(output)], output)
            return hand_over(asked, fds)

        def prepared(asked, fds):
            self.waiting.clear()
            return prepare(asked, fds)

        self.harness.update(fetch=fetched, hand_over=handed_over, prepare=prepared)

    def __call__(self, x):
        if self.harness is None:
            self.take()
            return work(x)
        output = torch.empty_like(x)
        self.waiting[id(output)] = x
        return output

    forward = __call__
