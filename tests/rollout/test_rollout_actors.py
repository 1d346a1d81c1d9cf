"""Rollout actors of the plain transformers engine: what is given up, and weights that come while they generate."""

from __future__ import annotations

import os
import signal
import time

import pytest
import ray

from cudal1_ray.actors.config import RoleConfig
from cudal1_ray.actors.fleet import Fleet
from cudal1_ray.actors.placement import actor_options
from cudal1_ray.actors.rollout import RolloutFleet
from cudal1_ray.actors.rollout_member import RolloutActor
from cudal1_ray.rollout import GenerationRequest, RolloutConfig, SamplingParameters
from tests.rollout.conftest import MAX_MODEL_LEN
from tests.rollout.engine_cases import weights_of

ROLE = RoleConfig(count=2, num_cpus=0.5, call_timeout_s=120, start_timeout_s=240)
ROLLOUT = RolloutConfig(engine="transformers", max_model_len=MAX_MODEL_LEN)
LONG = SamplingParameters(n=1, temperature=1.0, max_tokens=100, seed=11)
REQUESTS = [GenerationRequest(f"r{i}", tuple(range(10 + i, 20 + i))) for i in range(12)]


@pytest.fixture(scope="module")
def rollouts(ray_cluster, first_model):
    def start(_: int):
        return ray.remote(RolloutActor).options(**actor_options(ROLE)).remote(ROLLOUT, first_model.path)

    new_fleet = RolloutFleet(
        Fleet("rollout", start, ROLE, max_replacements=4, bring_up=lambda: new_fleet.bring_up()), turn_s=0.05
    )
    new_fleet.fleet.wait_until_ready()
    yield new_fleet
    new_fleet.fleet.stop()


def collect_all(rollouts, deadline_s: float = 300.0) -> dict:
    completions, deadline = {}, time.monotonic() + deadline_s
    while rollouts.outstanding:
        assert time.monotonic() < deadline
        for completion in rollouts.collect():
            assert completion.request_id not in completions  # each once
            completions[completion.request_id] = completion
    return completions


def test_completions_when_given_up_never_come_and_engines_are_free(rollouts):
    rollouts.start(REQUESTS, LONG)
    busy_before = rollouts.busy_s
    while not (first := rollouts.collect()):
        pass
    kept = {completion.request_id for completion in first}
    left = [request.request_id for request in REQUESTS if request.request_id not in kept]
    assert rollouts.abort(left) == len(left) and rollouts.abort(["r0", "unknown"]) == 0
    assert rollouts.outstanding == 0 and rollouts.collect() == []
    rollouts.start(REQUESTS[:3], LONG)  # nothing of the old share is in its way
    assert set(collect_all(rollouts)) == {"r0", "r1", "r2"}
    rollouts.settle()
    assert rollouts.busy_s > busy_before


def test_requests_when_there_is_no_engine_are_refused_and_weights_go_nowhere(ray_cluster):
    nothing = RolloutFleet(Fleet("rollout", lambda _: None, RoleConfig(count=0), max_replacements=0), sleeps=True)
    nothing.fleet.wait_until_ready()
    assert nothing.load_weights(ray.put({}), 1) >= 0.0 and nothing.sync_phases_s == []
    nothing.rest()
    with pytest.raises(RuntimeError, match="no rollout engine was started"):
        nothing.start(REQUESTS, LONG)
    assert nothing.outstanding == 0 and nothing.collect() == []
    nothing.fleet.stop()


def test_weights_when_engines_generate_may_come(rollouts, first_model, second_model):
    rollouts.load_weights(ray.put(weights_of(first_model)), 1)
    rollouts.start(REQUESTS, LONG)
    with pytest.raises(RuntimeError, match="12 completions are outstanding"):
        rollouts.load_weights(ray.put(weights_of(second_model)), 2)
    rollouts.collect()
    rollouts.load_weights(ray.put(weights_of(second_model)), 2, during_generation=True)
    completions = collect_all(rollouts)
    assert set(completions) == {request.request_id for request in REQUESTS}
    crossed = [completion for completion in completions.values() if completion.segments]
    assert all(completion.policy_version == 1 for completion in crossed)
    assert {completion.policy_version for completion in completions.values()} <= {1, 2}
    assert rollouts.fleet.call_all("policy_version") == [2, 2]


def test_engine_when_it_dies_while_it_gives_up_loses_nothing_else(rollouts):
    rollouts.start(REQUESTS, LONG)
    rollouts.collect()
    victim = ray.get(rollouts.fleet.handle(rollouts.fleet.members[0]).pid.remote())
    rollouts.abort(["r0", "r1"])
    os.kill(victim, signal.SIGKILL)
    completions = collect_all(rollouts)
    assert set(completions) <= {request.request_id for request in REQUESTS[2:]}
    rollouts.start(REQUESTS[:2], LONG)  # one for each engine: a dead one that had ended its share is found now
    assert set(collect_all(rollouts)) == {"r0", "r1"}
    assert len(rollouts.fleet.replacements) == 1
