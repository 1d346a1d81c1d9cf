"""The arms of the table: which run each is, where it starts, what it is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cudal1_ray.config import Config

# Settings of all runs besides the caller's: a step asks each prompt once, so that every arm has the same samples. The
# policy that a run starts with is assessed as another arm's.
SHARED = ("assessment.initial=false", "contrastive.ask_again=0", "contrastive.turns=1", "checkpoint.keep=1")


@dataclass(frozen=True)
class Arm:
    """One line of the table.

    Attributes:
        name: in the folders' names.
        label: in the table.
        stage: that its run takes the policy through; empty: the base model as it is, of which nothing is trained.
        start: the arm whose final policy it starts from; empty: the base model.
        settings: those of its run.
        every_seed: for all seeds, or for the first alone.
    """

    name: str
    label: str
    stage: str = "contrastive"
    start: str = ""
    settings: tuple[str, ...] = ()
    every_seed: bool = True

    @property
    def learns(self) -> bool:
        """Return whether its run changes the weights."""
        return bool(self.stage) and "contrastive.learning_rate=0" not in self.settings

    @property
    def shows_exemplars(self) -> bool:
        """Return whether its prompts show exemplars that its run found."""
        return any(text.startswith("exemplars=") and text != "exemplars=none" for text in self.settings)

    @property
    def has_control(self) -> bool:
        """Return whether its run ends by asking the policy that it started from, with the exemplars that it found."""
        return self.stage == "contrastive" and self.learns and self.shows_exemplars


ARMS = {
    arm.name: arm
    for arm in (
        Arm("base", "base model, zero-shot", stage="", every_seed=False),
        Arm(
            "evolution",
            "evolutionary, fixed weights",
            # What does not learn can only build on the fastest exemplars.
            settings=(
                "exemplars=bucket",
                "exemplars.headroom=1",
                "contrastive.one_shot_share=0",
                "contrastive.learning_rate=0",
            ),
        ),
        Arm("stage1", "stage 1", stage="sft"),
        Arm("stage2", "stages 1 + 2", stage="self_supervised", start="stage1", settings=("exemplars=bucket",)),
        # From where stage 3 starts, with about as many samples: they differ in how they learn, not how much they see.
        Arm(
            "stage2-long",
            "stages 1 + 2, as long as stage 3",
            stage="self_supervised",
            start="stage2",
            settings=("exemplars=bucket",),
        ),
        Arm("grpo", "+ GRPO without contrast", start="stage2", settings=("exemplars=none",)),
        Arm("bucket", "+ contrastive, bucket", start="stage2", settings=("exemplars=bucket",)),
        Arm("island", "+ contrastive, island", start="stage2", settings=("exemplars=island",), every_seed=False),
        Arm("random", "+ contrastive, random", start="stage2", settings=("exemplars=uniform",), every_seed=False),
    )
}


def arms_from(start: str) -> dict[str, Arm]:
    """Return the arms with those of stage 3, and what they are compared with, starting from `start`, "stage1" or
    "stage2". From stage 1, stage 2 with the samples of stage 3 is stages 1 + 2, and nothing starts from a shorter one.
    """
    return {
        name: replace(arm, start=start) if arm.start == "stage2" else arm
        for name, arm in ARMS.items()
        if name != "stage2" or start == "stage2"
    }


def run_name(arm: str, seed: int) -> str:
    """Return the name of the folder of an arm's run; the base model has that of stage 1, whose policy starts there."""
    return f"seed-{seed}-{'stage1' if arm == 'base' else arm}"


def budget(config: Config) -> int:
    """Return the samples of stage 3, and so of every arm beyond stages 1 and 2."""
    settings = config.contrastive
    return settings.steps * settings.problems_per_step * settings.group_size


def rounds_for(samples: int, problems: int, config: Config) -> int:
    """Return the rounds of stage 2 that come nearest to a number of samples.

    Args:
        problems: training problems, each asked in each round; from the second on with exemplars as well.
    """
    each = problems * config.self_supervised.samples_per_problem
    rounds, total = 1, each
    step = 2 * each if config.self_supervised.exemplar_prompts else each
    while total + step // 2 < samples:
        rounds, total = rounds + 1, total + step
    return rounds


def todo(names: list[str], seeds: list[int], arms: dict[str, Arm] = ARMS) -> list[tuple[int, str]]:
    """Return the (seed, arm) pairs in the order of their runs: what an arm starts from comes before it.

    The first seed comes whole, so that a table of one seed is there early.
    """
    arm_names = set(names)
    for name in list(arms)[::-1]:
        if name in arm_names and arms[name].start:
            arm_names.add(arms[name].start)
    if "base" in arm_names:
        arm_names.add("stage1")
    return [
        (seed, name)
        for place, seed in enumerate(seeds)
        for name, arm in sorted(arms.items(), key=lambda item: item[0] == "base")
        if name in arm_names and (arm.every_seed or place == 0)
    ]
