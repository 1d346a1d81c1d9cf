"""Stage 1's loop: what each epoch trains on, and what goes on while the learner works."""

from __future__ import annotations

import threading

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
    session.crew.rollouts.rest = lambda: None

    def draw(session, entries, speedups, epoch):
        learner.drawn[epoch].set()
        return [TrainingSequence((1,), (epoch,))]

    monkeypatch.setattr(sft, "validate_corpus", lambda session: ([], {}))
    monkeypatch.setattr(sft, "_epoch_sequences", draw)
    sft.run_sft(session)
    assert learner.epochs == [1, 2, 3] and session.state.stage_finished
