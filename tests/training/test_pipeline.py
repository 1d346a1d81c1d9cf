"""The order of things in the pipeline: which stage may work beside which."""

from __future__ import annotations

import pytest

from tests.training.scripted_run import GROUP, PROBLEMS, STEPS, check_complete, open_session, rows_of, run_stage


def test_staleness_0_when_scripted_takes_turns(tmp_path):
    session = run_stage(open_session(tmp_path))
    assert session.crew.learner.taken == [(version, {version}) for version in range(STEPS)]
    assert session.crew.published == [(version, False) for version in range(1, STEPS + 1)]
    check_complete(session)
    for row in rows_of(session):
        assert row["staleness_max"] == 0 and row["drift_mean_abs"] == 0.25 and row["drift_alarm"] == 1.0
        assert "off_policy_mean_abs" not in row and row["evaluations"] == PROBLEMS * GROUP


@pytest.mark.parametrize("staleness", [1, 2])
def test_generation_when_staleness_allows_goes_on_while_the_learner_learns(tmp_path, staleness):
    session = open_session(tmp_path, f"contrastive.staleness={staleness}")
    session.crew.learner.wants_company = True
    run_stage(session)
    check_complete(session)
    ages = [version - min(versions) for version, versions in session.crew.learner.taken]
    assert max(ages) <= staleness and ages[0] == 0 and all(ages[1:])
    # A younger policy than a step's own has never written any of it, and each step is of one policy.
    assert all(len(versions) == 1 for _, versions in session.crew.learner.taken)
    for row, age in zip(rows_of(session), ages, strict=True):
        assert row["staleness_max"] == age and row["stale_dropped"] == 0
        assert row["drift_mean_abs"] == 0.25  # by both sides' scores where the policies differ
        assert row.get("off_policy_mean_abs") == (0.25 if age else None)


def test_partial_rollouts_when_the_learner_is_ready_do_not_make_it_wait(tmp_path):
    session = open_session(tmp_path, "contrastive.staleness=1", "contrastive.partial_rollouts=true")
    session.crew.rollouts.score = lambda pairs: [tuple(-0.5 for _ in completion) for _, completion in pairs]
    session.crew.learner.wants_company = True
    run_stage(session)
    check_complete(session)
    assert any(during for _, during in session.crew.published)


def test_idle_shares_when_a_step_ends_are_of_every_role(tmp_path):
    session = run_stage(open_session(tmp_path, "contrastive.staleness=1"))
    for row in rows_of(session):
        assert {key for key in row if key.startswith("idle_")} == {"idle_rollout", "idle_evaluation", "idle_learner"}
        assert row["idle_evaluation"] == 1.0 and 0.0 <= row["idle_rollout"] <= 1.0
    assert rows_of(session)[0]["busy_rollout"] > 0.0
