"""What a group of learners makes of the errors of its ranks."""

from __future__ import annotations

import pytest
import ray
import torch

from cudal1_ray.actors.config import RoleConfig
from cudal1_ray.actors.learner import LearnerGroup, LearnerLost, waiting_environment
from cudal1_ray.errors import UserError
from cudal1_ray.learning import LearnerConfig

pytestmark = pytest.mark.slow

OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 1.45 GiB. GPU 0 has a total capacity of 79.18 GiB of which"


@ray.remote(num_cpus=0.1)
class FailingRank:
    def call(self, method: str, error: BaseException) -> None:
        raise error


@pytest.fixture
def group(ray_cluster):
    group = LearnerGroup.__new__(LearnerGroup)  # whose ranks are these, instead of those that it starts
    group._role, group._ranks = RoleConfig(call_timeout_s=60), [FailingRank.remote()]
    yield group
    group.stop()


def test_learner_when_its_gpu_has_no_memory_left_is_lost_and_names_the_settings(group):
    with pytest.raises(LearnerLost) as lost:
        group._all("train_sft", torch.OutOfMemoryError(OUT_OF_MEMORY))
    message = str(lost.value)
    assert message.startswith("learner: CUDA out of memory. Tried to allocate 1.45 GiB; ")
    assert "learner.tokens_per_micro_batch" in message and "evaluation.slots" in message and "\n" not in message


def test_learner_when_its_own_code_fails_raises_that_error(group):
    with pytest.raises(ZeroDivisionError):
        group._all("train_sft", ZeroDivisionError("division by zero"))


def test_learner_when_a_setting_is_at_fault_raises_the_line_that_names_it(group):
    with pytest.raises(UserError) as fault:
        group._all("train_sft", UserError("policy.path=x: no model"))
    assert str(fault.value) == "policy.path=x: no model"


def test_learner_when_its_process_is_gone_is_lost_with_the_cause_in_one_line(group):
    ray.kill(group._ranks[0])
    with pytest.raises(LearnerLost) as lost:
        group._all("train_sft", ZeroDivisionError())
    assert "\n" not in str(lost.value)


def test_learner_when_it_computes_on_a_cpu_limits_how_long_its_threads_spin():
    assert int(waiting_environment(LearnerConfig(device="cpu"))["GOMP_SPINCOUNT"]) < 10_000
    assert waiting_environment(LearnerConfig(device="cuda")) == {}
