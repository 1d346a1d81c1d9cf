"""verl's own reward manager with our scoring functions, which ask a server for verdicts."""

from __future__ import annotations

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.integrations import verl as scoring
from tests.integrations.conftest import FAST, PROBLEM, WRONG, completion
from tests.integrations.evaluate_server import EvaluateServer


@pytest.fixture
def server(scorer, monkeypatch):
    with EvaluateServer(scorer.evaluator) as started:
        monkeypatch.setenv(scoring.URL, started.url)
        scoring._scorer.cache_clear()
        yield started
        scoring._scorer.cache_clear()


def test_compute_score_when_through_the_server_has_score_and_figures(server):
    right = scoring.compute_score("kernelbench", completion(FAST), PROBLEM)
    assert right["score"] > 0.0 and right["accepted"] == 1.0 and right["void"] == 0.0
    wrong = scoring.compute_score("kernelbench", completion(WRONG), PROBLEM)
    assert wrong["score"] == 0.0 and wrong["reason"] == "wrong_output"


def test_compute_score_when_the_servers_address_is_missing_names_the_variable(monkeypatch):
    monkeypatch.delenv(scoring.URL, raising=False)
    scoring._scorer.cache_clear()
    with pytest.raises(UserError, match=scoring.URL):
        scoring.compute_score("kernelbench", completion(FAST), PROBLEM)


def test_batch_reward_manager_when_of_verl_puts_scores_on_last_tokens(server):
    torch = pytest.importorskip("torch")
    manager = pytest.importorskip("verl.workers.reward_manager.batch", exc_type=ImportError).BatchRewardManager
    from verl import DataProto

    texts = {1: completion(FAST), 2: completion(WRONG)}

    class Tokenizer:
        def decode(self, ids, skip_special_tokens=True):
            return texts.get(int(ids[0]), "")

    data = DataProto.from_dict(
        tensors={
            "prompts": torch.zeros(2, 3, dtype=torch.long),
            "responses": torch.tensor([[1, 1], [2, 2]]),
            "attention_mask": torch.ones(2, 5, dtype=torch.long),
        },
        non_tensors={
            "data_source": ["kernelbench"] * 2,
            "reward_model": [{"ground_truth": PROBLEM}] * 2,
            "extra_info": [{}, {}],
        },
    )
    rewards = manager(Tokenizer(), num_examine=0, compute_score=scoring.compute_scores)(data)
    assert rewards[0, 1] > 0.0 and rewards[1].tolist() == [0.0, 0.0] and rewards[0, 0] == 0.0
