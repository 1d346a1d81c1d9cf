"""A policy small enough to train in a test, and learners of it."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from learning_samples import SHAPE, TEXTS

from cudal1_ray.learning import LearnerConfig, PolicyConfig, build_policy, save_policy
from cudal1_ray.uncollected import imported_to_stay


@pytest.fixture(scope="session")
def policy_config() -> PolicyConfig:
    return SHAPE


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a policy. DeepSpeed collects garbage in most updates: what it imports is left out of that,
    as in a run.
    """
    gc.collect()  # garbage of earlier tests would stay as well
    with imported_to_stay():
        from cudal1_ray.learning import Learner  # noqa: F401

    torch.set_num_threads(1)
    folder: Path = tmp_path_factory.mktemp("policy")
    save_policy(*build_policy(SHAPE, TEXTS, seed=3), folder)
    return str(folder)


@pytest.fixture
def make_learner(policy_folder: str):
    """Return Learner(policy fields as `policy_x`, learner fields as `x`)."""
    from cudal1_ray.learning import Learner

    def make(policy_folder: str = policy_folder, seed: int = 0, **fields):
        policy = {key.removeprefix("policy_"): fields.pop(key) for key in list(fields) if key.startswith("policy_")}
        config = LearnerConfig(device="cpu", **fields)
        return Learner(config, PolicyConfig(**{**vars(SHAPE), **policy}), policy_folder, seed=seed)

    return make
