"""Stage 1's loop: what each epoch trains on, and what goes on while the learner works."""

from __future__ import annotations

import threading

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.learning import TrainingSequence
from cudal1_ray.training.stages import sft
from tests.training.scripted_run import PATIENCE_S, Learner, open_session

EPOCHS = 3


class WaitingLearner(Learner):
    """Ends an epoch only once the sequences of the next one are drawn, which the test reports by `drawn`."""

    def __init__(self, engine) -> None:
        super().__init__(engine)
        self.drawn = [threading.Event() for _ in range(EPOCHS + 1)]
        self.epochs: list[int] = []

    def start_stage(self, *args, **kwargs) -> None: ...

    def train_sft(self, sequences, batch_sequences) -> dict[str, float]:
        (epoch,) = sequences[0].completion_token_ids
        self.epochs.append(epoch)
        if epoch < EPOCHS:
            assert self.drawn[epoch + 1].wait(PATIENCE_S), "the next epoch is not drawn while the learner works"
        self.version = 1
        return {"loss": 0.0}


def test_epoch_when_the_learner_works_on_the_one_before_is_drawn_beside_it(tmp_path, monkeypatch):
    session = open_session(tmp_path, f"sft.epochs={EPOCHS}")
    learner = session.crew.learner = WaitingLearner(session.crew.rollouts)

    def draw(session, entries, speedups, epoch):
        learner.drawn[epoch].set()
        return [TrainingSequence((1,), (epoch,))]

    monkeypatch.setattr(sft, "validate_corpus", lambda session: ([], {}))
    monkeypatch.setattr(sft, "_epoch_sequences", draw)
    sft.run_sft(session)
    assert learner.epochs == [1, 2, 3] and session.state.stage_finished


class Tokenizer:
    """A token for each character."""

    eos_token_id = 0

    def __call__(self, text: str, **options) -> dict[str, list[int]]:
        return {"input_ids": [ord(character) for character in text]}


def generating_session(folder, count: int, *overrides: str):
    session = open_session(
        folder, f"sft.generated_problems={count}", "prompting.max_completion_tokens=9000", *overrides
    )
    session.crew.tokenizer = Tokenizer()
    return session


def test_epoch_when_problems_are_generated_has_so_many_further_pairs_of_its_own(tmp_path):
    session = generating_session(tmp_path / "first", 3)
    first, second = (set(sft._epoch_sequences(session, [], {}, epoch)) for epoch in (1, 2))
    assert sft._epoch_sequences(generating_session(tmp_path / "without", 0), [], {}, 1) == []
    assert len(first) == len(second) == 3 and not first & second
    for sequence in first | second:
        assert "@triton.jit" in "".join(map(chr, sequence.completion_token_ids))


def test_epoch_when_problems_are_generated_after_a_restart_has_the_same_pairs(tmp_path):
    before = sft._epoch_sequences(generating_session(tmp_path, 3), [], {}, 2)
    assert sft._epoch_sequences(generating_session(tmp_path, 3), [], {}, 2) == before


def test_generated_pair_when_its_answer_is_too_long_is_drawn_again(tmp_path):
    session = generating_session(tmp_path, 8, "prompting.max_completion_tokens=2500")
    sequences = sft._epoch_sequences(session, [], {}, 1)
    assert len(sequences) == 8 and max(len(sequence.completion_token_ids) for sequence in sequences) <= 2500


def test_rehearsed_pairs_when_steps_follow_are_those_of_the_epochs_after_stage_1(tmp_path, monkeypatch):
    monkeypatch.setattr(sft, "validate_corpus", lambda session: ([], {}))
    session = generating_session(tmp_path, 3, "sft.epochs=2")
    later = [pair for epoch in (3, 4, 5) for pair in sft._epoch_sequences(session, [], {}, epoch)]
    pairs = sft.StageOnePairs(session, 2)
    assert [pair for step in (1, 2, 3, 4) for pair in pairs.of_step(step)] == later[:8]
    assert sft.StageOnePairs(session, 2).of_step(4) == later[6:8]  # as a run that continues asks


def test_rehearsed_pairs_when_stage_1_has_none_are_refused_with_the_setting(tmp_path, monkeypatch):
    monkeypatch.setattr(sft, "validate_corpus", lambda session: ([], {}))
    pairs = sft.StageOnePairs(generating_session(tmp_path, 0), 2)
    with pytest.raises(UserError, match="contrastive.rehearsed_pairs=2"):
        pairs.of_step(1)


@pytest.mark.parametrize("budget", ["max_completion_tokens", "max_prompt_tokens"])
def test_generated_pair_when_none_fits_is_refused_with_the_budgets(tmp_path, budget):
    session = generating_session(tmp_path, 1)
    setattr(session.config.prompting, budget, 10)
    with pytest.raises(UserError, match=f"prompting.{budget}=10"):
        sft._epoch_sequences(session, [], {}, 1)
