"""Weights and buffers as candidates get them: random where their initial values reveal nothing, placed by name."""

from __future__ import annotations

import pytest
import torch

from cudal1_ray.evaluation.inside.memory import writes_recurrence
from cudal1_ray.evaluation.inside.state import copied, load_state, randomise_weights


def test_weights_when_randomised_differ_from_a_fresh_initialisation():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.LayerNorm(8))
    linear = model[0].weight.clone()
    randomise_weights(model, 0.2, torch.Generator().manual_seed(0))
    assert torch.equal(model[0].weight, linear)
    for tensor in (
        model[1].weight,
        model[1].bias,
        model[2].weight,
        model[1].running_mean,
        model[1].running_var,
    ):
        assert tensor.std() > 0.01
    assert (model[1].running_var > 0).all()
    unit, half = torch.nn.Linear(96, 96), torch.nn.Linear(96, 96)
    torch.nn.init.eye_(unit.weight)
    half.bias.data[:48] = 0.5
    for module, name in ((unit, "weight"), (half, "bias")):
        before = getattr(module, name).clone()
        randomise_weights(module, 0.2, torch.Generator().manual_seed(0))
        assert (getattr(module, name) != before).float().mean() > 0.99


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN])
def test_recurrent_layers_when_randomised_keep_a_sequences_first_steps(kind):
    torch.manual_seed(0)
    layer, x = kind(4, 64, batch_first=True), torch.randn(1, 256, 4)

    def forgotten() -> float:
        """Return the share of the last output that depends on the first three quarters of the steps."""
        with torch.no_grad():
            whole, tail = (layer(steps)[0][:, -1] for steps in (x, x[:, -64:]))
        return float((whole - tail).norm() / whole.norm())

    assert forgotten() < 1e-3
    randomise_weights(layer, 0.2, torch.Generator().manual_seed(0))
    assert forgotten() > 1e-2


@pytest.mark.parametrize(
    "loop, steps",
    [
        ("for t in range(x.shape[1]):\n h = self.f(x[:, t] + h)", True),
        ("for step in x.unbind(1):\n h = step + h", True),
        ("for t in range(9):\n h *= x[t]", True),
        ("for t, one in enumerate(x.split(8, 1)):\n h = h + one", True),
        ("for t in range(9):\n y.append(x[:, t])", False),  # no state is carried
        ("for t in range(9):\n h = x[t]\n y.append(h)", False),
        ("for layer in self.layers:\n h = layer(h)", False),
        ("for i in range(9):\n h = self.layers[i](h)", False),
    ],
)
def test_recurrence_when_written_out_is_told_from_layers(loop, steps):
    body = loop.replace("\n", "\n        ")
    inside, outside = (f"class Model:\n    def {name}(self, x, h, y):\n        {body}\n" for name in ("f", "__init__"))
    assert writes_recurrence(inside) is steps
    assert not writes_recurrence(outside) and not writes_recurrence(inside[1:])


def test_buffers_when_constant_at_first_are_randomised():
    model = torch.nn.Module()
    for name, value in (("zeros", torch.zeros(64)), ("ones", torch.ones(64)), ("one", torch.ones(1))):
        model.register_buffer(name, value)
    model.register_buffer("mask", torch.ones(8, 8).tril())
    mask = model.mask.clone()
    randomise_weights(model, 0.2, torch.Generator().manual_seed(0))
    assert model.zeros.std() > 0.01 and model.ones.std() > 0.01 and (model.ones > 0).all()
    assert model.one == 1 and torch.equal(model.mask, mask)


def test_weights_when_constant_floats_of_eight_bits_are_randomised():
    model = torch.nn.Module()
    model.scales = torch.nn.Parameter(torch.ones(64).to(torch.float8_e4m3fn), requires_grad=False)
    model.register_buffer("zeros", torch.zeros(64).to(torch.float8_e5m2))
    randomise_weights(model, 0.2, torch.Generator().manual_seed(0))
    assert model.scales.float().std() > 0.1 and model.zeros.float().std() > 0.1


def test_weights_when_copied_match_by_name_then_by_shape():
    class Bare(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(3))
            self.matrix = torch.nn.Parameter(torch.zeros(3, 2))

    model = Bare()
    entries = [("weight", torch.ones(3, 2)), ("bias", torch.ones(3)), ("extra", torch.ones(7))]
    assert load_state(model, entries) == ["extra"]
    assert model.matrix.sum() == 6 and model.bias.sum() == 3


def test_model_when_a_part_holds_a_setting_that_cannot_be_copied_is_copied_without_it():
    class Settings(dict):
        __getattr__ = dict.__getitem__

    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    model[0].settings = Settings(scale=2)
    other = copied(model)
    assert other[0].settings is model[0].settings
    assert other[0].weight is not model[0].weight and torch.equal(other[0].weight, model[0].weight)
