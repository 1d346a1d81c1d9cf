"""Stage 1's loop: what each epoch trains on, and what goes on while the learner works."""

from __future__ import annotations

import threading

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.learning import TrainingSequence
from cudal1_ray.problems import load_corpus
from cudal1_ray.prompting import answer_of, parse_answer
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


@pytest.mark.parametrize("opened", ["", "<think>"])
def test_answer_when_the_chat_template_opens_a_thought_is_learnt_so_that_a_sample_like_it_is_read(tmp_path, opened):
    session = generating_session(tmp_path, 1)
    session.crew.thought_prefix = opened
    (sequence,) = sft._epoch_sequences(session, [], {}, 1)
    sampled = "".join(map(chr, sequence.completion_token_ids[:-1]))
    answer = parse_answer(opened + sampled)  # as the sampler reads completions
    assert answer.code is not None and not answer.error


def corpus_of(session, count: int):
    """Return the bundled corpus's first entry for each of the run's first training problems, with speedups."""
    ids = [problem.problem_id for problem in session.train_problems[:count]]
    entries = [next(entry for entry in load_corpus() if entry.problem_id == problem_id) for problem_id in ids]
    return entries, {entry.entry_id: 1.5 for entry in entries}


def test_epoch_when_an_answer_that_compares_is_longer_than_the_budget_goes_without_that_pair(tmp_path):
    session = generating_session(tmp_path, 0, "sft.contrastive_per_candidate=2", "sft.drawn_members=0")
    ids = [problem.problem_id for problem in session.train_problems[:4]]
    entries = [entry for entry in load_corpus() if entry.problem_id in ids and entry.expected == "accepted"]
    speedups = {entry.entry_id: 1.0 + number / 10 for number, entry in enumerate(entries)}
    answers = [answer_of(entry, session.config.prompting) for entry in entries]
    every = sft._epoch_sequences(session, entries, speedups, 1)
    session.config.prompting.max_completion_tokens = longest = max(map(len, answers)) + 1  # with the end token
    fitting = sft._epoch_sequences(session, entries, speedups, 1)
    lengths = [len(sequence.completion_token_ids) for sequence in every]
    assert max(lengths) > longest
    assert sorted(len(sequence.completion_token_ids) for sequence in fitting) == sorted(
        length for length in lengths if length <= longest
    )


def test_stage_when_the_settings_leave_no_pair_is_refused_before_the_learner_is_asked(tmp_path, monkeypatch):
    session = generating_session(tmp_path, 0, "sft.one_shot_per_candidate=0", "sft.drawn_members=0")
    entries, speedups = corpus_of(session, 2)  # one of each problem: there is nothing to compare
    monkeypatch.setattr(sft, "validate_corpus", lambda session: (entries, speedups))
    with pytest.raises(UserError, match="2 candidates give no pair to learn from; set sft.one_shot_per_candidate or"):
        sft.run_sft(session)


def test_epoch_when_a_drawn_member_is_longer_than_the_prompt_budget_goes_without_it(tmp_path):
    session = generating_session(tmp_path / "all", 0)
    longest = max(session.crew.count_tokens(session.prompts.one_shot(p).text) for p in session.train_problems)
    overrides = [f"prompting.max_prompt_tokens={longest}", "sft.drawn_members=4", "sft.contrastive_per_candidate=0"]
    session = generating_session(tmp_path, 0, *overrides)
    entries = [entry for entry in load_corpus() if entry.expected == "accepted"]
    sequences = sft._epoch_sequences(session, entries, {entry.entry_id: 1.5 for entry in entries}, 1)
    assert len(sequences) > len(entries)


def test_rehearsed_pairs_when_a_step_asks_are_of_the_corpus_and_generated_as_in_stage_1(tmp_path, monkeypatch):
    session = generating_session(tmp_path, 6, "sft.epochs=2")
    entries, speedups = corpus_of(session, 2)
    monkeypatch.setattr(sft, "validate_corpus", lambda session: (entries, speedups))
    first, second = (sft.StageOnePairs(session, 8).of_step(step) for step in (1, 2))
    texts = ["".join(map(chr, sequence.completion_token_ids)) for sequence in first]
    assert (len(texts), sum("@triton.jit" in text for text in texts)) == (8, 6)
    assert len({text for text in texts if any(entry.design in text for entry in entries)}) == 2
    assert len(set(first) | set(second)) == 14  # the corpus's two again, all others new
    assert sft.StageOnePairs(session, 8).of_step(2) == second  # as a run that continues asks


def test_rehearsed_pairs_when_the_corpus_has_fewer_repeat_its_entries(tmp_path, monkeypatch):
    session = generating_session(tmp_path, 0)
    monkeypatch.setattr(sft, "validate_corpus", lambda session: corpus_of(session, 2))
    sequences = sft.StageOnePairs(session, 5).of_step(1)
    assert len(sequences) == 5 and 1 <= len(set(sequences)) <= 2


def test_rehearsed_pairs_when_stage_1_has_none_are_refused_with_the_setting(tmp_path, monkeypatch):
    session = generating_session(tmp_path, 0, "sft.one_shot_per_candidate=0")
    monkeypatch.setattr(sft, "validate_corpus", lambda session: corpus_of(session, 1))
    with pytest.raises(UserError, match="contrastive.rehearsed_pairs=2"):
        sft.StageOnePairs(session, 2)


@pytest.mark.parametrize("budget", ["max_completion_tokens", "max_prompt_tokens"])
def test_generated_pair_when_none_fits_is_refused_with_the_budgets(tmp_path, budget):
    session = generating_session(tmp_path, 1)
    setattr(session.config.prompting, budget, 10)
    with pytest.raises(UserError, match=f"prompting.{budget}=10"):
        sft._epoch_sequences(session, [], {}, 1)
