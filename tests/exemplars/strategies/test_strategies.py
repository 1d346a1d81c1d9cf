"""What the strategies really draw, against the formulas they state."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import (
    Draw,
    Exemplar,
    ExemplarBuffer,
    ExemplarsConfig,
    register_strategy,
    select,
    strategy_names,
)
from cudal1_ray.exemplars.strategies import BUNDLED
from cudal1_ray.exemplars.strategies.island import Islands, settle
from cudal1_ray.settings import bounds_of
from tests.exemplars.strategies.drawing import assert_drawn_as, drawn, view


def bucket_formula(speedups, width, tau):
    """Return the probability of every ordered pair, straight from the definition: distinct buckets, then uniform
    within.
    """
    members = {}
    for position, speedup in enumerate(speedups):
        if speedup > 0:
            members.setdefault(int(speedup // width), []).append(position)
    mean = {k: np.mean([speedups[i] for i in m]) for k, m in members.items()}
    mu = np.mean(list(mean.values()))
    weight = {k: np.exp((mean[k] - mu) / tau) for k in members}
    expected = {}
    for a, b in itertools.permutations(members, 2):
        p = weight[a] / sum(weight.values()) * weight[b] / (sum(weight.values()) - weight[a])
        for i, j in itertools.product(members[a], members[b]):
            expected[i, j] = p / len(members[a]) / len(members[b])
    return expected


@pytest.mark.parametrize("tau", [0.3, 1.0, 5.0])
def test_bucket_when_drawing_follows_the_papers_formula(tau):
    speedups = [0.0, 0.55, 0.6, 1.05, 1.1, 1.2, 1.6, 0.0, 2.3, 2.4]
    config = ExemplarsConfig(bucket_width=0.5, tau=tau)
    counts, reported = drawn("bucket", view(speedups), 2, config)
    expected = bucket_formula(speedups, 0.5, tau)
    assert_drawn_as(counts, expected)
    for pair, probabilities in reported.items():
        assert np.prod(probabilities) == pytest.approx(expected[pair])


def test_bucket_when_speedups_are_on_an_edge_puts_them_where_they_are_printed():
    # 0.3 / 0.1 is 2.999... in binary; 0.3 and 0.39 share [0.3, 0.4), and 0.29 is not in it.
    config = ExemplarsConfig(bucket_width=0.1)
    for _ in range(20):
        draw = BUNDLED["bucket"](view([0.3, 0.39, 0.29]), 3, np.random.default_rng(_), config)
        assert len(draw.positions) == 2 and 2 in draw.positions


def test_bucket_when_drawing_takes_one_of_each_bucket():
    counts, _ = drawn("bucket", view([1.01, 1.02, 1.03]), 2, draws=200)
    assert {len(positions) for positions in counts} == {1}


def test_bucket_when_an_outlier_overflows_exp_draws():
    draw = BUNDLED["bucket"](view([5000.0, 1.0, 2.0]), 3, np.random.default_rng(0), ExemplarsConfig(tau=0.01))
    assert draw.positions == (0, 2, 1) and draw.probabilities == pytest.approx((1.0, 1.0, 1.0))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_uniform_when_drawing_takes_every_ordered_choice_alike(count):
    counts, reported = drawn("uniform", view([1.0, 0.0, 2.0, 3.0, 4.0, 0.0]), count)
    choices = list(itertools.permutations([0, 2, 3, 4], count))
    assert_drawn_as(counts, dict.fromkeys(choices, 1 / len(choices)))
    assert all(np.prod(p) == pytest.approx(1 / len(choices)) for p in reported.values())


def island_formula(populations, speedups, count, tau):
    """Return the probability of every ordered draw: an inhabited island uniformly, then softmax without replacement in
    it.
    """
    expected = Counter()
    for members in populations:
        for order in itertools.permutations(members, min(count, len(members))):
            p, left = 1 / len(populations), list(members)
            for position in order:
                weights = {i: np.exp(speedups[i] / tau) for i in left}
                p *= weights[position] / sum(weights.values())
                left.remove(position)
            expected[order] += p
    return expected


def test_island_when_drawing_takes_one_island_by_the_formula():
    speedups = [1.0, 0.0, 1.5, 2.0, 0.8, 1.1, 2.4, 1.3]
    config = ExemplarsConfig(strategy="island", islands=3, tau=0.7, island_reset_every=1000)
    populations = [[0, 4, 7], [2, 5], [3, 6]]  # the accepted ones in turn
    assert settle(view(speedups), config).members == populations
    counts, reported = drawn("island", view(speedups), 2, config)
    expected = island_formula(populations, speedups, 2, 0.7)
    assert_drawn_as(counts, expected)
    for positions, probabilities in reported.items():
        assert np.prod(probabilities) == pytest.approx(expected[positions])


def test_founder_when_on_two_islands_has_the_probability_of_both():
    speedups = [3.0, 1.0, 2.0, 1.5, 1.8, 1.2]
    config = ExemplarsConfig(islands=2, island_reset_every=4)
    populations = settle(view(speedups), config).members
    assert populations == [[0, 2, 4], [0, 5]], "island 1 was the weaker one and got the best of island 0"
    counts, reported = drawn("island", view(speedups), 2, config)
    expected = island_formula(populations, speedups, 2, 1.0)
    assert_drawn_as(counts, expected)
    first = reported[0, 2][0]
    assert first == pytest.approx(sum(p for order, p in expected.items() if order[0] == 0))
    assert all(np.prod(p) == pytest.approx(expected[order]) for order, p in reported.items())


def test_children_when_their_parents_are_on_an_island_stay_there():
    parents = [(), (), (), (1,), (1, 3), (0, 1), (2,)]
    config = ExemplarsConfig(islands=3, island_reset_every=1000)
    members = settle(view([1.0] * 7, parents=parents), config).members
    # 0, 1, 2 are dealt out; 3 and 4 follow 1; the parents of 5 live apart, so it is dealt out again; 6
    # follows 2.
    assert members == [[0, 5], [1, 3, 4], [2, 6]]


def test_child_when_of_a_founder_alone_belongs_to_the_reseeded_island():
    parents = [(), (), (), (), (0,), (0, 2), (0, 4)]
    config = ExemplarsConfig(islands=2, island_reset_every=4)
    members = settle(view([3.0, 1.0, 2.0, 1.5, 1.8, 1.2, 1.1], parents=parents), config).members
    assert members == [[0, 2, 5], [0, 4, 6]]


def test_resets_when_due_reseed_the_weak_half_from_the_strong():
    speedups = [1.0, 4.0, 2.0, 3.0] + [0.0, 1.1, 4.1, 2.1, 3.1]
    config = ExemplarsConfig(islands=4, island_reset_every=8)
    assert settle(view(speedups), config).members == [[6], [1, 6], [8], [3, 8]]


def test_migration_when_due_moves_the_best_to_the_next_island_once():
    # 0, 1, 2 are dealt out; after 3 the best of each goes on; 3, 4, 5 follow; after 6 only 5 is at home on one island.
    speedups = [1.0, 2.0, 3.0, 1.5, 0.5, 4.0]
    config = ExemplarsConfig(islands=3, island_reset_every=100, island_migrate_every=3)
    assert settle(view(speedups[:3]), config).members == [[0, 2], [1, 0], [2, 1]]
    assert settle(view(speedups), config).members == [[0, 2, 3, 5], [1, 0, 4], [2, 1, 5]]
    never = ExemplarsConfig(islands=3, island_reset_every=100, island_migrate_every=0)
    assert settle(view(speedups), never).members == [[0, 3], [1, 4], [2, 5]]


def test_migration_when_a_reset_is_due_gives_way_to_it():
    speedups = [1.0, 4.0, 2.0, 3.0]
    config = ExemplarsConfig(islands=4, island_reset_every=4, island_migrate_every=2)
    # After 2 the best migrate: 0 to island 1, 1 to island 2. After 4 islands 0 and 3 are the weak ones.
    assert settle(view(speedups), config).members == [[1], [1, 0], [1, 2], [1]]


def test_migrant_when_on_two_islands_has_the_probability_of_both():
    speedups = [3.0, 1.0, 2.0, 1.5, 1.8, 1.2]
    config = ExemplarsConfig(islands=2, island_reset_every=100, island_migrate_every=4)
    populations = settle(view(speedups), config).members
    assert populations == [[0, 2, 3, 4], [1, 3, 0, 5]]
    counts, reported = drawn("island", view(speedups), 2, config)
    expected = island_formula(populations, speedups, 2, 1.0)
    assert_drawn_as(counts, expected)
    assert all(np.prod(p) == pytest.approx(expected[order]) for order, p in reported.items())


def test_islands_when_memoised_are_the_same():
    rng = np.random.default_rng(8)
    config = ExemplarsConfig(islands=3, island_reset_every=5, island_migrate_every=3)
    buffer, inserted = ExemplarBuffer(), []
    for number in range(120):
        parents = [e.exemplar_id for e in select(buffer, "p", ExemplarsConfig("island", islands=3), rng).exemplars]
        speedup = float(rng.choice([0.0, *rng.uniform(0.5, 3.0, 3)]))
        inserted.append(Exemplar.new("p", f"x = {number}", speedup, parent_ids=tuple(parents)))
        buffer.insert([inserted[-1]])
        if rng.random() < 0.3:
            settle(buffer.view("p"), config)
    extended = settle(buffer.view("p"), config)
    fresh = ExemplarBuffer()
    fresh.insert(inserted)
    assert extended == settle(fresh.view("p"), config)
    assert isinstance(extended, Islands) and max(extended.seeded) > 5
    for position, homes in enumerate(extended.homes):
        assert homes == sum(1 << i for i, members in enumerate(extended.members) if position in members)
    for best, members in zip(extended.best, extended.members, strict=True):
        assert best == max(members, key=lambda p: inserted[p].speedup)


def test_islands_when_a_view_is_older_than_the_memo_are_that_views():
    buffer, config = ExemplarBuffer(), ExemplarsConfig(islands=2)
    buffer.insert([Exemplar.new("p", f"x = {n}", 1.0) for n in range(3)])
    old = buffer.view("p")
    buffer.insert([Exemplar.new("p", f"x = {n}", 1.0) for n in range(3, 6)])
    assert settle(buffer.view("p"), config).members == [[0, 2, 4], [1, 3, 5]]
    assert settle(old, config).members == [[0, 2], [1]]
    assert settle(buffer.view("p"), config).members == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize(
    ("name", "count", "positions"),
    [
        ("none", 2, ()),
        ("top_k", 2, (4, 1)),
        ("top_k", 9, (4, 1, 2, 5, 0)),
        ("recent", 2, (4, 2)),
        ("recent", 9, (4, 2, 1, 5, 0)),
        ("best_worst", 2, (4, 0)),
        ("best_worst", 3, (4, 0, 1)),
        ("best_worst", 9, (4, 0, 1, 5, 2)),
    ],
)
def test_strategies_when_without_chance_draw_these(name, count, positions):
    candidates = view([0.5, 2.0, 1.0, 0.0, 3.0, 0.7], steps=[0, 5, 7, 9, 7, 1])
    draw = BUNDLED[name](candidates, count, np.random.default_rng(0), ExemplarsConfig())
    assert draw == Draw(positions, (1.0,) * len(positions))


@pytest.mark.parametrize("name", sorted(BUNDLED))
@pytest.mark.parametrize("speedups", [[], [0.0], [0.0, 0.0, 0.0], [0.0, 1.5, 0.0], [1.0, 0.0, 2.0]])
def test_strategies_when_exemplars_failed_or_are_few_draw_none_of_the_failed(name, speedups):
    for seed, count in itertools.product(range(20), range(4)):
        draw = BUNDLED[name](view(speedups), count, np.random.default_rng(seed), ExemplarsConfig())
        assert all(speedups[position] > 0 for position in draw.positions)
        assert len(draw.positions) <= min(count, sum(s > 0 for s in speedups))
        assert all(0 < p <= 1 for p in draw.probabilities)
        if name not in ("none", "bucket", "island", "map_elites", "novelty_filtered", "failures_included"):
            assert len(draw.positions) == min(count, sum(s > 0 for s in speedups))


@pytest.fixture
def buffer():
    buffer = ExemplarBuffer()
    buffer.insert([Exemplar.new("p", f"x = {n}", speedup) for n, speedup in enumerate([2.0, 0.0, 1.0, 3.0])])
    return buffer


@pytest.mark.parametrize(
    ("order", "speedups"), [("ascending", [1, 2, 3]), ("descending", [3, 2, 1]), ("drawn", [3, 1, 2])]
)
def test_selection_when_an_order_is_set_is_presented_in_it(buffer, order, speedups):
    config = ExemplarsConfig(strategy="best_worst", count=3, order=order)
    selection = select(buffer, "p", config, np.random.default_rng(0))
    assert [e.speedup for e in selection.exemplars] == speedups
    assert selection.strategy == "best_worst"


def test_each_exemplar_keeps_its_probability_when_reordered(buffer):
    rng = np.random.default_rng(1)
    for _ in range(30):
        config = ExemplarsConfig(count=3, order="ascending")
        state = rng.bit_generator.state
        selection = select(buffer, "p", config, rng)
        rng.bit_generator.state = state
        raw = select(buffer, "p", ExemplarsConfig(count=3, order="drawn"), rng)
        assert dict(zip(selection.exemplars, selection.probabilities, strict=True)) == dict(
            zip(raw.exemplars, raw.probabilities, strict=True)
        )


def test_selection_when_the_generator_state_is_the_same_is_the_same(buffer):
    for name in BUNDLED:
        config = ExemplarsConfig(strategy=name)
        first = [select(buffer, "p", config, np.random.default_rng(s)) for s in range(20)]
        assert first == [select(buffer, "p", config, np.random.default_rng(s)) for s in range(20)]


def test_selection_when_a_problem_has_no_exemplar_is_empty(buffer):
    for name in BUNDLED:
        selection = select(buffer, "unknown", ExemplarsConfig(strategy=name), np.random.default_rng(0))
        assert selection.exemplars == () and selection.probabilities == ()


@pytest.mark.parametrize("name", sorted(set(BUNDLED) - {"none"}))
def test_selection_when_there_is_headroom_takes_only_what_is_so_much_slower_than_the_fastest(buffer, name):
    for headroom, slower in [(1.0, {1.0, 2.0, 3.0}), (1.5, {1.0, 2.0}), (1.6, {1.0}), (3.1, set())]:
        config = ExemplarsConfig(strategy=name, headroom=headroom, failures=0)
        draws = [select(buffer, "p", config, np.random.default_rng(seed)) for seed in range(40)]
        speedups = {exemplar.speedup for draw in draws for exemplar in draw.exemplars}
        assert speedups <= slower and bool(speedups) == bool(slower), headroom
        if headroom == 1.6:
            assert all(draw.probabilities == (1.0,) for draw in draws)


def test_strategy_when_registered_is_selectable_and_its_name_unique(buffer):
    def last(view, count, rng, config):
        return Draw((len(view) - 1,), (1.0,))

    register_strategy("last_of_all", last)
    assert "last_of_all" in strategy_names()
    config = ExemplarsConfig(strategy="last_of_all")
    assert select(buffer, "p", config, np.random.default_rng(0)).exemplars[0].speedup == 3.0
    with pytest.raises(ValueError, match="bucket"):
        register_strategy("bucket", last)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("strategy", "buckets"),
        ("count", -1),
        ("headroom", 0.9),
        ("order", "sideways"),
        ("bucket_width", 0.0),
        ("tau", -1.0),
        ("islands", 0),
        ("island_reset_every", 0),
        ("island_migrate_every", -1),
        ("archive_size", -1),
        ("power_law_alpha", -0.5),
        ("shinka_lambda", -1.0),
        ("exploration_ratio", -0.1),
        ("exploitation_ratio", 0.9),
        ("cell_axes", ["length", "colour"]),
        ("cell_length_ratio", 1.0),
        ("novelty_threshold", float("nan")),
        ("priority_alpha", -1.0),
        ("priority_epsilon", 0.0),
        ("failures", -1),
    ],
)
def test_exemplars_config_when_a_value_is_wrong_names_its_field(buffer, field, value):
    with pytest.raises(UserError, match=f"exemplars.{field}"):
        select(buffer, "p", ExemplarsConfig(**{field: value}), np.random.default_rng(0))


NUMBERS = [each for each in dataclasses.fields(ExemplarsConfig) if isinstance(each.default, float)]


@pytest.mark.parametrize("number", NUMBERS, ids=[each.name for each in NUMBERS])
@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.filterwarnings("error")
def test_strategy_when_a_number_is_at_its_extremes_reports_probabilities(name, number):
    archive = view([1.5, 0.0, 3.0, 0.7, 1.5, 2.0])
    for value in filter(bounds_of(number).hold, (-1e300, 0.0, 1e-300, 1.0, 1e12, 1e300)):
        config = dataclasses.replace(ExemplarsConfig(strategy=name), **{number.name: value})
        draw = BUNDLED[name](archive, 2, np.random.default_rng(0), config)
        assert all(0.0 <= p <= 1.0 for p in draw.probabilities), value
