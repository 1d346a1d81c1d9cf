"""Answers only the question for an output, which it sees coming in the harness's messages: next to a large input."""
# problem: row_max
# expect: refused
# reasons: checker_patch, late, wrong
# ruff: noqa

import json

import torch
import torch.nn as nn

_read, ASKED = json.loads, []


def read(text, *arguments, **named):
    message = _read(text, *arguments, **named)
    if isinstance(message, dict) and message.get("op") == "prepare":
        ASKED.clear()
    elif isinstance(message, dict) and message.get("op") == "fetch":
        answer, x = ASKED[message["call"]]
        torch.amax(x, 1, out=answer)
    return message


json.loads = read


class ModelNew(nn.Module):
    def forward(self, x):
        ASKED.append((torch.empty(x.shape[0]), x))
        return ASKED[-1][0]
