"""`/v1/evaluate` and the client of it."""

from __future__ import annotations

import httpx
import pytest
from pydantic import ValidationError

from cudal1_ray.errors import UserError
from cudal1_ray.integrations.evaluators import RemoteEvaluator
from cudal1_ray.problems import parse_problem
from cudal1_ray.serving.evaluate_routes import EvaluateRequest
from tests.integrations.conftest import FAST, PROBLEM
from tests.integrations.evaluate_server import EvaluateServer


@pytest.fixture(scope="module")
def server(scorer):
    with EvaluateServer(scorer.evaluator) as started:
        yield started


def test_remote_evaluator_when_asked_for_several_returns_verdicts_in_order(server):
    remote = RemoteEvaluator(server.url)
    problem = parse_problem(PROBLEM, "diagonal", origin="problem")
    right, broken = remote.evaluate_all([(problem, FAST), (problem, "class ModelNew(")])
    assert right.accepted and right.problem_id == "diagonal" and not broken.accepted
    assert remote.evaluate_all([]) == []


def test_evaluate_route_when_a_text_is_no_problem_answers_400_in_openai_form(server):
    answer = httpx.post(f"{server.url}/v1/evaluate", json={"problem": "x = 1", "candidate": FAST}, timeout=60)
    assert answer.status_code == 400 and "Model" in answer.json()["error"]["message"]


def test_evaluate_route_when_a_verdict_holds_a_path_of_the_server_blots_it_out(server):
    broken = PROBLEM.replace("import torch\n", "import torch\nopen('/etc/shadow-of/a/file')\n", 1)
    (verdict,) = RemoteEvaluator(server.url).evaluate_all([(parse_problem(broken, "broken", origin="problem"), FAST)])
    assert verdict.reasons == ("reference_error",) and "No such file or directory: '<path>'" in verdict.detail


@pytest.mark.parametrize("best", [float("inf"), float("nan"), -1.0])
def test_evaluate_request_when_the_best_speedup_is_none_is_refused(best):
    with pytest.raises(ValidationError, match="best_speedup"):
        EvaluateRequest(problem=PROBLEM, candidate=FAST, best_speedup=best)


def test_remote_evaluator_when_the_server_refuses_passes_its_reason_on(server):
    with pytest.raises(UserError, match="404"):
        RemoteEvaluator(f"{server.url}/elsewhere").evaluate_all([(parse_problem(PROBLEM, "p", origin="p"), FAST)])
