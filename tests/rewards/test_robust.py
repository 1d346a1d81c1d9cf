"""The paper's protocol against noisy measurements."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from cudal1_ray.rewards import robust_score, score_of_buckets


def test_the_score_is_the_median_of_the_bucket_means():
    scores = [1.0, 1.02, 1.04, 1.0, 1.1, 1.1, 1.06, 1.06, 1.0, 1.0, 1.02, 1.04, 1.05, 1.05]
    means = [sum(scores[i : i + 2]) / 2 for i in range(0, 14, 2)]
    result = robust_score(scores)
    assert result.bucket_means == pytest.approx(means)
    assert result.variance == pytest.approx(statistics.variance(means))
    assert result.speedup == pytest.approx(statistics.median(means))


def test_buckets_are_consecutive_and_differ_by_at_most_one_run():
    result = robust_score(range(1, 18), max_variance=1e9)
    assert result.bucket_means == (2.0, 5.0, 8.0, 10.5, 12.5, 14.5, 16.5)
    assert result.speedup == 10.5


def test_bucket_means_alone_give_the_same():
    scores = np.random.default_rng(1).normal(1.5, 0.1, 70)
    assert score_of_buckets(robust_score(scores).bucket_means) == robust_score(scores)
    with pytest.raises(ValueError, match="1 bucket means"):
        score_of_buckets([1.0])


def test_a_single_bad_run_does_not_move_the_median():
    scores = [1.2] * 70
    scores[3] = 1.6
    assert robust_score(scores).speedup == pytest.approx(1.2)


def test_too_much_variance_between_buckets_voids_the_evaluation():
    drift = np.linspace(1.0, 1.4, 70)
    result = robust_score(drift)
    assert result.variance > 0.005 and result.speedup is None
    assert robust_score(drift, max_variance=1.0).speedup == pytest.approx(1.2)


def test_noise_within_buckets_is_averaged_away():
    noisy = np.random.default_rng(0).normal(1.5, 0.2, 7 * 400)
    assert robust_score(noisy).speedup == pytest.approx(1.5, abs=0.02)


def test_the_limit_itself_is_allowed():
    means = [1.0, 1.5]
    limit = statistics.variance(means)
    assert robust_score(means, buckets=2, max_variance=limit).speedup == 1.25
    assert robust_score(means, buckets=2, max_variance=limit * 0.999).speedup is None


@pytest.mark.parametrize("scores", [[], [1.0] * 6, [1.0] * 6 + [float("nan")], [1.0] * 6 + [float("inf")]])
def test_unusable_scores_are_refused(scores):
    with pytest.raises(ValueError):
        robust_score(scores)
