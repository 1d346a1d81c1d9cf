"""The operations of a problem are those that its classes call."""

from __future__ import annotations

from cudal1_ray.source.operations import operators_of


def test_operators_of_a_reference_when_read_are_its_calls_and_operators():
    source = (
        "import torch\nclass Model:\n    def forward(self, x):\n        return torch.relu(x) + self.fc(x)\nrandn(3)\n"
    )
    assert sorted(operators_of(source)) == ["Add", "fc", "relu"] and operators_of("def") == []
