"""Answers only the question for an output, which it sees coming in the harness's messages: next to a large input."""
# problem: row_max
# expect: refused
# reasons: checker_patch, late, wrong
# ruff: noqa

import gc

import torch
import torch.nn as nn

_Channel = type(next(one for one in gc.get_objects() if type(one).__name__ == "Channel"))
_receive, ASKED = _Channel.receive_with_fds, []


def receive(self, *arguments, **named):
    message, fds = _receive(self, *arguments, **named)
    if type(message).__name__ == "Prepare":
        ASKED.clear()
    elif type(message).__name__ == "Fetch":
        answer, x = ASKED[message.call]
        torch.amax(x, 1, out=answer)
    return message, fds


_Channel.receive_with_fds = receive


class ModelNew(nn.Module):
    def forward(self, x):
        ASKED.append((torch.empty(x.shape[0]), x))
        return ASKED[-1][0]
