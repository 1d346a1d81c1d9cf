"""Configuration of the three stages, of the assessment between them, and of checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudal1_ray.errors import UserError
from cudal1_ray.learning.config import AlgorithmConfig
from cudal1_ray.rewards.config import RewardsConfig


@dataclass
class SftConfig:
    """Stage 1: supervised fine-tuning on validated candidates (arXiv 2507.14111, section 2.1)."""

    epochs: int = 20  # passes over the pairs; each epoch draws its contrastive prompts anew
    batch_sequences: int = 32  # sequences per optimiser step
    learning_rate: float = 2e-3
    warmup_steps: int = 20
    schedule: str = "cosine"  # constant | linear | cosine, over the stage's known number of steps
    one_shot_per_candidate: int = 1  # pairs per validated candidate and epoch, prompt without exemplars
    contrastive_per_candidate: int = 1  # pairs per validated candidate and epoch, prompt with exemplars


@dataclass
class SelfSupervisedConfig:
    """Stage 2: sample, keep what runs and is right, train on it (section 2.2): REINFORCE, reward 1/0, no baseline."""

    rounds: int = 3
    samples_per_problem: int = 8  # of each kind of prompt
    # From the second round on, ask with exemplars as well: the policy then enters stage 3 able to answer its prompt.
    # The paper does not say how it asks here.
    exemplar_prompts: bool = True
    temperature: float = 1.0
    learning_rate: float = 2e-4
    algorithm: AlgorithmConfig = field(default_factory=lambda: AlgorithmConfig(name="reinforce"))
    rewards: RewardsConfig = field(default_factory=RewardsConfig)


@dataclass
class ContrastiveConfig:
    """Stage 3: contrastive reinforcement learning (section 2.3). The paper does not publish these figures."""

    steps: int = 20
    problems_per_step: int = 12
    group_size: int = 8  # completions per prompt: one GRPO group
    temperature: float = 1.0
    learning_rate: float = 3e-4
    # Updates that may come between the policy that wrote a completion and the one that is trained on it. 0: exactly
    # on-policy. 1: engines and evaluators work on the next step while the learner takes this one. More helps only
    # where evaluation takes longer than generation and learning.
    staleness: int = 0
    # New weights do not wait for the end of generation: completions go on under them. Wants staleness of 1 or more.
    partial_rollouts: bool = False
    # Over-sampling, against the long tail: asked for beyond what is wanted, and given up once there is enough. What is
    # first to finish is shorter than the average, so a few percent only.
    extra_problems: int = 0  # per step
    extra_completions: int = 0  # per prompt

    def validate(self) -> None:
        """Raises UserError naming the first field whose value cannot work."""
        for name in ("staleness", "extra_problems", "extra_completions"):
            if getattr(self, name) < 0:
                raise UserError(f"contrastive.{name}={getattr(self, name)}: must be at least 0")
        if self.partial_rollouts and self.staleness == 0:
            raise UserError(
                "contrastive.partial_rollouts=true: their first tokens are of an older policy, so set "
                "contrastive.staleness=1 or more"
            )


@dataclass
class AssessmentConfig:
    """The table of the report: each policy sampled anew, evaluated apart from all that training saw."""

    enabled: bool = True
    samples_per_problem: int = 8
    temperature: float = 1.0
    held_out: bool = True  # also on the held-out problems


@dataclass
class CheckpointConfig:
    every_steps: int = 1  # steps between checkpoints; a killed run repeats at most so many
    min_free_mib: int = 256  # a run stops with a message, not in the middle of a write, when less is free on its disk
    keep: int = 2  # older ones are deleted; the last of each finished stage stays
    export_policy: bool = False  # every checkpoint holds the policy as a model folder, for a server that follows the
    # run (weights.follow); else only the last of each stage does
