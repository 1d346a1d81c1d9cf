"""Checks of a whole run that need no actor: settings of several sections that have to fit each other."""

from __future__ import annotations

import json
from pathlib import Path

from cudal1_ray.actors.config import check_placement
from cudal1_ray.config import Config, stages_of, started_cluster
from cudal1_ray.errors import UserError
from cudal1_ray.learning.algorithm import compute_advantages
from cudal1_ray.problems.corpus_sources import require_corpus
from cudal1_ray.training.seeding import require_seeds

RECIPES = "kernelbench_one_gpu, kernelbench_four_gpus, my_problems_cpu"


def check_run(config: Config) -> None:
    """Check that the settings of several sections fit each other. `--cfg` checks as much; the files that settings name,
    devices and the run's folder are looked at when a run starts.

    Raises:
        UserError: naming the keys that do not, and what to set.
    """
    if config.policy.kind == "endpoint":
        raise UserError("policy=endpoint: a server gives no weights to train; `cudal1 collect` samples its model")
    if config.recipe == "demo" and config.policy.kind != "scratch":
        raise UserError(
            f"policy.kind={config.policy.kind} with recipe=demo: the demo's learning rates, lengths and devices are "
            f"those of a small policy made from scratch; give recipe={RECIPES} ..., or recipe=none"
        )
    if config.policy.kind == "scratch" and config.policy.path:
        raise UserError(
            f"policy.path={config.policy.path}: policy.kind=scratch makes a policy of its own; give recipe={RECIPES} "
            "..., or policy=huggingface with recipe=none"
        )
    if config.problems.split == "held_out":
        raise UserError("problems.split=held_out: a run needs training problems; take train, or all")
    check_lengths(config)
    check_devices(config)
    check_placement(config.cluster, config.rollout, config.evaluation)
    check_overlap(config)
    check_groups(config)
    check_reward_checker(config)
    config.problems.require_paths()


def check_lengths(config: Config) -> None:
    """Check that the longest prompt leaves room for the longest completion, in the engine and in the policy.

    Raises:
        UserError: naming the lengths.
    """
    prompting = config.prompting
    longest = prompting.max_prompt_tokens + prompting.max_completion_tokens
    limits = {"rollout.max_model_len": config.rollout.max_model_len}
    if config.policy.kind == "scratch" and config.policy.max_position is not None:
        limits["policy.max_position"] = config.policy.max_position
    own = own_limit(config.policy.path) if config.policy.kind == "huggingface" else None
    if own is not None and config.rollout.max_model_len > own:
        raise UserError(
            f"rollout.max_model_len={config.rollout.max_model_len}: {config.policy.path} takes {own} tokens "
            "(max_position_embeddings in its config.json); lower it"
        )
    for key, limit in limits.items():
        if longest > limit:
            raise UserError(
                f"{key}={limit}: prompting.max_prompt_tokens={prompting.max_prompt_tokens} and "
                f"prompting.max_completion_tokens={prompting.max_completion_tokens} need {longest} together, or "
                "answers are cut short; raise the first or lower the others"
            )


def own_limit(path: str) -> int | None:
    """Return a policy folder's longest sequence in tokens; None where its file does not state it in one number.

    With scaled rotary positions vLLM computes the limit from several of them.
    """
    try:
        settings = json.loads((Path(path).expanduser() / "config.json").read_text())
        rotary = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
        scaled = rotary.get("rope_type", rotary.get("type", "default")) != "default"
        return None if scaled else int(settings["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # a name on a hub, or a file that is refused where the policy is prepared


def check_devices(config: Config) -> None:
    """Check that every role that computes on a GPU is given one, and no other is.

    Raises:
        UserError: naming the role's keys.
    """
    devices = {
        "rollout": ("rollout.device", config.rollout.device),
        "learner": ("learner.device", config.learner.device),
        "evaluator": ("evaluation.device", config.evaluation.device),
    }
    for role, (key, device) in devices.items():
        gpus = getattr(config.cluster, role).num_gpus
        if device == "cuda" and gpus <= 0 or device == "cpu" and gpus > 0:
            raise UserError(
                f"{key}={device} with cluster.{role}.num_gpus={gpus:g}: presets of one section change no other; take "
                f"a recipe that has both (recipe={RECIPES} ...), or set them both"
            )


def check_gpus(config: Config) -> None:
    """Check that PyTorch sees a GPU where the Ray that is started here is to give roles one. Ray itself is asked later,
    when the policy may have been downloaded.

    Raises:
        UserError: naming the roles.
    """
    import torch

    cluster = started_cluster(config)
    started = [name for name in ("rollout", "evaluator", "learner") if getattr(cluster, name).count > 0]
    roles = [name for name in started if getattr(cluster, name).num_gpus > 0]
    if roles and not cluster.address and cluster.num_gpus is None and torch.cuda.device_count() == 0:
        raise UserError(
            f"cluster: a GPU is needed by {', '.join(roles)}, and PyTorch sees none here; give "
            "cluster.address=HOST:PORT of a Ray cluster that has GPUs, or take a recipe for CPUs (recipe=demo, "
            "my_problems_cpu)"
        )


def check_groups(config: Config) -> None:
    """Check that a completion is compared with others where the algorithm takes advantages within a group.

    Raises:
        UserError: naming group size and algorithm.
    """
    settings, name = config.contrastive, config.algorithm.name
    if "contrastive" not in stages_of(config) or settings.group_size > 1 or settings.turns > 1:
        return
    if not compute_advantages([1.0], [0], config.algorithm).any():
        raise UserError(
            f"contrastive.group_size=1 with algorithm.name={name}: every advantage of a group of one is 0, so nothing "
            "is learnt; set it to 2 or more, or take algorithm=reinforce"
        )


def check_overlap(config: Config) -> None:
    """Check that what is to work side by side has devices side by side.

    Raises:
        UserError: naming the keys that exclude each other.
    """
    settings, cluster = config.contrastive, config.cluster
    alone = {
        "cluster.shared_gpu=true": cluster.shared_gpu,
        "rollout.sleep_mode=true": config.rollout.sleep_mode,
        "cluster.evaluate_during_generation=false": not cluster.evaluate_during_generation,
    }
    for key, holds in alone.items():
        if settings.staleness > 0 and holds:
            raise UserError(
                f"contrastive.staleness={settings.staleness}: roles that share one GPU take turns ({key}); "
                "set contrastive.staleness=0, or give them GPUs of their own (cluster=two_gpus, four_gpus)"
            )


def check_reward_checker(config: Config) -> None:
    """Check that one reward checker rules in every stage.

    Raises:
        UserError: naming the other one.
    """
    name = config.self_supervised.rewards.checker.judge
    if name not in ("none", config.rewards.checker.judge):
        raise UserError(f"self_supervised.rewards.checker.judge={name}: set rewards.checker, it rules in every stage")


def check_corpora(config: Config) -> None:
    """Check that each corpus that the run reads is there.

    Raises:
        UserError: naming the setting.
    """
    sources = {
        "sft.corpus": config.sft.corpus if "sft" in stages_of(config) else "",
        "prompting.related_from": config.prompting.related_from,
    }
    for key, source in sources.items():
        if source:
            require_corpus(source, key)
    if config.exemplars.seed_from:
        require_seeds(config.exemplars.seed_from)
