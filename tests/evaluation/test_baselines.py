"""Changes that a baseline makes to the process that it is timed in, which is its own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cudal1_ray.evaluation.baselines import BASELINES, check_baseline
from cudal1_ray.evaluation.inside.dressing import _CudaGraph, dress
from tests.measured_once import MEASURED_ONCE

pytestmark = pytest.mark.usefixtures("warm_server")


@pytest.fixture
def switches():
    held = (torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
    yield
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = held


def test_tuned_eager_when_on_a_gpu_has_tf32_and_cudnns_search(switches):
    model = torch.nn.Linear(4, 4)
    assert dress(model, "tuned_eager", "cuda") is model
    assert torch.backends.cudnn.benchmark and torch.backends.cudnn.allow_tf32
    assert torch.backends.cuda.matmul.allow_tf32 and torch.get_float32_matmul_precision() == "high"


def test_tuned_eager_when_on_a_cpu_is_channels_last():
    model = dress(torch.nn.Conv2d(4, 4, 3), "tuned_eager", "cpu")
    assert model.weight.is_contiguous(memory_format=torch.channels_last)


def test_cuda_graph_when_an_argument_holds_tensors_is_captured_once_and_gets_their_values(monkeypatch):
    captured = []

    def capture(self, static):
        captured.append(output := torch.zeros(3))
        return SimpleNamespace(replay=lambda: output.copy_(static[0][0] * static[1])), output

    monkeypatch.setattr(_CudaGraph, "_capture", capture)
    baseline = dress(None, "cuda_graph", "cuda")
    for value in (1.0, 2.0, 3.0):
        assert baseline([torch.full((3,), value), "a text"], 2.0).tolist() == [2 * value] * 3
    baseline([torch.ones(3), "another text"], 2.0)
    assert len(captured) == 2


OWN = """
import torch

def dress(model):
    {body}
"""


def _evaluate_against(path, body):
    from problems_for_tests import problem, renamed

    from cudal1_ray.config import load_config
    from cudal1_ray.evaluation import Evaluator

    path.write_text(OWN.format(body=body))
    config = load_config(["evaluation=cpu_train", f"evaluation.against={path}", *MEASURED_ONCE]).evaluation
    with Evaluator(config) as evaluator:
        return evaluator.evaluate(problem("chain"), renamed("chain"))


def test_baseline_when_a_file_defines_it_is_what_the_candidate_is_timed_against(tmp_path):
    verdict = _evaluate_against(tmp_path / "own.py", "return lambda *given: (model(*given), model(*given))[1]")
    assert verdict.accepted and verdict.timed_runs > 0  # it is not credited with the reference's own 1.0


LONG_SUM = """
import torch


class {name}(torch.nn.Module):
    def forward(self, a, b):
        return torch.mm(a, b)


def get_inputs():
    return [torch.rand({rows}, {depth}), torch.rand({depth}, {rows})]


def get_init_inputs():
    return []
"""
ROUNDS = "return lambda a, b: model(a.bfloat16().float(), b.bfloat16().float())"
COARSE = "torch.mm(a.bfloat16().float(), b.bfloat16().float())"


@pytest.mark.parametrize("product, reasons", [("torch.mm(a, b)", ()), (COARSE, ("precision_downgrade",))])
def test_candidate_when_only_its_baseline_is_coarse_gets_the_same_verdict(tmp_path, monkeypatch, product, reasons):
    """As tuned eager is on a GPU: the baseline's answers are what those of timed calls are compared with."""
    from cudal1_ray.config import load_config
    from cudal1_ray.evaluation import Evaluator
    from cudal1_ray.evaluation.opening import references
    from cudal1_ray.problems import Problem

    (path := tmp_path / "own.py").write_text(OWN.format(body=ROUNDS))
    monkeypatch.setattr(references, "is_file", lambda name: False)
    monkeypatch.setattr(references, "coarse_products", lambda *_: True)
    settings = ["evaluation=cpu_train", f"evaluation.against={path}", "evaluation.rules.same_operations=measure"]
    problem = Problem("long-sum", LONG_SUM.format(name="Model", rows=256, depth=2048), "product")
    candidate = LONG_SUM.format(name="ModelNew", rows=256, depth=2048).replace("torch.mm(a, b)", product)
    with Evaluator(load_config([*settings, *MEASURED_ONCE]).evaluation) as evaluator:
        verdict = evaluator.evaluate(problem, candidate)
    assert verdict.reasons == reasons, verdict.detail


def test_baseline_when_its_file_fails_is_the_references_fault(tmp_path):
    verdict = _evaluate_against(tmp_path / "own.py", "raise RuntimeError('no such layout')")
    assert verdict.reasons == ("reference_error",)
    assert "no such layout (line 5 of baseline.py)" in verdict.detail
    assert f"the baseline {tmp_path}/own.py: " in verdict.detail


def test_baseline_when_it_gives_something_else_blames_no_candidate(tmp_path):
    verdict = _evaluate_against(tmp_path / "own.py", "return lambda *given: 2 * model(*given)")
    assert verdict.reasons == ("reference_error",)
    assert f"the baseline {tmp_path}/own.py: wrong_output: it gives something else" in verdict.detail


@pytest.mark.parametrize(
    "data, words",
    [
        (b"def dress(model:\n", "not valid Python, line 1"),
        (b"def undress(model): ...\n", "defines no function"),
        (b"# caf\xe9\ndef dress(model): ...\n", "save it as UTF-8"),
    ],
)
def test_baseline_when_its_file_defines_none_states_why(tmp_path, data, words):
    (tmp_path / "own.py").write_bytes(data)
    complaint = check_baseline(str(tmp_path / "own.py"), "cpu")
    assert words in complaint and "own.py" in complaint


@pytest.mark.parametrize("head", [b"\xef\xbb\xbf", b"# coding: latin-1\n# caf\xe9\n", b"\r\n"])
def test_baseline_when_its_file_has_another_encoding_is_read(tmp_path, head):
    (tmp_path / "own.py").write_bytes(head + b"def dress(model): ...\n")
    assert not check_baseline(str(tmp_path / "own.py"), "cpu")


def test_baseline_when_its_file_is_missing_names_it():
    assert check_baseline("gone.py", "cpu") == "gone.py: No such file or directory"


def test_problem_cache_when_a_baselines_text_differs_keeps_problems_apart(tmp_path):
    from cudal1_ray.evaluation.config import EvaluationConfig
    from cudal1_ray.evaluation.opening.store import SessionStore

    keys = set()
    for body in ("return model", "return model.forward"):
        (tmp_path / "own.py").write_text(OWN.format(body=body))
        config = EvaluationConfig(against=str(tmp_path / "own.py"), problem_cache=str(tmp_path / "kept"))
        keys.add(SessionStore(config)._settings)
    assert len(keys) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("name", BASELINES)
def test_baselines_when_on_a_gpu_are_measured(name):
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
def test_reference_when_the_gpu_has_no_room_is_not_kept(monkeypatch, share, kept):
    from problems_for_tests import problem, renamed

    from cudal1_ray.config import load_config
    from cudal1_ray.evaluation import Evaluator

    settings = ["evaluation=cuda", "evaluation.against=tuned_eager", "evaluation.rules.same_operations=measure"]
    monkeypatch.setattr("cudal1_ray.evaluation.opening.references._MOST_MEMORY_SHARE", share)
    with Evaluator(load_config(settings).evaluation) as evaluator:
        assert evaluator.evaluate(problem("chain"), renamed("chain")).accepted
        assert [session.reference is not None for session in evaluator._problems._sessions.values()] == [kept]


@pytest.mark.gpu
def test_exact_candidate_when_tuned_eager_adds_in_tf32_is_right():
    """A tensor core's long sum of positive numbers is off by more than the rounding of its inputs explains."""
    from cudal1_ray.config import load_config
    from cudal1_ray.evaluation import Evaluator
    from cudal1_ray.problems import Problem

    settings = ["evaluation=cuda", "evaluation.against=tuned_eager", "evaluation.rules.same_operations=measure"]
    problem = Problem("long-sum", LONG_SUM.format(name="Model", rows=256, depth=65536), "product")
    with Evaluator(load_config(settings).evaluation) as evaluator:
        verdict = evaluator.evaluate(problem, LONG_SUM.format(name="ModelNew", rows=256, depth=65536))
    assert verdict.accepted, verdict.detail
