"""Speedups that another member of a fleet has to confirm: the rules, and evaluators that really do, and really die."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import pytest
import ray
import torch
from test_evaluation_queue import HONEST, PROBLEM, drain, make_fleet, quick

from cudal1_ray.actors.config import ClusterConfig
from cudal1_ray.actors.confirmations import Confirmations, config_of_members
from cudal1_ray.actors.evaluation_queue import EvaluationQueue
from cudal1_ray.actors.evaluator_pools import evaluate_on_cluster
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, Verdict

GPUS = EvaluationConfig(device="cuda")


def measured(speedup: float, hardware: str = "H100") -> Verdict:
    low, high = speedup / 1.01, speedup * 1.01
    return Verdict("p", "accepted", (), "", speedup, low, high, speedup, hardware=hardware)


def test_a_high_speedup_stands_when_another_gpu_of_the_type_shows_it():
    checks = Confirmations(GPUS, members=3)
    assert checks.settle("slow", 0, measured(2.9), 0.0).confirmed_on == ""
    assert checks.settle("beyond", 0, measured(2.9), 1.2) is None  # more than twice the best
    assert checks.settle("fast", 0, measured(3.3), 0.0) is None
    assert [checks.may("fast", member, [0, 1, 2]) for member in (0, 1, 2)] == [False, True, True]
    stands = checks.settle("fast", 1, measured(3.2), 0.0)
    assert stands.credited_speedup == 3.2 and stands.remeasured == (3.3, 3.2)
    assert stands.confirmed_on == "another_device"
    assert checks.may("fast", 0, [0, 1, 2])  # as if it were new


def test_speedup_when_it_differs_from_both_others_is_refused_and_a_rejection_ends_it():
    checks = Confirmations(GPUS, members=3)
    for member, speedup in enumerate((9.0, 3.0)):
        assert checks.settle("a", member, measured(speedup), 0.0) is None
    refused = checks.settle("a", 2, measured(5.0), 0.0)
    assert refused.reasons == ("unstable_timing",) and refused.credited_speedup == 0.0
    assert refused.remeasured == (9.0, 3.0, 5.0)
    for member, speedup in enumerate((9.0, 3.0)):
        assert checks.settle("b", member, measured(speedup), 0.0) is None
    assert checks.settle("b", 2, measured(3.1), 0.0).credited_speedup == 3.0
    assert checks.settle("c", 0, measured(9.0), 0.0) is None
    wrong = checks.settle("c", 1, Verdict.rejected("p", "wrong_output", "an error"), 0.0)
    assert wrong.reasons == ("wrong_output",) and wrong.detail == "on another device, after 9.00x: an error"


def test_device_when_it_cannot_measure_is_asked_no_more_and_two_are_believed():
    checks, unable = Confirmations(GPUS, members=3), Verdict.rejected("p", "memory_limit", "no room", hardware="H100")
    assert checks.settle("a", 0, measured(9.0), 0.0) is None
    assert checks.settle("a", 1, unable, 0.0) is None
    assert checks.settle("a", 2, measured(9.1), 0.0).credited_speedup == 9.0
    assert checks.settle("b", 0, measured(9.0), 0.0) is None
    assert checks.settle("b", 1, unable, 0.0) is None
    assert checks.settle("b", 2, unable, 0.0).reasons == ("memory_limit",)
    assert checks.settle("c", 0, unable, 0.0).reasons == ("memory_limit",)  # nothing was to be confirmed


def test_confirmation_when_by_the_paper_takes_two_measurements():
    timing = replace(GPUS.timing, most_measurements=2, remeasure_by_intervals=False)
    checks = Confirmations(replace(GPUS, timing=timing), members=3)
    wide = replace(measured(9.0), speedup_low=7.0, speedup_high=11.0)
    assert checks.settle("a", 0, wide, 0.0) is None
    assert checks.settle("a", 1, replace(wide, speedup=10.0), 0.0).reasons == ("unstable_timing",)


def test_confirmation_when_a_gpu_is_of_another_type_is_none():
    checks = Confirmations(GPUS, members=2)
    assert checks.settle("a", 0, measured(9.0), 0.0) is None
    assert checks.settle("a", 1, measured(9.0, "A100"), 0.0) is None
    assert [checks.may("a", member, [0, 1]) for member in (0, 1)] == [True, False]  # no other member is left
    stands = checks.settle("a", 0, measured(8.8), 0.0)
    assert stands.confirmed_on == "same_device" and stands.credited_speedup == 8.8
    assert checks.settle("b", 0, measured(9.0), 0.0) is None
    assert checks.may("b", 7, [0, 1, 7]) and not checks.may("b", 0, [0, 1, 7])  # a replacement, of unknown type


def test_candidate_when_the_first_device_type_is_gone_is_measured_anew():
    checks = Confirmations(GPUS, members=3)
    for member in (1, 2):
        assert checks.settle("other", member, measured(2.0, "A100"), 0.0).accepted
    assert checks.settle("a", 0, measured(9.0), 0.0) is None
    assert checks.may("a", 1, [1, 2]) and checks.settle("a", 1, measured(9.0, "A100"), 0.0) is None
    assert [checks.may("a", member, [1, 2]) for member in (1, 2)] == [False, True]
    assert checks.settle("a", 2, measured(9.1, "A100"), 0.0).remeasured == (9.0, 9.1)


def test_members_when_there_is_no_other_device_confirm_by_themselves():
    assert config_of_members(GPUS, 1) is GPUS and not Confirmations(GPUS, 1).active
    assert config_of_members(EvaluationConfig(), 4).timing.remeasure_above == 3.0  # CPU evaluators of one machine
    of_two = config_of_members(GPUS, 2).timing
    assert of_two.remeasure_above == of_two.remeasure_over_best == 0.0
    assert config_of_members(replace(GPUS, confirm_on="same_device"), 2).timing.remeasure_above == 3.0
    assert GPUS.timing.remeasure_above == 3.0
    with pytest.raises(UserError, match="evaluation.confirm_on is 'elsewhere'"):
        config_of_members(replace(GPUS, confirm_on="elsewhere"), 2)


@pytest.mark.usefixtures("ray_cluster")
def test_evaluator_when_it_dies_over_a_confirmation_is_replaced():
    config = quick(1)
    config.confirm_on, config.timing.remeasure_above = "another_device", 0.01
    fleet = make_fleet(config_of_members(config, 2), count=2)
    fleet.wait_until_ready()
    processes = {member: ray.get(fleet.handle(member).pid.remote()) for member in fleet.members}
    queue, done, deadline = EvaluationQueue(fleet, config), {}, time.monotonic() + 200
    queue.submit("good", PROBLEM, HONEST)
    queue.submit("wrong", PROBLEM, HONEST.replace("tanh_", "sin_"))
    while "good" not in queue._confirmations._measured:
        assert time.monotonic() < deadline
        done.update({result.work_id: result for result in queue.collect(0.1)})
    first = queue._confirmations._measured["good"][0][0]
    good = queue._candidates["good"][0]
    while good.worker is None:
        assert time.monotonic() < deadline
        done.update({result.work_id: result for result in queue.collect(0.1)})
    second = good.worker
    assert second != first
    os.kill(processes[second], signal.SIGKILL)
    done.update(drain(queue))
    verdict = done["good"].value
    assert verdict.accepted and verdict.confirmed_on == "another_device" and len(verdict.remeasured) >= 2
    assert verdict.credited_speedup == verdict.speedup in verdict.remeasured and verdict.hardware
    assert done["wrong"].value.reasons == ("wrong_output",) and len(fleet.replacements) == 1
    fleet.stop()


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ray_cluster")
def test_speedup_when_one_gpu_shows_it_is_confirmed_by_another():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs 2 GPUs")
    config = quick(2)
    config.device, config.timing.remeasure_above = "cuda", 0.01
    pairs = [(f"good{number}", PROBLEM, f"{HONEST}\n# {number}\n") for number in range(6)]
    pairs.append(("wrong", PROBLEM, HONEST.replace("tanh_", "sin_")))
    verdicts = dict(evaluate_on_cluster(pairs, config, ClusterConfig()))
    assert verdicts.pop("wrong").reasons == ("wrong_output",)
    for verdict in verdicts.values():
        assert verdict.accepted and verdict.confirmed_on == "another_device" and len(verdict.remeasured) >= 2
        assert verdict.hardware == torch.cuda.get_device_name(0)
