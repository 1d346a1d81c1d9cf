"""Many small outputs compared at once: only what the comparison of each would take passes."""

import torch

from cudal1_ray.evaluation.config import CheckConfig
from cudal1_ray.evaluation.correctness.at_once import near
from cudal1_ray.evaluation.correctness.comparison import compare, expect_again
from cudal1_ray.evaluation.exchange.tensors import TensorSpec, name_of

CHECK = CheckConfig()


def _outputs(tensors):
    return [
        (TensorSpec(name_of(t.dtype), tuple(t.shape), (), 0, t.nbytes), bytearray(t.view(torch.uint8).numpy()))
        for t in (tensor.reshape(tensor.shape or (1,)) for tensor in tensors)
    ]


def _near(got, want):
    return near(_outputs(got), _outputs(want), CHECK)


def test_outputs_when_near_at_once_are_right_alone_too():
    generator, passed = torch.Generator().manual_seed(1), 0
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64):
        for shape in ((1,), (2,), (3, 5), (64,)):
            want = [(torch.randn(shape, generator=generator) * 10 ** (n % 5 - 2)).to(dtype) for n in range(60)]
            want[:4] = [torch.zeros(shape, dtype=dtype), torch.ones(shape, dtype=dtype), *want[2:4]]
            got = [tensor + (tensor * 10.0 ** (n % 8 - 7)).to(dtype) for n, tensor in enumerate(want)]
            if dtype.is_floating_point:
                want[5].view(-1)[0] = got[5].view(-1)[0] = want[6].view(-1)[0] = got[7].view(-1)[0] = float("nan")
            results = _near(got, want)
            for ours, theirs, passes in zip(got, want, results, strict=True):
                assert not passes or compare(ours, expect_again(theirs, None, CHECK)) is None
            passed += sum(results)
    assert passed > 200


def test_outputs_when_only_rounded_otherwise_are_near():
    want = [torch.randn(4, 4) for _ in range(8)]
    assert all(_near([tensor * (1 + 1e-6) for tensor in want], want))


def test_outputs_when_one_is_wrong_leave_that_one_to_the_comparison():
    want = [torch.randn(4) for _ in range(8)]
    got = [tensor + (tensor.abs() if n == 3 else 0) for n, tensor in enumerate(want)]
    assert _near(got, want) == [n != 3 for n in range(8)]


def test_outputs_when_bytes_agree_are_near_only_in_the_same_form():
    want = [torch.ones(4), torch.ones(2, 2), torch.full((4,), float("nan"))]
    assert _near(want, want) == [True, True, True]
    assert _near([torch.ones(2, 2), torch.ones(4).view(torch.int32)], want) == [False, False, False]


def test_outputs_when_never_handed_over_are_not_near():
    spec = TensorSpec("float32", (4,), (), 0, 0)
    assert near([(spec, bytearray())], [(spec, bytearray())], CHECK) == [False]
