"""Completions to rewards, by the real evaluator on the CPU."""

from __future__ import annotations

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.integrations.evaluators import RemoteEvaluator, server_root
from cudal1_ray.integrations.rewards import CompletionScorer
from tests.integrations.conftest import FAST, PROBLEM, WRONG, completion


def test_score_when_completions_are_right_wrong_and_empty_orders_them(scorer):
    texts = [completion(FAST), completion(WRONG), "I do not know.", completion(FAST)]
    right, wrong, empty, again = scorer.score([PROBLEM] * 4, texts)
    assert right.verdict.accepted and right.reward > wrong.reward == 0.0
    assert wrong.verdict.reasons == ("wrong_output",) and empty.verdict.reasons == ("unparsable",)
    assert "no code block" in empty.verdict.detail
    assert again.verdict is right.verdict  # equal candidates are evaluated once


def test_score_when_a_text_is_no_problem_names_what_is_missing(scorer):
    with pytest.raises(UserError, match="problem: .*Model"):
        scorer.score(["x = 1\n"], [completion(FAST)])
    with pytest.raises(UserError, match="problem: None is no text"):
        scorer.score([None], [completion(FAST)])


def test_scorer_when_a_setting_is_unknown_is_refused():
    with pytest.raises(UserError, match="no_such_key"):
        CompletionScorer(device="cpu", settings=["evaluation.no_such_key=1"])


def test_remote_evaluator_when_there_is_no_server_names_the_address():
    url = "http://127.0.0.1:9"
    with CompletionScorer(url, device="cpu") as scorer, pytest.raises(UserError, match=url):
        scorer.score([PROBLEM], [completion(FAST)])
    for address in ("http://[::1", "127.0.0.1:9"):
        with pytest.raises(UserError, match="no address of a server"):
            RemoteEvaluator(address)
    with pytest.raises(UserError, match="give the API key alone"):
        RemoteEvaluator(url, "\u0142")
    assert server_root("http://host:8000/v1/") == server_root("http://host:8000") == "http://host:8000"
