"""Configuration of the three stages, of the assessment between them, and of checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudal1_ray.errors import UserError
from cudal1_ray.learning.config import AlgorithmConfig
from cudal1_ray.rewards.config import RewardsConfig
from cudal1_ray.settings import bounded, one_of


@dataclass
class SftConfig:
    """Stage 1: supervised fine-tuning on validated candidates (arXiv 2507.14111, section 2.1)."""

    # Candidates to learn from: bundled; kernelbench, this project's kernels for KernelBench's training problems; a
    # folder <problem id>/<candidate>.py; or a Parquet file (or a folder of them) with the columns problem (or level and
    # problem_id) and code, and where there are any analysis, design, techniques, speedup and speedups. Those of the
    # run's training problems count.
    corpus: str = "bundled"
    # Candidates with a recorded speedup, of this device where the corpus has one, else of any, are not evaluated again;
    # false: all are evaluated here.
    recorded_verdicts: bool = True
    epochs: int = bounded(2, least=1)  # passes over the pairs; each epoch draws its contrastive prompts anew
    batch_sequences: int = bounded(8, least=1)  # sequences per optimiser step
    # Learning rate of the stage, after warm-up. The default is customary for all weights of a pretrained policy; of
    # adapters (policy.lora_rank) ten times as much.
    learning_rate: float = bounded(1e-5, least=0, most=1)
    warmup_steps: int = 5  # steps over which the learning rate rises from zero
    schedule: str = one_of("cosine", "constant", "linear")  # over the stage's known number of steps
    one_shot_per_candidate: int = 1  # pairs per validated candidate and epoch, prompt without exemplars
    contrastive_per_candidate: int = 1  # pairs per validated candidate and epoch, prompt with exemplars
    # Further members of each bundled problem's family, drawn anew for every epoch, with a pair without exemplars for
    # each of their candidates. For a policy made from scratch, which learns the problems by heart otherwise.
    drawn_members: int = bounded(0, least=0)
    # Problems drawn from a grammar for every epoch, each with one candidate that is right by construction and a pair
    # without exemplars. For a pretrained policy, which learns from them how a candidate is written.
    generated_problems: int = bounded(0, least=0)


@dataclass
class CollectConfig:
    """`cudal1 collect`: candidates for stage 1 from any policy (section 2.1 of the paper)."""

    # The table of accepted candidates; beside it lies <out>.jsonl with every attempt, by which the command goes on.
    out: str = "runs/corpus.parquet"
    # Attempts for each problem, at most. The paper: 20.
    attempts: int = bounded(20, least=1)
    # Distinct accepted candidates after which a problem is left alone; 0: never. The paper: 2.
    successes: int = 2
    # Attempts for one problem under way at once: fewer waste less, more are sooner done.
    at_once: int = bounded(2, least=1)
    # Temperature of sampling.
    temperature: float = bounded(1.0, least=0)
    # Prompts show earlier successes with their speedups, as exemplars.* sets it: an evolutionary search with a policy
    # that does not learn. With successes=0.
    show_earlier: bool = False


@dataclass
class SelfSupervisedConfig:
    """Stage 2: sample, keep what runs and is right, train on it (section 2.2): REINFORCE, reward 1/0, no baseline."""

    rounds: int = bounded(3, least=1)  # rounds: all problems are sampled, and what was accepted is trained on
    samples_per_problem: int = bounded(8, least=1)  # completions of each problem and kind of prompt in a round
    # From the second round on, ask with exemplars as well: the policy then enters stage 3 able to answer its prompt.
    # The paper does not state how it asks here.
    exemplar_prompts: bool = True
    temperature: float = bounded(1.0, above=0)  # temperature of sampling
    # Learning rate of the stage; 0: no update is computed, the policy stays as it is. The default is customary for all
    # weights; of adapters (policy.lora_rank) 1e-4.
    learning_rate: float = bounded(1e-6, least=0, most=1)
    warmup_steps: int = 0  # optimiser steps in which the learning rate rises; then learner.schedule
    algorithm: AlgorithmConfig = field(default_factory=lambda: AlgorithmConfig(name="reinforce"))
    rewards: RewardsConfig = field(default_factory=lambda: RewardsConfig(kind="success"))

    @property
    def shows_exemplars(self) -> bool:
        """Return whether any of its prompts may show exemplars: the first round's successes are the first ones."""
        return self.exemplar_prompts and self.rounds > 1


@dataclass
class ContrastiveConfig:
    """Stage 3: contrastive reinforcement learning (section 2.3). The paper does not publish these figures."""

    steps: int = bounded(60, least=1)  # steps of the stage: each samples a batch of prompts, and learns from it
    problems_per_step: int = bounded(8, least=1)  # problems drawn for one step, a prompt each
    group_size: int = bounded(8, least=1)  # completions per prompt: one GRPO group
    temperature: float = bounded(1.0, above=0)  # temperature of sampling; above 0 to explore
    # Learning rate of the stage; 0: no update is computed, the policy stays as it is. The default is customary for all
    # weights; of adapters (policy.lora_rank) 1e-4 to 3e-4.
    learning_rate: float = bounded(1e-6, least=0, most=1)
    # Optimiser steps in which the learning rate rises to learning_rate, then follows learner.schedule. The optimiser's
    # moments are empty at the start of a stage: its first steps are as large as any, however little a batch teaches.
    warmup_steps: int = 0
    # Which problems a step asks: laps (shuffled passes, each equally often) | informative (those whose completions have
    # differed lately, and those that were not asked for long: training/problem_history.py).
    problem_order: str = one_of("informative", "laps")
    # Share of a step's prompts that show no exemplar, drawn anew in each step, so that the policy learns from them too
    # what it is asked without exemplars. 0: none (the paper).
    one_shot_share: float = bounded(0.0, least=0, most=1)
    # Times that a step asks for group_size more completions of each prompt whose completions do not differ: at 8%
    # success a group of 8 has a success in 49% of cases, one of 16 in 74%.
    ask_again: int = 1
    # Pairs of stage 1 without exemplars, drawn anew, that a step learns from in one optimiser step more, so that the
    # policy keeps what it could do without exemplars where prompts show them (as PPO-ptx mixes pretraining in: arXiv
    # 2203.02155, section 3.5). 0: none.
    rehearsed_pairs: int = bounded(0, least=0)
    # A step teaches nothing when fewer groups than this have completions that differ: an optimiser step is as large for
    # one such group as for twelve.
    min_informative_groups: int = bounded(1, least=1)
    # Turns: a candidate that fails comes back with what the evaluator found, one that is not faster with its time, and
    # is asked again, once for each turn beyond the first. All turns train, in the group of the first.
    turns: int = bounded(1, least=1)
    # A turn is worth at least this share of the turn that revised it. Kevin-32B (arXiv 2507.11948) found 0.4 best, of
    # sums over later turns; see training/turns.py.
    turn_discount: float = bounded(0.4, least=0, most=1)
    # Updates that may come between the policy that wrote a completion and the one that is trained on it. 0: exactly
    # on-policy. 1: engines and evaluators work on the next step while the learner takes this one. More helps only
    # where evaluation takes longer than generation and learning.
    staleness: int = 0
    # New weights do not wait for the end of generation: completions continue with them. Needs a staleness of 1 or more.
    partial_rollouts: bool = False
    # Over-sampling, against the long tail: problems per step beyond problems_per_step, given up once enough of the
    # others have ended. What ends first is shorter than the average, so a few percent only.
    extra_problems: int = 0
    # The same within a group: completions per prompt beyond group_size.
    extra_completions: int = 0

    def validate(self) -> None:
        """Check the section. Raises UserError naming the first field whose value cannot work."""
        if self.min_informative_groups > self.problems_per_step:
            raise UserError(
                f"contrastive.min_informative_groups={self.min_informative_groups}: must be at most "
                f"contrastive.problems_per_step={self.problems_per_step}"
            )
        if self.partial_rollouts and self.staleness == 0:
            raise UserError(
                "contrastive.partial_rollouts=true: their first tokens are of an older policy, so set "
                "contrastive.staleness=1 or more"
            )


@dataclass
class AssessmentConfig:
    """The table of the report: each policy sampled anew, evaluated apart from all that training saw."""

    # false: the run ends without its table; with stage=sft nothing samples then, and no rollout engine is started.
    enabled: bool = True
    samples_per_problem: int = bounded(8, least=1)  # completions of each problem, from each policy
    # Problems of each split that are asked, the same for every policy of every run; null: all.
    problems: int | None = bounded(None, least=1)
    temperature: float = 1.0  # temperature of sampling; 0 takes the likeliest token
    held_out: bool = True  # also on the held-out problems
    # The policy that the run starts with; false: where it comes from another run, which assessed it.
    initial: bool = True
    # The control: after the contrastive stage, the policy that it started from, shown the exemplars found since. What
    # the stage gained beyond it, the policy has learned.
    control: bool = True
    # Steps of the contrastive stage between two assessments of the policy, without and with exemplars; 0: none.
    every_steps: int = 0
    problems_during: int = bounded(12, least=1)  # problems of each split in such an assessment: the same every time


@dataclass
class CheckpointConfig:
    """How often a run saves what it needs to continue, and how much of it stays."""

    # Steps between checkpoints; a killed run repeats at most that many. With the optimiser of all weights one has
    # 14 bytes a parameter: 20 GB at 1.5 B.
    every_steps: int = bounded(10, least=1)
    min_free_mib: int = 256  # a run stops with a message, not in the middle of a write, when less is free on its disk
    keep: int = bounded(2, least=1)  # older ones are deleted; the last of each finished stage stays
    # Every checkpoint holds the policy as a model folder, for a server that follows the run (weights.follow); else only
    # the last of each stage does.
    export_policy: bool = False


@dataclass
class TrackingConfig:
    """Where metrics go besides the run's own files (metrics.jsonl and TensorBoard's in tb/)."""

    service: str = one_of("none", "wandb")  # none | wandb (Weights & Biases; needs the extra `wandb`)
    project: str = "cudal1"  # the name under which the service groups runs
    entity: str | None = None  # user or team there; null: the account's own
    mode: str = one_of("online", "offline")  # online | offline: kept in the run's folder, for `wandb sync`
