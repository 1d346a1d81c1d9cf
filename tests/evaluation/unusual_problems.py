"""Problems whose outputs, precision or inputs are not what most have."""

from __future__ import annotations

_FORM = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        {made}

    def forward(self, {arguments}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{given}]
"""


def _one(
    body: str, inputs: str, *, arguments: str = "x", parameters: str = "", made: str = "pass", given: str = ""
) -> str:
    return _FORM.format(
        body=body.replace("\n", "\n        "), inputs=inputs, arguments=arguments, parameters=parameters, made=made,
        given=given,
    )  # fmt: skip


UNUSUAL = {
    "truths": _one("return (x > 0) & (x.cos() < 0.5), x.sign().to(torch.int8)", "torch.randn(256, 512)"),
    "number": _one("y = x.double().sum()\nreturn float(y), torch.tanh(x)", "torch.rand(256, 256)"),
    "selected": _one("return torch.tanh(x[x > 0.3]), (x > 0.3).nonzero()", "torch.randn(128, 256)"),
    "double": _one(
        "return torch.tanh(self.a(x))", "torch.randn(128, 256, dtype=torch.float64)", parameters=", n",
        made="self.a = nn.Linear(n, n).double()", given="256",
    ),
    "masked": _one(
        "scores = q @ k.transpose(-2, -1) * self.scale\n"
        "return F.softmax(scores.masked_fill(mask == 0, -1e9), dim=-1) @ v",
        "*(torch.randn(4, 64, 64) for _ in range(3)), torch.ones(4, 64, 64)", arguments="q, k, v, mask",
        made="self.scale = 64 ** -0.5",
    ),
    "gru": _one(
        "return self.layer(x)[1][-1]", "torch.randn(16, 192, 48)", parameters=", n",
        made="self.layer = nn.GRU(n, 64, batch_first=True)", given="48",
    ),
    "rnn": _one(
        "return torch.tanh(self.layer(x)[0][-1])", "torch.randn(192, 16, 48)", parameters=", n",
        made="self.layer = nn.RNN(n, 64, num_layers=2)", given="48",
    ),
    "lstm": _one(
        "return self.out(self.layer(x)[0][:, -1])", "torch.randn(16, 192, 48)", parameters=", n",
        made="self.layer, self.out = nn.LSTM(n, 64, batch_first=True), nn.Linear(64, 16)", given="48",
    ),
    "written_gru": _one(
        "h, given = torch.zeros(x.shape[0], 64), self.given(x)\n"
        "for t in range(x.shape[1]):\n"
        "    (a, b, c), (r, z, n) = given[:, t].chunk(3, 1), self.kept(h).chunk(3, 1)\n"
        "    z = torch.sigmoid(b + z)\n"
        "    h = z * h + (1 - z) * torch.tanh(c + torch.sigmoid(a + r) * n)\n"
        "return h",
        "torch.randn(16, 192, 48)", parameters=", n", given="48",
        made="self.given, self.kept = nn.Linear(n, 192), nn.Linear(64, 192)",
    ),
    "written_rnn": _one(
        "h, states = torch.zeros(x.shape[0], 96), []\n"
        "for step in self.given(x).unbind(1):\n"
        "    h = torch.tanh(step + self.kept(h))\n"
        "    states.append(h)\n"
        "return torch.stack(states, 1)",
        "torch.randn(8, 256, 48)", parameters=", n", given="48",
        made="self.given, self.kept = nn.Linear(n, 96), nn.Linear(96, 96)",
    ),
    "written_scan": _one(
        "keep, h = torch.sigmoid(self.keep), torch.zeros_like(x[:, 0])\n"
        "for t in range(x.shape[1]):\n"
        "    h = keep * h + (1 - keep) * x[:, t]\n"
        "return self.out(h)",
        "torch.randn(16, 384, 128)", parameters=", n", given="128",
        made="self.keep, self.out = nn.Parameter(torch.randn(n)), nn.Linear(n, n)",
    ),
    "standardised": _one(
        "return torch.relu((x - self.middle) * torch.rsqrt(self.spread + 1e-5))",
        "torch.randn(512, 1024)", parameters=", n", given="1024",
        made='self.register_buffer("middle", torch.zeros(n)); self.register_buffer("spread", torch.ones(n))',
    ),
    "turned": _one("return x.t().contiguous()", "torch.randn(1024, 1024)"),
    "turned_after": _one("return torch.relu(x).transpose(1, 2).contiguous()", "torch.randn(16, 256, 512)"),
    "solved": _one(
        "return torch.linalg.solve(a, b)",
        "*(x @ x.mT / 128 + torch.eye(128) for x in torch.randn(1, 8, 128, 128)), torch.randn(8, 128, 16)",
        arguments="a, b",
    ),
    "repeated": _one("return torch.relu(x).repeat(1, 64)", "torch.randn(2048, 1)"),
    "weight_norm": _one(
        "return torch.tanh(self.a(x))", "torch.randn(128, 256)", parameters=", n",
        made="self.a = nn.utils.weight_norm(nn.Linear(n, n))", given="256",
    ),
    "rest": _one("return x[1:].clone()", "torch.randn(2049, 1024)"),
    "windows": _one("return x.unfold(1, 64, 1).contiguous()", "torch.randn(64, 1063)"),
    "diagonal": _one("return torch.diag_embed(torch.tanh(x))", "torch.randn(64, 256)"),
    "all_let_through": _one(
        "return F.softmax((q @ k.transpose(-2, -1)).masked_fill(~mask, -1e9), dim=-1)",
        "*(torch.randn(8, 256, 4) for _ in range(2)), torch.ones(8, 256, 256, dtype=torch.bool)",
        arguments="q, k, mask",
    ),
    "all_lengths": _one(
        "heeded = torch.arange(x.shape[1]) < lengths[:, None]\nreturn (torch.tanh(x) * heeded).cumsum(1)",
        "torch.randn(256, 512), torch.full((256,), 512)", arguments="x, lengths",
    ),
    "averaged": _one("return x.mean()", "torch.rand(64, 40000)"),
    "loss": _one("return F.smooth_l1_loss(x, y)", "*(torch.randn(256, 4096) for _ in range(2))", arguments="x, y"),
    "product": _one("return torch.cumprod(x, dim=1)", "torch.rand(64, 4096)"),
    "triangular": _one(
        "return torch.triu(a @ b)", "*(torch.triu(torch.randn(256, 256)) for _ in range(2))", arguments="a, b"
    ),
    "symmetric": _one(
        "return torch.tanh(a.t() @ b)", "*((x + x.t()) / 2 for x in torch.randn(2, 256, 256))", arguments="a, b"
    ),
    "divergence": _one(
        'return F.kl_div(p.log(), t, reduction="batchmean")',
        "*(torch.randn(128, 4096).softmax(-1) for _ in range(2))", arguments="p, t",
    ),
    "exact_divergence": _one(
        'return F.kl_div(p.double().log(), t.double(), reduction="batchmean").float()',
        "*(torch.randn(128, 4096).softmax(-1) for _ in range(2))", arguments="p, t",
    ),
    "closure": _one(
        "return torch.tanh(self.f(x))", "torch.randn(128, 256)", parameters=", n", given="256",
        made="a, b = self.a, self.b = nn.Linear(n, n), nn.LayerNorm(n); self.f = lambda x: b(a(x))",
    ),
    "features": _one(
        "return torch.cat([torch.tanh(self.b(torch.relu(self.a(x)))), 1e3 * x[:, :16].cumsum(1)], dim=1)",
        "torch.rand(256, 256)", parameters=", n", made="self.a, self.b = nn.Linear(n, 4 * n), nn.Linear(4 * n, 64)",
        given="256",
    ),
    "sharp": _one("return torch.softmax(4 * x, dim=1)", "torch.randn(64, 4096)"),
}  # fmt: skip
