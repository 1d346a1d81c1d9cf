"""Rows of metrics in Weights & Biases, offline; and the message where it is not installed."""

from __future__ import annotations

import importlib.util

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.training.config import TrackingConfig
from cudal1_ray.training.metrics import RunMetrics
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.tracking import open_tracker

INSTALLED = importlib.util.find_spec("wandb") is not None
OFFLINE = TrackingConfig(service="wandb", mode="offline")


def test_tracking_when_there_is_no_service_needs_no_package(tmp_path):
    assert open_tracker(TrackingConfig(), tmp_path, {}) is None


@pytest.mark.skipif(INSTALLED, reason="wandb is installed")
def test_tracking_when_a_package_is_missing_names_the_command_that_installs_it(tmp_path):
    with pytest.raises(UserError, match="pip install wandb"):
        open_tracker(OFFLINE, tmp_path, {})


@pytest.mark.skipif(not INSTALLED, reason="wandb is not installed")
def test_tracking_when_offline_keeps_rows_and_a_continued_run_has_the_same_id(tmp_path):
    for step in (1, 2):
        tracker = open_tracker(OFFLINE, tmp_path, {"seed": 1})
        metrics = RunMetrics(RunFolder(tmp_path), tracker)
        metrics.set("reward_mean", 0.5)
        metrics.finish_step("contrastive", step, 1.0)
        tracker.finish()
    written = list((tmp_path / "wandb").glob("offline-run-*"))
    run_id = (tmp_path / "wandb_id").read_text()
    assert written and all(folder.name.endswith(run_id) for folder in written)
