"""Stage 1: supervised fine-tuning on candidates that the evaluator has accepted (arXiv 2507.14111, section 2.1)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from cudal1_ray.errors import UserError
from cudal1_ray.learning import TrainingSequence, encode_completion
from cudal1_ray.problems import CorpusEntry, MemberDraw, read_corpus
from cudal1_ray.problems.corpus import measured_elsewhere
from cudal1_ray.problems.corpus_sources import sizes_measured_in
from cudal1_ray.problems.generated import generate
from cudal1_ray.prompting import PromptTooLong, SftPair, answer_of, build_sft_pairs, one_shot_pairs
from cudal1_ray.training.session import Session
from cudal1_ray.training.stopping import RunStopped
from cudal1_ray.training.verdict_collector import VerdictCollector
from cudal1_ray.wording import counted

STAGE = "sft"
# Problems that are generated for one pair before the token budgets count as too small for any.
GENERATED_DRAWS = 50
# After "<think>" and a line break: the empty thought of models that can do without one.
ENDED_THOUGHT = "\n</think>\n\n"


def run_sft(session: Session) -> None:
    """Validate the corpus, then run the epochs that the checkpoint does not have yet.

    Raises:
        UserError: as `validate_corpus` does, and when the settings leave an epoch without pairs.
    """
    settings, done = session.config.sft, session.steps_done(STAGE)
    entries, speedups = validate_corpus(session)
    session.progress.stage(STAGE, settings.epochs, done)
    sequences = _epoch_sequences(session, entries, speedups, done + 1)
    if not sequences:
        raise UserError(
            f"sft: {counted(len(entries), 'candidate')} give no pair to learn from; set sft.one_shot_per_candidate or "
            "sft.generated_problems to a number above 0, or raise "
            f"prompting.max_completion_tokens={session.config.prompting.max_completion_tokens}"
        )
    steps = settings.epochs * -(-len(sequences) // settings.batch_sequences)
    session.crew.learner.start_stage(
        settings.learning_rate, steps, settings.warmup_steps, resumed=done > 0, schedule=settings.schedule
    )
    session.begin_stage()
    with session.stopper.after_this_step(), ThreadPoolExecutor(1, "epoch") as beside:
        for epoch in range(done + 1, settings.epochs + 1):
            if reason := session.stopper.reason(session.last_step_s):
                session.checkpoint_if_newer()
                raise RunStopped(reason)
            last = epoch == settings.epochs
            # This process only waits for the learner meanwhile.
            following = None if last else beside.submit(_epoch_sequences, session, entries, speedups, epoch + 1)
            session.learn("supervised fine-tuning", session.crew.learner.train_sft, sequences, settings.batch_sequences)
            if following is not None:
                sequences = following.result()
            else:
                session.publish()
            session.record_step(STAGE, epoch, last=last)
            if session.checkpoint_due:
                session.checkpoint()
            session.progress.advance(STAGE)


def validate_corpus(session: Session) -> tuple[list[CorpusEntry], dict[str, float]]:
    """Return the accepted candidates of the corpus that fit the token budgets, and their measured speedups by id.

    Candidates are put before the evaluator, except those with a recorded verdict where `sft.recorded_verdicts` is set.

    Raises:
        UserError: when there is no accepted candidate to learn from, or none that fits the token budgets.
    """
    settings = session.config.sft
    entries, collector = _entries(session), begin_corpus(session)
    collector.finish()
    session.batches.beside = None
    speedups = _recorded_speedups(session, entries)
    speedups |= {name: verdict.credited_speedup for name, verdict in collector.verdicts.items() if verdict.accepted}
    accepted = [entry for entry in entries if entry.entry_id in speedups]
    session.progress.advance("corpus", f"{len(accepted)} of {len(entries)} accepted", steps=len(entries))
    fitting = _fitting(session, accepted)
    if accepted and not fitting:
        raise UserError(
            f"sft.corpus={settings.corpus}: none of {counted(len(accepted), 'accepted candidate')} fits "
            f"prompting.max_prompt_tokens={session.config.prompting.max_prompt_tokens} and "
            f"prompting.max_completion_tokens={session.config.prompting.max_completion_tokens}; raise them"
        )
    if not fitting:
        raise UserError(
            f"sft.corpus={settings.corpus}: no accepted candidate to fine-tune on, of {len(entries)} for the training "
            f"problems of problems.source={session.config.problems.source}; give another corpus, or start from a "
            "pretrained policy with stage=self_supervised or stage=contrastive"
        )
    return fitting, {entry.entry_id: speedups[entry.entry_id] for entry in fitting}


class StageOnePairs:
    """Pairs of stage 1 without exemplars for a later stage: new draws in each of its steps."""

    def __init__(self, session: Session, pairs: int):
        """Validate the corpus.

        Args:
            pairs: in each step, of the corpus and of generated problems as often as stage 1 has such.

        Raises:
            UserError: as `validate_corpus` does, and when stage 1 has no pairs without exemplars.
        """
        settings = session.config.sft
        self._session, self._pairs, (self._entries, self._speedups) = session, pairs, validate_corpus(session)
        of_corpus = len(self._entries) * settings.one_shot_per_candidate
        if of_corpus + settings.generated_problems == 0:
            raise UserError(
                f"contrastive.rehearsed_pairs={pairs}: stage 1 has no pairs without exemplars; give "
                "sft.one_shot_per_candidate or sft.generated_problems a number above 0"
            )
        self._of_corpus = round(pairs * of_corpus / (of_corpus + settings.generated_problems))

    def of_step(self, step: int) -> list[TrainingSequence]:
        """Return the sequences of a step in random order; the run's seed and the step decide which."""
        session, count = self._session, self._pairs - self._of_corpus
        rng = np.random.default_rng(session.seed(f"rehearsal/{step}"))
        chosen = rng.choice(len(self._entries), self._of_corpus, replace=self._of_corpus > len(self._entries))
        entries = [self._entries[place] for place in chosen]
        pairs = one_shot_pairs(session.train_problems, entries, self._speedups, session.prompts)
        pairs += [_generated_pair(session, f"rehearsed-{step}-{n}", rng) for n in range(count)]
        return [_sequence(session, pairs[place]) for place in rng.permutation(len(pairs))]


def begin_corpus(session: Session) -> VerdictCollector:
    """Return the collector of the corpus's verdicts, its candidates submitted; what is sampled before `validate_corpus`
    asks for the verdicts moves them on.
    """
    if session.batches.beside is not None:
        return session.batches.beside
    entries = _entries(session)
    session.progress.stage("corpus", len(entries))
    collector = session.batches.collector("training")
    recorded = _recorded_speedups(session, entries)
    _note_origin_of(session, [entry for entry in entries if entry.entry_id in recorded])
    for entry in entries:
        if entry.entry_id not in recorded:
            collector.submit(entry.entry_id, session.problems[entry.problem_id], entry.code)
    if session.crew.evaluate_during_generation:
        collector.release()
    session.batches.beside = collector
    return collector


def _entries(session: Session) -> list[CorpusEntry]:
    """Return the corpus's candidates for the training problems, as this run's device measured them where it did."""
    ids = {problem.problem_id for problem in session.train_problems}
    device = session.crew.machine.device if session.crew.machine else ""
    entries = read_corpus(session.config.sft.corpus)
    return [entry.as_measured_on(device) for entry in entries if entry.problem_id in ids]


def _recorded_speedups(session: Session, entries: list[CorpusEntry]) -> dict[str, float]:
    """Return the speedups, by entry id, that the corpus brings and the run takes at their word."""
    recorded = session.config.sft.recorded_verdicts
    return {entry.entry_id: entry.speedup for entry in entries if recorded and entry.speedup > 0}


def _note_origin_of(session: Session, recorded: list[CorpusEntry]) -> None:
    """Note which devices measured the speedups that the run takes at their word, where this one measured none, and in
    which sizes, where the run's problems have others.
    """
    machine, settings, sizes = session.crew.machine, session.config.sft, session.config.problems.sizes
    if recorded and (measured := sizes_measured_in(settings.corpus, sizes)):
        session.progress.note(
            f"sft.corpus={settings.corpus}: speedups of candidates are taken as recorded, at "
            f"problems.sizes={measured}; this run has problems.sizes={sizes}, and sft.recorded_verdicts=false measures "
            "them here"
        )
    if machine is not None and (others := measured_elsewhere(recorded, machine.device)):
        session.progress.note(
            f"sft.corpus={settings.corpus}: speedups of candidates are taken as recorded, {others}; this is "
            f"{machine.device}, and sft.recorded_verdicts=false measures them here"
        )


def _fitting(session: Session, entries: list[CorpusEntry]) -> list[CorpusEntry]:
    """Return the entries whose prompt and answer fit the token budgets; a note gives the number of the others."""
    prompting = session.config.prompting
    too_long: set[str] = set()
    for problem in {entry.problem_id: session.problems[entry.problem_id] for entry in entries}.values():
        try:
            session.prompts.one_shot(problem)
        except PromptTooLong:
            too_long.add(problem.problem_id)
    prompted = [entry for entry in entries if entry.problem_id not in too_long]
    fitting = [
        entry
        for entry in prompted
        if len(_completion(session, answer_of(entry, prompting))) <= prompting.max_completion_tokens
    ]
    if len(fitting) < len(entries):
        answers = counted(len(prompted) - len(fitting), "answer")
        session.progress.note(
            f"sft: {len(entries) - len(fitting)} of {counted(len(entries), 'accepted candidate')} left out: "
            f"{len(entries) - len(prompted)} of {counted(len(too_long), 'problem')} longer than "
            f"prompting.max_prompt_tokens={prompting.max_prompt_tokens}, {answers} longer than "
            f"prompting.max_completion_tokens={prompting.max_completion_tokens}"
        )
    return fitting


def _epoch_sequences(
    session: Session, entries: list[CorpusEntry], speedups: dict[str, float], epoch: int
) -> list[TrainingSequence]:
    """Return the epoch's pairs as token sequences; its exemplars and order are drawn from (seed, epoch) alone.

    Pairs beyond a token budget are left out: a candidate's own answer fits, but one that compares others may not, nor
    may the prompt and the answer of a drawn member.
    """
    settings, longest = session.config.sft, session.config.prompting.max_completion_tokens
    rng = np.random.default_rng((session.config.seed, epoch))

    pairs = build_sft_pairs(
        session.train_problems,
        entries,
        speedups,
        session.prompts,
        rng,
        one_shot_per_entry=settings.one_shot_per_candidate,
        contrastive_per_entry=settings.contrastive_per_candidate,
        exemplar_count=max(1, session.config.exemplars.count),
    )
    members = MemberDraw(session.train_problems, entries, session.held_out_problems)
    for problem_id in members.problem_ids * settings.drawn_members:
        member, candidates = members.draw(problem_id, rng)
        with suppress(PromptTooLong):  # the problem that it is made of fits
            pairs += one_shot_pairs([member], candidates, speedups, session.prompts)
    pairs += [_generated_pair(session, f"generated-{epoch}-{n}", rng) for n in range(settings.generated_problems)]
    sequences = [_sequence(session, pair) for pair in pairs]
    sequences = [sequence for sequence in sequences if len(sequence.completion_token_ids) <= longest]
    return group_by_length(sequences, settings.batch_sequences, rng)


def _sequence(session: Session, pair: SftPair) -> TrainingSequence:
    return TrainingSequence(
        prompt_token_ids=session.crew.encode_prompt(pair.prompt.text),
        completion_token_ids=_completion(session, pair.answer),
    )


def _completion(session: Session, answer: str) -> tuple[int, ...]:
    """Return the token ids of an answer as it follows a prompt: after the end of the thought that a chat template
    opens there, without which the answer would be read as a part of it.
    """
    return encode_completion(session.crew.tokenizer, (ENDED_THOUGHT if session.crew.thought_prefix else "") + answer)


def _generated_pair(session: Session, identity: str, rng: np.random.Generator) -> SftPair:
    """Return a pair of a generated problem that fits the token budgets.

    Raises:
        UserError: none of several fits.
    """
    prompting = session.config.prompting
    for _ in range(GENERATED_DRAWS):
        problem, entry = generate(rng, identity)
        try:
            (pair,) = one_shot_pairs([problem], [entry], {entry.entry_id: 1.0}, session.prompts)
        except PromptTooLong:
            continue
        if len(_completion(session, pair.answer)) <= prompting.max_completion_tokens:
            return pair
    raise UserError(
        f"sft.generated_problems: none of {GENERATED_DRAWS} problems fits "
        f"prompting.max_prompt_tokens={prompting.max_prompt_tokens} and "
        f"prompting.max_completion_tokens={prompting.max_completion_tokens}"
    )


def group_by_length(
    sequences: list[TrainingSequence], batch_sequences: int, rng: np.random.Generator
) -> list[TrainingSequence]:
    """Reorder sequences so that each batch holds similar lengths, and little is padding; batches in random order."""
    ordered = sorted(sequences, key=len)
    batches = [ordered[i : i + batch_sequences] for i in range(0, len(ordered), batch_sequences)]
    # A batch that is not full goes last: anywhere else it would shift the borders of those after it.
    whole = [batch for batch in batches if len(batch) == batch_sequences]
    rest = [batch for batch in batches if len(batch) < batch_sequences]
    return [sequence for i in rng.permutation(len(whole)) for sequence in whole[i]] + [s for b in rest for s in b]
