"""What every stage works with: the run's folder, its actors, its state, and the few operations stages share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from cudal1_ray.config import Config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.stated_rules import rules_in_force
from cudal1_ray.exemplars import Exemplar, Selection
from cudal1_ray.problems import Problem
from cudal1_ray.problems.corpus import measured_elsewhere
from cudal1_ray.problems.corpus_sources import sizes_measured_in
from cudal1_ray.problems.select import fixed_problems
from cudal1_ray.prompting import Prompt, PromptBuilder, PromptTooLong
from cudal1_ray.prompting.related import related_kernels
from cudal1_ray.rewards import verdict_reward
from cudal1_ray.rollout import SamplingParameters, derive_seed
from cudal1_ray.training.checkpoints import CheckpointStore, TrainingState
from cudal1_ray.training.crew import Crew
from cudal1_ray.training.journal import VerdictJournal
from cudal1_ray.training.metrics import RunMetrics
from cudal1_ray.training.progress import IDLE, Progress, batch_statistics
from cudal1_ray.training.reviewing import make_reviewer
from cudal1_ray.training.roles import RoleClock
from cudal1_ray.training.rollout_table import write_rollouts
from cudal1_ray.training.run_folder import RunFolder, check_free_space
from cudal1_ray.training.sampling import EvaluatedSample, Sampler
from cudal1_ray.training.signal_metrics import signal_metrics
from cudal1_ray.training.stopping import Stopper
from cudal1_ray.wording import counted

# Exemplars of each problem, where a run moves to other hardware: as many as two prompts show.
MEASURED_AGAIN = 4
# Problems that a note lists by name.
NAMED_PROBLEMS = 5


class Session:
    """One run in progress.

    Attributes:
        train_problems, held_out_problems: the two sides of the split.
        state: what the driver remembers between steps; written with every checkpoint.
        stopper: decides when the run has to end before its last step.
        last_step_s, last_assessment_s: seconds that the last step, and the last sampling of an assessment, took.
        left_out: ids of the problems that are in neither split, since their prompts are too long.
        batches: samples and evaluates, for a caller with several batches under way step by step.
        reviewer: puts what was accepted before the reward checker; None: there is none.
    """

    def __init__(
        self,
        config: Config,
        run: RunFolder,
        crew: Crew,
        problems: Sequence[Problem],
        state: TrainingState,
        metrics: RunMetrics,
        progress: Progress,
        stopper: Stopper | None = None,
    ):
        self.config, self.run, self.crew, self.state = config, run, crew, state
        self.metrics, self.progress, self.stopper = metrics, progress, stopper or Stopper()
        self.last_step_s = max((row.get("step_s", 0.0) for row in [*metrics.lines][-3:]), default=0.0)
        self.last_assessment_s = 0.0
        # Stage and step of the last checkpoint, and of the one that the run continues from.
        self._saved: tuple[str, int] | None = None
        self._restored: tuple[str, int] | None = None
        self._of_other_hardware: list[Exemplar] = []  # those that a prompt may show once they are measured here
        self.problems = {problem.problem_id: problem for problem in problems}
        self.train_problems = [p for p in problems if p.split == "train"]
        self.held_out_problems = [p for p in problems if p.split == "held_out"]
        device = crew.machine.device if crew.machine else ""
        self.journal = VerdictJournal(run.verdicts, device)
        for verdict in self.journal.verdicts("training"):
            progress.verdict(verdict)  # a continued run counts from where it was
        rules = rules_in_force(config.evaluation)
        self._related = related_kernels(config.prompting, self.train_problems, device)
        self.prompts = PromptBuilder(config.prompting, crew.count_tokens, crew.machine, rules, self._related)
        self.left_out = self._leave_out_long_problems()
        self.batches = Sampler(crew, run, self.journal, metrics, progress)
        self.reviewer = make_reviewer(config, run, crew, self.problems, metrics)
        self.clock = RoleClock(crew)
        self.store = CheckpointStore(run.checkpoints, config.checkpoint.keep, config.checkpoint.export_policy)
        self.engines_current = True  # engines and learner both start from `run.policy`

    def settle_hardware(self) -> None:
        """Bind exemplars and verdicts to the hardware that measures now. Notes name the devices that measured the
        related kernels of prompts, where this one did not, and their sizes, where the run's problems have others:
        prompts show such speedups as recorded.
        """
        machine = self.crew.machine
        if machine is None:
            return
        self._of_other_hardware = self.crew.ask_exemplars("use_hardware", machine.device, MEASURED_AGAIN)
        related = self._related.entries() if self._related and machine.on_gpu else []  # on a CPU no prompt shows any
        source, sizes = self.config.prompting.related_from, self.config.problems.sizes
        if related and (measured := sizes_measured_in(source, sizes)):
            self.progress.note(
                f"prompting.related_from={source}: speedups of related kernels are shown as recorded, at "
                f"problems.sizes={measured}; this run has problems.sizes={sizes}"
            )
        if others := measured_elsewhere(related, machine.device):
            self.progress.note(
                f"prompting.related_from={source}: speedups of related kernels are shown as recorded, {others}; "
                f"this is {machine.device}"
            )

    def measure_exemplars(self, problem_ids: Collection[str]) -> None:
        """Measure again, before prompts of these problems show exemplars, the fastest that other hardware measured.
        Nothing may be under way except the corpus of stage 1, which is waited for too.
        """
        if self.config.exemplars.strategy == "none":
            return
        by_id = {e.exemplar_id: e for e in self._of_other_hardware if e.problem_id in problem_ids}
        if not by_id:
            return
        self.crew.rollouts.rest()  # on a shared GPU, engines that took weights hold memory that candidates need
        collector = self.batches.beside or self.batches.collector("training")  # a candidate of both is evaluated once
        collector.begin_batch()
        new = [collector.submit(key, self.problems[each.problem_id], each.code) for key, each in by_id.items()]
        if any(new):
            self.progress.note(f"measuring {counted(sum(new), 'exemplar')} again on {self.crew.machine.device}")
        collector.finish()
        measured = [
            replace(exemplar, speedup=collector.verdicts[identity].credited_speedup)
            for identity, exemplar in by_id.items()
            if collector.verdicts[identity].accepted
        ]
        self.crew.ask_exemplars("insert", measured)
        self._of_other_hardware = [e for e in self._of_other_hardware if e.exemplar_id not in by_id]

    def restored(self) -> None:
        """Record that the state is that of a checkpoint of this run."""
        self._restored = (self.state.stage, self.state.step)

    def _leave_out_long_problems(self) -> set[str]:
        """Take problems whose reference alone is longer than a prompt may be out of both splits, with a note; return
        their ids.

        Raises:
            UserError: when no training problem is left.
        """
        too_long: list[PromptTooLong] = []
        for problem in [*self.train_problems, *self.held_out_problems]:
            try:
                self.prompts.one_shot(problem)
            except PromptTooLong as error:
                too_long.append(error)
        names = {error.problem_id for error in too_long}
        if not names:
            return names
        listed = ", ".join(f"{error.problem_id} ({error.tokens} tokens)" for error in too_long[:NAMED_PROBLEMS])
        more = f" and {len(too_long) - NAMED_PROBLEMS} more" if len(too_long) > NAMED_PROBLEMS else ""
        limit = f"prompting.max_prompt_tokens={self.config.prompting.max_prompt_tokens}"
        self.train_problems = [p for p in self.train_problems if p.problem_id not in names]
        self.held_out_problems = [p for p in self.held_out_problems if p.problem_id not in names]
        if not self.train_problems:
            raise UserError(f"{limit}: every training problem makes a longer prompt: {listed}{more}; raise it")
        self.progress.note(f"left out, their prompts are longer than {limit}: {listed}{more}")
        return names

    @property
    def rotation(self) -> list[str]:
        """Return the training problems that are still asked, of `problems.asked`: those that left the rotation are not.

        Raises:
            UserError: when none is left.
        """
        ids = [problem.problem_id for problem in fixed_problems(self.train_problems, self.config.problems.asked)]
        left = [problem_id for problem_id in ids if not self.state.problems.retired(problem_id)]
        if not left:
            raise UserError(
                f"problems.source={self.config.problems.source}: none of {counted(len(ids), 'training problem')} can "
                f"be evaluated; {self.run.verdicts} has the reasons"
            )
        return left

    def begin_stage(self) -> None:
        """Start the metrics of a stage with nothing of what went before, an assessment for example."""
        self.metrics.discard()
        self.clock.lap()

    def prompt(self, problem_id: str, selection: Selection | None = None) -> Prompt:
        """Return the prompt of a problem, with the selected exemplars or, without a selection, of the one-shot kind.

        Raises:
            UserError: when the reference alone is longer than a prompt may be.
        """
        problem = self.problems[problem_id]
        try:
            return self.prompts.contrastive(problem, selection) if selection else self.prompts.one_shot(problem)
        except PromptTooLong as error:
            raise UserError(str(error)) from None

    def seed(self, label: str) -> int:
        """Return 31 bits that the label and the run's seed decide."""
        return derive_seed(self.config.seed, label, 0) >> 32

    def sampling(self, temperature: float, label: str) -> SamplingParameters:
        """Return the sampling parameters of one call; the label and the run's seed decide every draw."""
        limit = self.config.prompting.max_completion_tokens
        return SamplingParameters(temperature=temperature, max_tokens=limit, seed=self.seed(label))

    def sample(
        self, prompts: Sequence[Prompt], n: int, sampling: SamplingParameters, scope: str, label: str
    ) -> list[EvaluatedSample]:
        """Return what `Sampler.sample` does, reviewed where there is a reward checker."""
        samples = self.batches.sample(prompts, self.problems, n, sampling, scope=scope, label=label)
        return self.reviewer.review(samples, label) if self.reviewer else samples

    def publish(self, during_generation: bool = False) -> None:
        """Send the learner's weights to every engine, as a new policy version."""
        self.state.policy_version += 1
        self._send_weights(during_generation)

    def ensure_published(self) -> None:
        """Send the engines the weights that were loaded into the learner from a checkpoint, under their version."""
        if not self.engines_current:
            self._send_weights()

    def _send_weights(self, during_generation: bool = False) -> None:
        self.progress.role("learner", "publishing weights")
        self.metrics.add("busy_sync", self.crew.publish(self.state.policy_version, during_generation))
        self.engines_current = True
        self.progress.role("learner", IDLE)

    def learn(self, what: str, train: Callable[..., dict[str, float]], sequences: Sequence, *arguments: Any) -> None:
        """Run one update of the learner, with its metrics. Without a sequence there is nothing to learn from."""
        if not sequences:
            return
        self.crew.rollouts.rest()  # on a shared GPU, engines that took weights hold memory that the learner needs
        self.progress.role("learner", what)
        self.progress.refresh(force=True)
        with self.clock.learning():
            values = train(sequences, *arguments)
        for key, value in values.items():
            self.metrics.mean(key, value)
        self.progress.role("learner", IDLE)

    def remember(self, samples: Sequence[EvaluatedSample], step: int) -> None:
        """Add the accepted candidates to the exemplar buffer, except those whose evaluation is void, and honest
        failures where the configuration wants them; on disk when this returns.
        """
        settings = self.config.exemplars
        showable = set(settings.failure_reasons) if settings.remember_failures else set()
        exemplars = [
            Exemplar.new(
                j.prompt.problem_id,
                j.answer.code,
                j.verdict.credited_speedup,
                policy_version=j.completion.policy_version,
                step=step,
                parent_ids=j.prompt.exemplar_ids,
                reasons=j.verdict.reasons,
                detail=j.verdict.detail if j.verdict.reasons else "",
            )
            for j in samples
            if (j.verdict.accepted and verdict_reward(j.verdict, self.config.rewards) is not None)
            or (j.answer.code and j.verdict.reasons and showable.issuperset(j.verdict.reasons))
        ]
        self.crew.ask_exemplars("insert", exemplars)

    def record_step(
        self,
        stage: str,
        step: int,
        samples: Sequence[EvaluatedSample] = (),
        rewards: Sequence[float | None] = (),
        advantages: Sequence[float] = (),
        last: bool = False,
    ) -> None:
        """Write what the step produced, rollouts and metrics row; the state is then that after the step."""
        if samples:
            write_rollouts(self.run.rollouts, stage, step, samples, rewards, advantages)
            for key, value in batch_statistics([j.verdict for j in samples]).items():
                self.metrics.set(key, value)
            for key, value in signal_metrics(samples, rewards, advantages).items():
                self.metrics.set(key, value)
        self.state.stage, self.state.step, self.state.stage_finished = stage, step, last
        if last:
            self.state.stages_done.append(stage)
        figures = self.clock.lap()
        self.last_step_s = step_s = figures.pop("step_s")
        for key, value in figures.items():
            self.metrics.set(key, value)
        self.progress.step(self.metrics.finish_step(stage, step, step_s))

    @property
    def checkpoint_due(self) -> bool:
        """Return whether the step that was recorded last is one to be kept."""
        return self.state.stage_finished or self.state.step % self.config.checkpoint.every_steps == 0

    def checkpoint(self) -> None:
        """Write the state and the learner as they are."""
        check_free_space(self.run.path, self.config.checkpoint.min_free_mib)
        learner = self.crew.learner
        self.store.write(self.state, learner.save, learner.save_policy, learner.save_adapter)
        self._saved = (self.state.stage, self.state.step)

    def checkpoint_if_newer(self) -> None:
        """Write a checkpoint unless the last one, or that which the run continues from, is of this step."""
        place = (self.state.stage, self.state.step)
        if place[0] and place not in (self._saved, self._restored):
            self.checkpoint()

    def steps_saved(self, stage: str) -> int:
        """Return the steps of a stage that the last checkpoint has."""
        saved_stage, step = self._saved or self._restored or ("", 0)
        return step if saved_stage == stage else 0

    def steps_done(self, stage: str) -> int:
        """Return the steps of a stage that the checkpoint which the run continues from already has."""
        return self.state.step if self.state.stage == stage and not self.state.stage_finished else 0
