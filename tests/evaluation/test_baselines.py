"""What a baseline changes of the process that it is timed in, which is its own."""

from __future__ import annotations

import pytest
import torch

from cudal1_ray.evaluation.baselines import BASELINES, check_baseline
from cudal1_ray.evaluation.inside.dressing import dress


@pytest.fixture
def switches():
    held = (torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
    yield
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = held


def test_tuned_eager_on_a_gpu_has_tf32_and_cudnns_search(switches):
    model = torch.nn.Linear(4, 4)
    assert dress(model, "tuned_eager", "cuda") is model
    assert torch.backends.cudnn.benchmark and torch.backends.cudnn.allow_tf32
    assert torch.backends.cuda.matmul.allow_tf32 and torch.get_float32_matmul_precision() == "high"


def test_tuned_eager_on_a_cpu_is_channels_last():
    model = dress(torch.nn.Conv2d(4, 4, 3), "tuned_eager", "cpu")
    assert model.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.gpu
@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_is_measured_on_a_gpu(name):
    from problems_for_tests import problem, renamed

    from cudal1_ray.config import load_config
    from cudal1_ray.evaluation import Evaluator

    settings = [f"evaluation.against={name}", "evaluation.rules.same_operations=measure"]
    config = load_config(["evaluation=cuda", *settings]).evaluation
    assert check_baseline(name, "cuda") == ""
    with Evaluator(config) as evaluator:
        verdict = evaluator.evaluate(problem("chain"), renamed("chain"))
    assert verdict.accepted and verdict.reference_ms > 0


@pytest.mark.gpu
@pytest.mark.parametrize("share, kept", [(0.0, False), (1.0, True)])
def test_a_reference_is_kept_only_where_the_gpu_has_room_for_it(monkeypatch, share, kept):
    from problems_for_tests import problem, renamed

    from cudal1_ray.config import load_config
    from cudal1_ray.evaluation import Evaluator

    settings = ["evaluation=cuda", "evaluation.against=tuned_eager", "evaluation.rules.same_operations=measure"]
    monkeypatch.setattr("cudal1_ray.evaluation.references._MOST_MEMORY_SHARE", share)
    with Evaluator(load_config(settings).evaluation) as evaluator:
        assert evaluator.evaluate(problem("chain"), renamed("chain")).accepted
        assert [session.reference is not None for session in evaluator._problems._sessions.values()] == [kept]
