"""Inputs that are written out instead of being made by recipe."""

from __future__ import annotations

import random

import pytest
from problems_for_tests import problem

from cudal1_ray.evaluation.exchange.tensors import DTYPES
from cudal1_ray.evaluation.exchange.variant import Variant
from cudal1_ray.evaluation.timing.inputs import Inputs, ToCome


@pytest.mark.parametrize("name", ["pointwise", "fixed_inputs", "tuple"])
def test_inputs_when_written_out_come_of_the_same_sets_and_reveal_nothing(evaluator, name):
    session = evaluator._problems.session(problem(name), has_room=True)
    inputs, memory = Inputs(session, random.Random(3)), session.pool.memory
    variants, _ = inputs.renew(min(4, inputs.most_written))
    assert len(variants) > 1 and all(variant.lasting for variant in variants)
    written = ToCome(session, variants)
    written.write_all()
    for variant, plain in zip(variants, written.places, strict=True):
        assert not (plain.others or plain.lasting or any(plain.cuts)) and plain.factor == 1.0
        for n, spec in enumerate(variant.specs):
            data = plain.values(memory, n, None)
            if not (variant.computed(n) and variant.factor == 1.0 and variant.cuts[n]):
                assert data == variant.values(memory, n, None)
                continue
            seam = round((1 - variant.share) * spec.elements()) * DTYPES[spec.dtype].itemsize
            first, second = (
                Variant((side,), (cut,)).values(memory, 0, None)
                for side, cut in ((spec, variant.cuts[n]), (variant.others[n], variant.other_cuts[n]))
            )
            assert data == first[:seam] + second[seam:]
