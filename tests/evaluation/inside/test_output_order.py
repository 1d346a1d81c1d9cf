"""Outputs are compared in the order of their elements, wherever these lie in memory."""

from __future__ import annotations

import torch

from cudal1_ray.evaluation.inside.places import in_order, put_in_order


def test_outputs_when_their_order_differs_are_copied_and_channels_last_ones_are_not():
    plain, image = torch.rand(4, 6), torch.rand(2, 3, 4, 5)
    stay = {
        "plain": plain,
        "channels last": image.to(memory_format=torch.channels_last),
        "one for all, which is refused": torch.rand(4, 1).expand(4, 6),
        "sparse": plain.to_sparse(),
    }
    move = {"turned": plain.t(), "every other": plain[:, ::2], "moved": image.permute(0, 2, 3, 1)}
    for name, tensor in stay.items():
        assert put_in_order(tensor) is tensor, name
    for name, tensor in move.items():
        ordered = put_in_order(tensor)
        assert ordered.is_contiguous() and torch.equal(ordered, tensor) and not in_order(tensor), name
    nested = put_in_order([plain.t(), {"a": (image, plain[:, 1:])}, 3])
    assert in_order(nested) and nested[1]["a"][0] is image and nested[2] == 3
