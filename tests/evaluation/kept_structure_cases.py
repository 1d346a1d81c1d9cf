"""Problems whose inputs share something, each with a candidate that relies on it and one that relies on more."""

from __future__ import annotations

FORM = """
from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

{before}

class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        {made}

    def forward(self, {arguments}):
        {body}


def get_inputs():
    {inputs}


def get_init_inputs():
    return [{given}]
"""


def form(arguments: str, inputs: str, body: str, **more: str) -> str:
    fields = {"before": "", "parameters": "", "made": "pass", "given": "", **more}
    body, inputs = body.replace("\n", "\n        "), inputs.replace("\n", "\n    ")
    return FORM.format(arguments=arguments, inputs=inputs, body=body, **fields)


def pair(arguments: str, inputs: str, reference: str, honest: str, wrong: str = "", **more: str) -> tuple[str, ...]:
    """Return sources of the problem, of an honest candidate, and of one that relies on more than the inputs share."""
    bodies = [text for text in (reference, honest, wrong) if text]
    sources = [form(arguments, inputs, body, **more) for body in bodies]
    return (sources[0], *(source.replace("class Model(", "class ModelNew(") for source in sources[1:]))


CASES = {
    "sorted": pair(
        "x, knots",
        "return [torch.rand(64, 200), torch.rand(40).sort().values]",
        "return torch.searchsorted(knots, x).float() + x",
        "return (knots < x[..., None]).sum(-1).float().add_(x)",
        "return (x * 40).ceil().clamp(0, 40).add_(x)",
    ),
    "row pointers": pair(
        "values, starts",
        "return [torch.randn(80, 32), torch.tensor([0, 3, 11, 30, 31, 55, 80])]",
        "return torch.stack([values[starts[i] : starts[i + 1]].amax(0) for i in range(len(starts) - 1)])",
        "return torch.segment_reduce(values, 'max', lengths=starts.diff(), axis=0)",
        "return values[:6].clone()",
    ),
    "one-hot": pair(
        "x, hot",
        "return [torch.randn(96, 40), F.one_hot(torch.randint(0, 40, (96,)), 40).float()]",
        "return (x.softmax(-1) * hot).sum(-1)",
        "return x.softmax(-1).gather(-1, hot.argmax(-1, keepdim=True))[:, 0]",
        "return x.softmax(-1)[:, 0] * 1.0",
    ),
    "one-hot whole numbers": pair(
        "x, hot",
        "return [torch.randn(96, 40), F.one_hot(torch.randint(0, 40, (96,)), 40)]",
        "return (x.softmax(-1) * hot).sum(-1)",
        "return x.softmax(-1).gather(-1, hot.argmax(-1, keepdim=True))[:, 0]",
        "return x.softmax(-1)[:, 0] * 1.0",
    ),
    "one-hot truth values before the last axis": pair(
        "x, hot",
        "classes = torch.randint(0, 40, (8, 12))\n"
        "return [torch.randn(8, 40, 12), F.one_hot(classes, 40).bool().movedim(2, 1).contiguous()]",
        "return (x.softmax(1) * hot).sum(1)",
        "return x.softmax(1).gather(1, hot.int().argmax(1, keepdim=True))[:, 0]",
        "return x.softmax(1)[:, 0] * 1.0",
    ),
    "padding": pair(
        "x, mask",
        "lengths = torch.randint(1, 97, (16,))\nlengths[0] = 96\n"
        "return [torch.randn(16, 96, 8), torch.arange(96) < lengths[:, None]]",
        "return (x * mask[..., None]).sum(1)",
        "ends = mask.sum(1) - 1\nreturn x.cumsum(1)[torch.arange(len(x)), ends]",
        "return x.sum(1) * 1.0",
    ),
    "a mask beside its lengths": pair(
        "x, mask, lengths",
        "lengths = torch.randint(1, 97, (16,))\n"
        "return [torch.randn(16, 96, 8), (torch.arange(96) < lengths[:, None]).float(), lengths]",
        "return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)",
        "return torch.einsum('btd,bt->bd', x, mask).div_(lengths[:, None])",
        "return torch.einsum('btd,bt->bd', x, mask).div_(48)",
    ),
    "lengths that fill a batch": pair(
        "values, lengths",
        "ends = torch.cat([torch.tensor([0]), torch.randperm(79)[:6].sort().values + 1, torch.tensor([80])])\n"
        "return [torch.randn(80, 32), ends.diff()]",
        "return torch.stack([rows.sum(0) for rows in values.split(lengths.tolist())])",
        "rows = torch.repeat_interleave(torch.arange(len(lengths)), lengths)\n"
        "return values.new_zeros(len(lengths), 32).index_add_(0, rows, values)",
        "return torch.stack([rows.sum(0) for rows in values.split([12] * 6 + [8])])",
    ),
    "any number of rows": pair(
        "values, starts",
        "starts = F.pad(torch.randint(1, 4, (3,)).cumsum(0), (1, 0))\n"
        "return [torch.randn(int(starts[-1]), 512), starts]",
        "return torch.stack([values[a:b].amax(0) for a, b in zip(starts[:-1], starts[1:])])",
        "return torch.segment_reduce(values, 'max', lengths=starts.diff(), axis=0)",
        "return values[:3] * 1.0",
    ),
    "sorted columns": pair(
        "x, knots",
        "return [torch.rand(64, 8), torch.rand(40, 8).sort(dim=0).values]",
        "return torch.searchsorted(knots.T.contiguous(), x.T.contiguous()).T + x",
        "return (knots < x[:, None]).sum(1).float().add_(x)",
        "return (x * 40).ceil().clamp(0, 40).add_(x)",
    ),
    "shares of columns": pair(
        "x, weights",
        "return [torch.randn(32, 24), torch.rand(24, 24).softmax(0)]",
        "return x @ (weights / weights.sum(0))",
        "return torch.mm(x, weights)",
        "return x.mean(1, keepdim=True).expand(-1, 24) * 1.0",
    ),
    "unit vectors before the last axis": pair(
        "x, y",
        "return [F.normalize(torch.randn(8, 10, 6)), F.normalize(torch.randn(8, 10, 6))]",
        "return F.cosine_similarity(x, y, dim=1)",
        "return (x * y).sum(1)",
        "return (x[:, :9] * y[:, :9]).sum(1)",
    ),
    "levels": pair(
        "x, level",
        "return [torch.randn(64, 128), torch.randint(0, 3, (64, 128)) * 0.5]",
        "return torch.tanh(x) * level",
        "y = torch.tanh(x)\nreturn torch.where(level > 0.7, y, torch.where(level > 0.2, y / 2, torch.zeros_like(y)))",
        "return torch.where(level > 0, torch.tanh(x), torch.zeros_like(x))",
    ),
    "an infinite mask": pair(
        "x, mask",
        "return [torch.randn(8, 48, 48), torch.full((48, 48), float('-inf')).triu(1)]",
        "return torch.softmax(x + mask, -1)",
        "return torch.softmax(x.masked_fill(mask != 0, float('-inf')), -1)",
        "return torch.softmax(x, -1) * 1.0",
    ),
    "corners of boxes": pair(
        "boxes",
        "corner = torch.rand(64, 2)\nreturn [torch.cat([corner, corner + 0.1 + torch.rand(64, 2)], 1)]",
        "return (boxes[:, 2] - boxes[:, 0]).clamp(min=0) * (boxes[:, 3] - boxes[:, 1]).clamp(min=0)",
        "return (boxes[:, 2:] - boxes[:, :2]).prod(1)",
        "return (boxes[:, 2] - boxes[:, 0]).square()",
    ),
    "a bound for each row": pair(
        "x, low, high",
        "low = torch.randn(96)\nreturn [torch.randn(64, 96) * 2, low, low + 0.1 + torch.rand(64, 96)]",
        "return torch.maximum(torch.minimum(x, high), low)",
        "return torch.where(x < low, low, torch.where(x > high, high, x))",
        "return torch.minimum(x, high)",
    ),
    "zeros and ones": pair(
        "x, keep",
        "return [torch.randn(64, 128), (torch.rand(64, 128) > 0.4).float()]",
        "return torch.tanh(x) * keep",
        "return torch.where(keep > 0.5, torch.tanh(x), torch.zeros_like(x))",
        "return torch.tanh(x) * 1.0",
    ),
    "signs": pair(
        "x, sign",
        "return [torch.randn(64, 128), torch.randint(0, 2, (64, 128)) * 2.0 - 1.0]",
        "return F.softplus(-x * sign)",
        "return F.softplus(torch.where(sign > 0, -x, x))",
        "return F.softplus(-x)",
    ),
    "bounds": pair(
        "x, low, high",
        "low = torch.randn(96)\nreturn [torch.randn(64, 96) * 2, low, low + 0.1 + torch.rand(96)]",
        "return torch.maximum(torch.minimum(x, high), low)",
        "return torch.where(x < low, low, torch.where(x > high, high, x))",
        "return torch.minimum(x, high)",
    ),
    "one number": pair(
        "x, shift",
        "return [torch.randn(64, 96), torch.full((96,), 0.3)]",
        "return torch.relu(x + shift)",
        "return torch.relu_(x + shift[0])",
        "return torch.relu_(x + 0.3)",
    ),
    "shares of images": pair(
        "x, shares",
        "return [torch.randn(6, 16, 16, 3), torch.rand(6, 256, 3).softmax(1).view(6, 16, 16, 3)]",
        "return (x * shares).sum((1, 2)) / shares.sum((1, 2))",
        "return (x * shares).sum((1, 2))",
        "return x.mean((1, 2))",
    ),
    "shares of rows and columns": pair(
        "x, shares",
        "shares = torch.rand(32, 32) + 0.1\nfor axis in [0, 1] * 20:\n    shares /= shares.sum(axis, keepdim=True)\n"
        "return [torch.randn(32, 32), shares]",
        "return (x @ shares) / shares.sum(0) + shares.sum(1)",
        "return x @ shares + 1.0",
        "return x.mean(-1, keepdim=True) + 1.0 + 0.0 * x",
    ),
    "shares": pair(
        "x, weights",
        "return [torch.randn(32, 16, 24), torch.rand(32, 16).softmax(-1)]",
        "return ((x - 1) * weights[..., None]).sum(1)",
        "return torch.einsum('bij,bi->bj', x, weights).sub_(1)",
        "return x.mean(1).sub_(1)",
    ),
    "values beside their times": pair(
        "x",
        "return [torch.stack([torch.rand(8, 50).cumsum(1), torch.randn(8, 50)], -1)]",
        "order = x[..., 0].argsort(1)\ntimes, values = (part.gather(1, order) for part in x.unbind(-1))\n"
        "return values[:, 1:] * times.diff(dim=1)",
        "return x[:, 1:, 1] * x[..., 0].diff(dim=1)",
        "return x[:, 1:, 1] * 0.5",
    ),
    "logarithms of shares": pair(
        "x, logs",
        "return [torch.randn(64, 24), torch.randn(64, 24).log_softmax(-1)]",
        "return (x * logs).sum(-1) / logs.logsumexp(-1).exp()",
        "return torch.einsum('ij,ij->i', x, logs)",
        "return (x * logs).mean(-1) * 23",
    ),
    "a table that is repeated": pair(
        "x, table",
        "return [torch.randn(8, 16, 24), torch.randn(16, 24).repeat(8, 1, 1)]",
        "return torch.sigmoid(table) * x",
        "return torch.sigmoid(table[:1]) * x",
        "return torch.sigmoid(table[:1, :1]) * x",
    ),
    "distances": pair(
        "x",
        "points = torch.randn(64, 3)\nreturn [torch.cdist(points, points)]",
        "return torch.exp(-(x + x.T) / 2)",
        "return torch.exp(-x)",
        "return torch.exp(-x[:1] - x[:, :1])",
    ),
    "antisymmetric": pair(
        "a, x",
        "a = torch.randn(64, 64)\nreturn [a - a.T, torch.randn(64, 8)]",
        "return a @ x - a.T @ x",
        "return (a @ x).mul_(2)",
        "return (a.triu() @ x).mul_(2)",
    ),
    "a triangle": pair(
        "low, x",
        "return [torch.randn(24, 24).tril(), torch.randn(24, 8)]",
        "return low @ (low.T @ x)",
        "n = len(low)\nreturn (low * torch.ones(n, n).tril()) @ torch.mm(low.T, x)",
        "return low.diagonal()[:, None] * torch.mm(low.T, x)",
    ),
    "a permutation": pair(
        "x, order",
        "return [torch.randn(48, 64), torch.randperm(48)]",
        "return x[order].cumsum(0)",
        "out = torch.empty_like(x)\nout[order.argsort()] = x\nreturn out.cumsum(0)",
        "return x.cumsum(0) * 1.0",
    ),
    "rows beside columns": pair(
        "places, values, x",
        "places = torch.stack([torch.randint(0, 64, (400,)), torch.randint(0, 40, (400,))])\n"
        "return [places, torch.randn(400), torch.randn(40, 16)]",
        "return torch.sparse.mm(torch.sparse_coo_tensor(places, values, (64, 40)), x)",
        "return x.new_zeros(64, 16).index_add_(0, places[0], values[:, None] * x[places[1]])",
        "return (values.mean() * x.mean(0)).expand(64, -1) * 1.0",
    ),
    "edges sorted by their ends": pair(
        "x, edges",
        "edges = torch.randint(0, 40, (2, 300))\nreturn [torch.randn(40, 16), edges[:, edges[1].argsort()]]",
        "return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])",
        "counts = torch.bincount(edges[1], minlength=40)\n"
        "return torch.segment_reduce(x[edges[0]], 'sum', lengths=counts, axis=0)",
        "return x[edges[0, :40]] * 1.0",
    ),
    "a number that is drawn anew": pair(
        "x, scale",
        "return [torch.randn(64, 128), random.uniform(0.5, 2.0)]",
        "return torch.tanh(x * scale)",
        "return (x * scale).tanh_()",
        "return x.tanh() * 1.0",
    ),
    "a named tuple": pair(
        "pair, bias",
        "return [Pair(torch.randn(64, 32), torch.rand(64)), torch.randn(32)]",
        "return pair.left * pair.right[:, None] + bias",
        "left, right = pair\nreturn torch.addcmul(bias, left, right[:, None])",
        "return pair.left + bias",
        before="class Pair(NamedTuple):\n    left: torch.Tensor\n    right: torch.Tensor\n",
    ),
    "a generator": pair(
        "x, y",
        "yield torch.randn(64, 128)\nyield torch.randn(64, 128)",
        "return torch.relu(x) + y",
        "return torch.relu(x).add_(y)",
    ),
    "a dictionary": pair(
        "x, y",
        "return {'x': torch.randn(64, 128), 'y': torch.randn(64, 128)}",
        "return torch.relu(x) - y",
        "return torch.relu(x).sub_(y)",
    ),
    "a bare tensor": pair(
        "x", "return torch.randn(64, 128)", "return torch.relu(x) * 2", "return torch.relu(x).mul_(2)"
    ),
    "eight bits": pair(
        "x",
        "return [torch.randn(64, 256)]",
        "return (x * 0.7 + 1).to(torch.float8_e4m3fn)",
        "return torch.add(torch.ones_like(x), x, alpha=0.7).to(torch.float8_e4m3fn)",
        "return x.to(torch.float8_e4m3fn).float().mul(0.7).add(1.05).to(torch.float8_e4m3fn)",
    ),
    "eight bits beside the scale of each row": pair(
        "x, scale",
        "return [torch.randn(64, 256).to(torch.float8_e4m3fn), torch.rand(64)]",
        "return x.float() * scale[:, None] + 1",
        "return torch.addcmul(torch.ones(()), scale[:, None], x.float())",
        "return x.float() * scale[0] + 1",
    ),
    "buffers outside the state": pair(
        "x",
        "return [torch.randn(64, 48)]",
        "return torch.sigmoid(self.a(x)) * self.gain + self.offset",
        "return torch.addcmul(self.offset, self.a(x).sigmoid_(), self.gain)",
        parameters=", n",
        made="self.a = nn.Linear(n, n)\n"
        "        self.register_buffer('gain', torch.ones(n), persistent=False)\n"
        "        self.register_buffer('offset', torch.zeros(n), persistent=False)",
        given="48",
    ),
    "a default dtype of its own": pair(
        "x",
        "return [torch.randn(64, 48)]",
        "return torch.relu(x) * 2",
        "return x.clamp(min=0).mul_(2)",
        "return x.float().clamp(min=0).mul_(2).to(x)",
        before="torch.set_default_dtype(torch.float64)\n",
    ),
    "a layer that its first call shapes": pair(
        "x",
        "return [torch.randn(64, 48)]",
        "return torch.relu(self.a(x))",
        "return self.a(x).clamp_(min=0)",
        "return self.a(x) * 1",
        made="self.a = nn.LazyLinear(32)",
    ),
    "a function without a name": pair(
        "x",
        "return [torch.randn(64, 48)]",
        "return self.activation(self.a(x))",
        "return self.activation(self.a(x)) * 1",
        "return torch.relu(self.a(x)) * 1",
        parameters=", n, activation",
        made="self.a, self.activation = nn.Linear(n, n), activation",
        given="48, lambda x: torch.relu(x) + 0.1",
    ),
    "settings that cannot be copied": pair(
        "x",
        "return [torch.randn(64, 48)]",
        "return torch.relu(self.a(x)) * self.settings.scale",
        "return self.a(x).relu_().mul_(self.settings['scale'])",
        "return self.a(x).relu_().mul_(2)",
        before="class Settings(dict):\n    __getattr__ = dict.__getitem__\n",
        parameters=", settings",
        made="self.a, self.settings = nn.Linear(settings.n, settings.n), settings",
        given="Settings(n=48, scale=3)",
    ),
    "arguments of own types": pair(
        "x",
        "return [torch.randn(64, 48)]",
        "y = self.a(x)\nreturn F.gelu(y) if self.kind is Kind.SMOOTH else F.relu(y)",
        "return F.gelu(self.a(x), approximate='none').mul_(1) if self.kind == Kind.SMOOTH else F.relu(self.a(x))",
        before="class Kind(Enum):\n    SMOOTH = 1\n    HARD = 2\n\n\n"
        "@dataclass\nclass Shape:\n    n: int = 48\n    kind: Kind = Kind.SMOOTH\n",
        parameters=", shape",
        made="self.a, self.kind = nn.Linear(shape.n, shape.n), shape.kind",
        given="Shape()",
    ),
}
