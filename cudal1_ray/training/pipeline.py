"""The loop of stages 2 and 3: sample, evaluate, learn, publish; side by side as far as staleness allows.

With staleness 0 a step is generated once the weights of the step before have arrived: exactly on-policy. With staleness
s the engines go on while up to s updates are still to come, so that generation, evaluation and learning each work on
a step of their own. A step is trained on in its turn whatever finishes first, and completions that are older than the
bound are never trained on. Truncated importance sampling corrects for the age of the others (`algorithm.tis_cap`).

            staleness 0                              staleness 1
rollout     |gen 1|              |gen 2|             |gen 1|gen 2|    |gen 3|
evaluation  |  eval 1|           |  eval 2|          |  eval 1| eval 2  | eval 3
learner               |learn 1|           |          |        |learn 1| |learn 2|

This process is the only one that asks engines and evaluators; what the learner is asked runs in one thread beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from cudal1_ray.learning import AlgorithmConfig, TrainingSequence
from cudal1_ray.prompting import Prompt
from cudal1_ray.rewards import RewardsConfig
from cudal1_ray.training.drift import probe_drift, probes
from cudal1_ray.training.problem_history import MOST_VOID
from cudal1_ray.training.reinforcement import completion_reward, informative_groups, policy_sequences, within_bound
from cudal1_ray.training.sampling import EvaluatedSample, Plan, SampleBatch
from cudal1_ray.training.session import Session
from cudal1_ray.training.step_under_way import StepUnderWay
from cudal1_ray.training.stopping import RunStopped
from cudal1_ray.training.turns import as_shown, worth_another_turn


@dataclass(frozen=True)
class Stage:
    """What a stage does in its steps.

    Attributes:
        name, steps: of the stage.
        prompts: makes the prompts of a step, one per group, from what is known by then.
        note_prompts: is called with the prompts of every step that is begun, or begun again.
        samples: completions of each prompt.
        smooth: whether rewards are smoothed with the run's statistics.
        staleness: updates that may come between a completion's policy and the learner's when it trains on it.
        partial_rollouts: weights do not wait for the end of generation; completions go on under the new ones.
        groups: prompts of each step that count, the first to be finished; 0: all.
        extra_completions: asked for beyond `samples`; the first to be finished count.
        ask_again: times that a step asks for `samples` more completions of the prompts whose completions do not differ.
        min_informative_groups: groups with completions that differ, below which a step teaches nothing.
        turns: most turns of a completion whose candidate fails or is not faster; each revises the one before.
        turn_discount: what a turn is credited of the one that revised it.
        learns: whether steps change the weights; else no update is computed.
        rehearsed: returns what a step learns from after its completions, supervised and in one optimiser step.
    """

    name: str
    steps: int
    prompts: Callable[[int], Sequence[Prompt]]
    samples: int
    temperature: float
    rewards: RewardsConfig
    algorithm: AlgorithmConfig
    smooth: bool = False
    note_prompts: Callable[[int, Sequence[Prompt]], None] = lambda step, prompts: None
    staleness: int = 0
    partial_rollouts: bool = False
    groups: int = 0
    extra_completions: int = 0
    ask_again: int = 0
    min_informative_groups: int = 1
    turns: int = 1
    turn_discount: float = 0.0
    learns: bool = True
    rehearsed: Callable[[int], list[TrainingSequence]] | None = None


@dataclass
class _Update:
    """What the learner is about to learn, or has learned, from a step."""

    step: StepUnderWay
    samples: list[EvaluatedSample]
    rewards: list[float | None]
    advantages: list[float]
    sequences: list[TrainingSequence]
    on_policy: bool
    figures: dict[str, float] = field(default_factory=dict)


class Pipeline:
    """Takes a stage through the steps that the checkpoint does not have yet."""

    def __init__(self, session: Session, stage: Stage):
        self._session, self._stage = session, stage
        self._collector = session.batches.collector("training")
        self._learner = ThreadPoolExecutor(1, "learner")
        self._steps: deque[StepUnderWay] = deque()  # begun, not learned from; the oldest first
        self._update: _Update | None = None
        self._learning: Future[dict[str, float]] | None = None
        self._saving: Future[None] | None = None
        self._stopped = ""  # why the run ends before its last step

    def run(self, done: int, until: int | None = None) -> None:
        """Run the steps after the first `done`, which the state holds.

        Args:
            until: the last step to run, where that is not the last of the stage.
        """
        self._done, self._begun, self._until = done, done, min(until or self._stage.steps, self._stage.steps)
        self._first_version = self._session.state.policy_version - done  # at which the learner takes step 1
        self._resume()
        self._session.begin_stage()
        try:
            with self._session.stopper.after_this_step():
                while self._done < self._until:
                    self._heed_stop()
                    self._publish_learned()
                    self._finish_saving()
                    self._begin_generation()
                    self._session.batches.advance(self._generating, self._collector)
                    self._take_evaluated()
                    self._begin_learning()
            if self._stopped:
                self._session.checkpoint_if_newer()
                raise RunStopped(self._stopped)
            self._collector.finish()  # candidates of completions that came too late to count
        finally:
            self._learner.shutdown(wait=False, cancel_futures=True)

    def _heed_stop(self) -> None:
        """Make the step that is learned from next the last where the run has to end; without one, the one before.

        Steps that were begun beyond it stay on disk as far as they are, for the run that continues.
        """
        if self._stopped:
            return
        self._stopped = self._session.stopper.reason(self._session.last_step_s)
        if self._stopped:
            self._until = min(self._until, self._done + 1 if self._begun > self._done else self._done)
            self._session.progress.note(f"{self._stopped}: ending after step {self._until} of {self._stage.name}")

    @property
    def _generating(self) -> SampleBatch | None:
        return next((step.batch for step in self._steps if not step.batch.generated), None)

    def _version_of(self, step: int) -> int:
        """Return the policy version of the learner when it takes a step: every step makes one."""
        return self._first_version + step - 1

    def _resume(self) -> None:
        """Keep what an interrupted run had of the steps to come, without what later policies than this one made, and
        what no checkpoint has of the steps before.
        """
        in_flight, session = self._session.batches.in_flight, self._session
        last = min(self._done + self._stage.staleness + 1, self._until)
        unsaved = range(session.steps_saved(self._stage.name) + 1, last + 1)
        in_flight.keep([label for step in unsaved for label in self._labels(step)])
        for label in (label for step in range(self._done + 1, last + 1) for label in self._labels(step)):
            in_flight.step(label).drop_newer(session.state.policy_version)

    def _label(self, step: int, round_number: int = 0) -> str:
        """Name a step's batch; `round_number` counts the times that it asked again."""
        return f"{self._stage.name}/{step}" + (f"-again-{round_number}" if round_number else "")

    def _labels(self, step: int) -> list[str]:
        rounds = [self._label(step, round_number) for round_number in range(self._stage.ask_again + 1)]
        return rounds + [self._turn_label(step, turn) for turn in range(1, self._stage.turns)]

    def _turn_label(self, step: int, turn: int) -> str:
        return f"{self._label(step)}-turn-{turn}"

    def _begin_generation(self) -> None:
        """Ask again what has to be, else begin the next step once the engines are free and hold weights that are new
        enough for it.
        """
        session, stage, step = self._session, self._stage, self._begun + 1
        if self._generating is not None:
            return
        for waiting in self._steps:
            if waiting.groups_to_repeat:
                self._ask_again(waiting)
                return
            if waiting.to_revise:
                self._ask_to_revise(waiting)
                return
        if step > self._until:
            return
        if session.state.policy_version < self._version_of(step) - stage.staleness:
            return
        if session.reviewer and any(waiting.samples is None for waiting in self._steps):
            return  # the engines are wanted as the judge of what they wrote before
        label = self._label(step)
        prompts = tuple(session.batches.in_flight.step(label).prompts or stage.prompts(step))
        stage.note_prompts(step, prompts)
        plan = Plan(
            label,
            prompts,
            stage.samples,
            session.sampling(stage.temperature, label),
            extra_groups=max(0, len(prompts) - stage.groups) if stage.groups else 0,
            extra_completions=stage.extra_completions,
        )
        batch = session.batches.begin(plan, session.problems, self._collector)
        self._steps.append(StepUnderWay(step, [batch], list(range(len(prompts)))))
        self._begun = step

    def _ask_again(self, step: StepUnderWay) -> None:
        """Ask for more completions of the step's `groups_to_repeat`."""
        session, stage = self._session, self._stage
        label = self._label(step.number, len(step.batches))
        prompts = tuple(step.batches[0].plan.prompts[group] for group in step.groups_to_repeat)
        plan = Plan(label, prompts, stage.samples, session.sampling(stage.temperature, label))
        step.batches.append(session.batches.begin(plan, session.problems, self._collector))
        step.groups, step.groups_to_repeat = step.groups_to_repeat, []

    def _ask_to_revise(self, step: StepUnderWay) -> None:
        """Ask for one revision of each of the step's samples in `to_revise` whose prompt can show it."""
        session, stage = self._session, self._stage
        step.turn += 1
        label = self._turn_label(step.number, step.turn)
        pairs = [(j, session.prompt(j.prompt.problem_id, as_shown(j))) for j in step.to_revise]
        pairs = [(j, prompt) for j, prompt in pairs if prompt.exemplar_ids]  # else it has no room for the candidate
        step.to_revise, step.originals = [], [j for j, _ in pairs]
        if not pairs:
            step.samples = step.arrivals
            return
        prompts = tuple(prompt for _, prompt in pairs)
        plan = Plan(label, prompts, 1, session.sampling(stage.temperature, label))
        step.batches.append(session.batches.begin(plan, session.problems, self._collector))

    def _to_revise(self, step: StepUnderWay) -> list[EvaluatedSample]:
        """Return the completions of the latest turn that are to be revised."""
        if step.turn + 1 >= self._stage.turns:
            return []
        latest = (j for j in step.arrivals if j.turn == step.turn)
        rewards = self._stage.rewards
        return [j for j in latest if worth_another_turn(j) and completion_reward(j, rewards) is not None]

    def _take_evaluated(self) -> None:
        """Make exemplars of evaluated samples at once, so that the next prompts can show them."""
        for step in self._steps:
            if step.samples is not None:
                continue
            if step.groups_to_repeat or step.to_revise or not step.batch.evaluated:
                return
            samples = step.batch.result()
            if self._session.reviewer:
                samples = self._session.reviewer.review(samples, step.batch.plan.label)
            self._session.remember(samples, step.number)
            step.take(samples)
            if step.turn == 0 and len(step.batches) <= self._stage.ask_again:
                step.groups_to_repeat = self._without_difference(step.arrivals)
            if not step.groups_to_repeat:
                step.to_revise = self._to_revise(step)
            if step.groups_to_repeat or step.to_revise:
                return
            step.samples = step.arrivals

    def _without_difference(self, samples: Sequence[EvaluatedSample]) -> list[int]:
        """Return the groups whose completions do not differ, without those of which every evaluation is void."""
        stage = self._stage
        rewards, advantages, _ = policy_sequences(samples, stage.rewards, stage.algorithm, None)
        differ = informative_groups([j.group for j in samples], advantages)
        rewarded = {j.group for j, reward in zip(samples, rewards, strict=True) if reward is not None}
        return sorted(rewarded - differ)

    def _begin_learning(self) -> None:
        """Give the learner the oldest step, once that is evaluated and the learner has nothing else to do."""
        if self._learning or self._saving or not self._steps or self._steps[0].samples is None:
            return
        if self._steps[0].number > self._until:
            return
        session, stage, step = self._session, self._stage, self._steps.popleft()
        version = session.state.policy_version
        samples = within_bound(step.samples, version, stage.staleness)
        ages = [version - j.completion.policy_version for j in samples]
        smoother = session.state.smoother if stage.smooth else None
        rewards, advantages, sequences = policy_sequences(
            samples, stage.rewards, stage.algorithm, smoother, stage.turn_discount
        )
        informative = len(informative_groups([j.group for j in samples], advantages))
        if informative < stage.min_informative_groups or not stage.learns:
            sequences = []
        rehearsed = stage.rehearsed(step.number) if stage.rehearsed else []
        later = sum(j.turn > 0 for j in step.samples)
        figures = {
            "asked_again": float(sum(len(batch.plan.prompts) for batch in step.batches[1:]) - later),
            **({"later_turns": float(later)} if stage.turns > 1 else {}),
            "update_left_out": float(not sequences),
            "policy_version": float(version),
            "staleness_mean": sum(ages) / max(1, len(ages)),
            "staleness_max": float(max(ages, default=0)),
            "stale_dropped": float(len(step.samples) - len(samples)),
        }
        self._update = _Update(step, samples, rewards, advantages, sequences, not any(ages), figures)
        session.progress.role("learner", stage.algorithm.name)
        session.progress.refresh(force=True)
        self._learning = self._learner.submit(self._learn, sequences, rehearsed)

    def _learn(self, sequences: list[TrainingSequence], rehearsed: list[TrainingSequence]) -> dict[str, float]:
        """Make the updates of a step, in the learner's thread. Without a sequence there is nothing to learn from."""
        learner, learned = self._session.crew.learner, {}
        if not sequences and not rehearsed:
            return learned
        with self._session.clock.learning():
            if sequences:
                learned = learner.train_policy_gradient(sequences, self._stage.algorithm)
            if rehearsed:
                values = learner.train_sft(rehearsed)
                learned |= {f"rehearsal_{name}": values[name] for name in ("loss", "grad_norm")}
        return learned

    def _publish_learned(self) -> None:
        """Send the new weights once the learner is done and the engines may take them; then the step is over."""
        if self._learning is None or not self._learning.done():
            return
        learned = self._learning.result()  # raises what the learner raised
        if self._generating is not None and not self._stage.partial_rollouts:
            return
        session, update, self._learning = self._session, self._update, None
        session.progress.role("learner", "idle")
        session.publish(during_generation=self._generating is not None)
        if not update.on_policy:  # what the learner saw is the policy's change as well
            for name in ("mean_abs", "max_abs"):
                if f"drift_{name}" in learned:
                    learned[f"off_policy_{name}"] = learned.pop(f"drift_{name}")
            learned.pop("drift_alarm", None)
        if "drift_mean_abs" not in learned:
            learned |= probe_drift(session.crew, probes(update.samples))
        for key, value in (update.figures | learned).items():
            session.metrics.mean(key, value)
        self._record(update)

    def _record(self, update: _Update) -> None:
        session, number, samples = self._session, update.step.number, update.samples
        for batch in update.step.batches:
            session.batches.report(batch)
        for problem_id in session.state.problems.update(number, samples, update.advantages):
            session.progress.note(
                f"{problem_id} leaves the rotation: half of its evaluations were void {MOST_VOID} times in a row"
            )
        last = number == self._stage.steps
        session.record_step(self._stage.name, number, samples, update.rewards, update.advantages, last=last)
        session.progress.advance(
            self._stage.name, f"{sum(j.verdict.accepted for j in samples)}/{len(samples)} accepted"
        )
        self._saving = self._learner.submit(self._save, number)

    def _save(self, step: int) -> None:
        """Write the checkpoint that is due, in the learner's thread. The state does not change meanwhile."""
        if self._session.checkpoint_due:
            self._session.checkpoint()
            for older in range(step, max(0, step - self._session.config.checkpoint.every_steps), -1):
                for label in self._labels(older):
                    self._session.batches.in_flight.forget(label)

    def _finish_saving(self) -> None:
        if self._saving is not None and self._saving.done():
            self._saving.result()
            self._saving, self._done = None, self._session.state.step
