"""The selection rules of other projects and papers: what they draw, against their formulas computed by hand."""

from __future__ import annotations

import importlib.util
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cudal1_ray.evaluation.reasons import DESCRIPTIONS, HACKS
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, ExemplarsConfig, select
from cudal1_ray.exemplars.config import FAILURE_REASONS
from cudal1_ray.exemplars.strategies import BUNDLED
from cudal1_ray.problems import Problem
from cudal1_ray.prompting import PromptBuilder
from cudal1_ray.prompting.config import PromptingConfig
from tests.exemplars.strategies.drawing import among_left, assert_drawn_as, assert_follows, drawn, view


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.5])
def test_power_law_when_drawing_follows_ranks(alpha):
    archive = view([1.5, 0.0, 3.0, 0.7, 1.5, 2.0])
    config = ExemplarsConfig(power_law_alpha=alpha, archive_size=4)
    ranked = [2, 5, 0, 4]  # 3 is beyond the archive, 1 failed, and of the equal 0 and 4 the earlier comes first
    weights = {position: rank**-alpha for rank, position in enumerate(ranked, 1)}
    assert_follows("power_law", archive, 2, config, among_left(weights))


def test_power_law_when_there_is_no_archive_ranks_all():
    archive = view([1.0, 3.0, 2.0])
    config = ExemplarsConfig(archive_size=0)
    assert_follows("power_law", archive, 3, config, among_left({1: 1.0, 2: 1 / 2, 0: 1 / 3}))


def test_shinka_when_drawing_weighs_performance_and_novelty():
    # Accepted: 0.8, 1.0, 1.2, 1.8, 3.0; median 1.2; deviations 0.4, 0.2, 0, 0.6, 1.8; their median 0.4.
    parents = [(), (), (), (0, 2), (2,), (2,), (4, 3)]
    archive = view([1.0, 0.8, 1.2, 0.0, 1.8, 0.0, 3.0], parents=parents)
    config = ExemplarsConfig(shinka_lambda=1.5, archive_size=0)
    scale = 1.5 / 0.4

    def sigma(speedup):
        return 1 / (1 + math.exp(-scale * (speedup - 1.2)))

    # 2 was shown to three (two of which failed), 0 and 4 to one, 3 failed and is not served.
    weights = {0: sigma(1.0) / 2, 1: sigma(0.8), 2: sigma(1.2) / 4, 4: sigma(1.8) / 2, 6: sigma(3.0)}
    assert_follows("shinka_weighted", archive, 2, config, among_left(weights))


def test_shinka_when_there_is_an_archive_takes_its_median():
    archive = view([1.0, 2.0, 3.0, 4.0, 5.0])
    config = ExemplarsConfig(shinka_lambda=2.0, archive_size=3)  # of 3, 4, 5: median 4, MAD 1
    weights = {position: 1 / (1 + math.exp(-2.0 * (position - 3))) for position in (2, 3, 4)}
    assert_follows("shinka_weighted", archive, 1, config, among_left(weights))


def test_shinka_when_speedups_are_equal_or_far_apart_is_uniform_or_finite():
    assert_follows("shinka_weighted", view([2.0] * 3), 2, ExemplarsConfig(), among_left(dict.fromkeys(range(3), 1.0)))
    draw = BUNDLED["shinka_weighted"](view([1.0, 1.0, 1.0, 900.0]), 4, np.random.default_rng(0), ExemplarsConfig())
    assert sorted(draw.positions) == [0, 1, 2, 3] and min(draw.probabilities) > 0


def test_openevolve_when_drawing_mixes_three_rules():
    speedups = {0: 1.0, 2: 4.0, 3: 0.5, 4: 2.5}
    config = ExemplarsConfig(archive_size=2, exploration_ratio=0.3, exploitation_ratio=0.5)

    def chances(taken):
        left = {position: s for position, s in speedups.items() if position not in taken}
        elite = [position for position in (2, 4) if position in left]
        by_speedup = 0.2 if elite else 0.7  # an archive that is drawn empty leaves its share
        return {
            position: 0.3 / len(left)
            + (0.5 / len(elite) if position in elite else 0.0)
            + by_speedup * s / sum(left.values())
            for position, s in left.items()
        }

    assert_follows("openevolve_mix", view([1.0, 0.0, 4.0, 0.5, 2.5]), 3, config, chances)


def test_map_elites_when_drawing_takes_cells_alike_and_their_elites():
    # Lengths in [100, 200) and [200, 400) for the ratio 2 are cells 6 (64..128), 7 and 8.
    lengths = [100, 127, 128, 255, 256, 300, 300, 127]
    operations = [1, 1, 1, 1, 1, 1, 4, 1]
    speedups = [1.0, 2.0, 3.0, 3.0, 0.0, 1.1, 1.3, 2.0]
    archive = view(speedups, length=lengths, operations=operations)
    config = ExemplarsConfig(cell_length_ratio=2.0)
    # (64..128, 1): 1, the earlier of the equal 1 and 7. (128..256, 1): 2, equal to 3. (256..512, 1): 5, for 4 failed.
    assert_follows("map_elites", archive, 2, config, among_left(dict.fromkeys([1, 2, 5, 6], 1.0)))
    by_length = ExemplarsConfig(cell_length_ratio=2.0, cell_axes=["length"])
    assert_follows("map_elites", archive, 9, by_length, among_left(dict.fromkeys([1, 2, 6], 1.0)))
    by_operations = ExemplarsConfig(cell_axes=["operations"])
    assert_follows("map_elites", archive, 2, by_operations, among_left(dict.fromkeys([2, 6], 1.0)))
    assert_follows("map_elites", archive, 2, ExemplarsConfig(cell_axes=[]), among_left({2: 1.0}))


def test_novelty_when_drawing_takes_no_two_variants_of_one_program():
    # Bits apart: 0 and 1 one, 0 and 4 three, 1 and 4 four, all others at least 20. cos(3 pi / 64) is 0.9892.
    sketches = [0b0, 0b1, (1 << 20) - 1, 0, (1 << 63) + 6, ((1 << 20) - 1) << 30]
    archive = view([1.0, 1.4, 0.8, 0.0, 1.2, 2.0], sketch=np.array(sketches, np.uint64))
    config = ExemplarsConfig(tau=0.5, novelty_threshold=0.985)
    alike = {(0, 1), (1, 0), (0, 4), (4, 0)}  # one and three bits apart; four bits give 0.9808
    weights = {position: math.exp(s / 0.5) for position, s in {0: 1.0, 1: 1.4, 2: 0.8, 4: 1.2, 5: 2.0}.items()}

    def chances(taken):
        novel = {
            position: weight
            for position, weight in weights.items()
            if position not in taken and not any((position, earlier) in alike for earlier in taken)
        }
        return {position: weight / sum(novel.values()) for position, weight in novel.items()}

    assert_follows("novelty_filtered", archive, 3, config, chances)
    assert_follows("novelty_filtered", archive, 2, ExemplarsConfig(tau=0.5, novelty_threshold=1.0), among_left(weights))


def test_prioritised_when_drawing_follows_surprise():
    parents = [(), (), (0, 1), (2,), (2, 3), ()]
    archive = view([1.0, 3.0, 2.5, 0.0, 1.5, 0.6], parents=parents)
    config = ExemplarsConfig(priority_alpha=0.7, priority_epsilon=0.05)
    # Expected: 1 without exemplars; (1 + 3) / 2 = 2 for exemplar 2; (2.5 + 0) / 2 = 1.25 for exemplar 4.
    surprise = {0: 0.0, 1: 2.0, 2: 0.5, 4: 0.25, 5: 0.4}
    weights = {position: (s + 0.05) ** 0.7 for position, s in surprise.items()}
    assert_follows("prioritised", archive, 2, config, among_left(weights))


def test_prioritised_when_drawing_agrees_with_rllibs_segment_tree():
    package = Path(importlib.util.find_spec("ray").origin).parent
    path = package / "rllib" / "execution" / "segment_tree.py"  # loaded alone: all of RLlib takes seconds to import
    spec = importlib.util.spec_from_file_location("segment_tree", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    speedups = np.random.default_rng(4).uniform(0.2, 4.0, 200)
    config = ExemplarsConfig(priority_alpha=0.6, priority_epsilon=0.01)
    rng, same = np.random.default_rng(9), np.random.default_rng(9)
    for _ in range(200):
        tree = module.SumSegmentTree(256)
        for position, speedup in enumerate(speedups):
            tree[position] = (abs(speedup - 1.0) + 0.01) ** 0.6
        draw = BUNDLED["prioritised"](view(speedups), 3, rng, config)
        for position, probability in zip(draw.positions, draw.probabilities, strict=True):
            assert tree.find_prefixsum_idx(same.random() * tree.sum()) == position
            assert probability == pytest.approx(tree[position] / tree.sum())
            tree[position] = 0.0


COMPILE, WRONG, CHEATED = ("compile_error",), ("wrong_output",), ("wrong_output", "answer_theft")


def test_failures_included_when_drawing_takes_failures_by_kind_and_others_by_bucket():
    speedups = [1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    reasons = [(), COMPILE, COMPILE, (), WRONG, CHEATED, ("compile_error", "timeout"), (), COMPILE]
    archive = view(speedups, reasons=reasons)
    config = ExemplarsConfig(failures=2, bucket_width=0.5, tau=0.8)
    # 5 cheated, 7 has no reason; 1, 2, 6, 8 did not compile (6 also ran out of time), 4 was wrong.
    kinds = [[1, 2, 6, 8], [4]]

    def chances(taken):
        if len(taken) < 2:
            left = [kind for kind in kinds if not set(kind) & set(taken)]
            return {position: 1 / len(left) / len(kind) for kind in left for position in kind}
        return among_left({0: math.exp(1.0 / 0.8), 3: math.exp(2.0 / 0.8)})(taken)

    assert_follows("failures_included", archive, 3, config, chances)
    assert_follows("failures_included", archive, 4, config, chances)


def test_failures_included_when_there_is_no_failure_fills_up_with_accepted_ones():
    config = ExemplarsConfig(failures=2)
    archive = view([1.0, 0.0, 2.0, 3.0, 0.0], reasons=[(), CHEATED, (), (), ()])
    counts, _ = drawn("failures_included", archive, 3, config, draws=50)
    assert {tuple(sorted(positions)) for positions in counts} == {(0, 2, 3)}
    only = view([0.0, 0.0], reasons=[COMPILE, WRONG])
    counts, _ = drawn("failures_included", only, 3, config)
    assert_drawn_as(counts, {(0, 1): 0.5, (1, 0): 0.5})


def test_failure_reasons_when_listed_are_known_and_no_hacks():
    assert set(FAILURE_REASONS) <= set(DESCRIPTIONS) - HACKS


@pytest.fixture(scope="module")
def buffer():
    """Return forty exemplars with parents, a quarter of them failed, each of its own code."""
    rng, buffer, ids = np.random.default_rng(6), ExemplarBuffer(), []
    for number in range(40):
        failed = number % 4 == 3
        body = "\n".join(f"y = y + {number * k}" for k in range(number % 9 + 1))
        exemplar = Exemplar.new(
            "p",
            body,
            0.0 if failed else float(rng.uniform(0.5, 4.0)),
            parent_ids=tuple(rng.choice(ids, 2, replace=False)) if number > 5 else (),
            reasons=(FAILURE_REASONS[number % 3],) if failed else (),
        )
        ids.append(exemplar.exemplar_id)
        buffer.insert([exemplar])
    return buffer


@pytest.mark.parametrize("name", sorted(BUNDLED))
def test_draw_when_logged_has_its_ids_and_probabilities(buffer, name):
    config = ExemplarsConfig(strategy=name, count=3)
    problem = Problem("p", "class Model: pass", "p")
    builder = PromptBuilder(PromptingConfig(max_prompt_tokens=100_000), len)
    view, total = buffer.view("p"), 0
    for seed in range(30):
        draw = BUNDLED[name](view, 3, np.random.default_rng(seed), config)
        ids = [view.ids[position].decode() for position in draw.positions]
        selection = select(buffer, "p", config, np.random.default_rng(seed))
        prompt = builder.contrastive(problem, selection)
        row = {"exemplar_ids": list(prompt.exemplar_ids), "probabilities": list(prompt.exemplar_probabilities)}
        logged = json.loads(json.dumps(row))
        assert dict(zip(logged["exemplar_ids"], logged["probabilities"], strict=True)) == dict(
            zip(ids, draw.probabilities, strict=True)
        )
        assert len(logged["exemplar_ids"]) == len(ids)
        total += len(ids)
    assert total == 0 if name == "none" else total > 30


@pytest.mark.parametrize("name", sorted(set(BUNDLED) - {"none"}))
def test_probabilities_when_multiplied_are_the_rate_of_a_draw(buffer, name):
    """For every strategy on one realistic problem: the first exemplar's share of draws is its probability."""
    config, first, reported = ExemplarsConfig(strategy=name), Counter(), {}
    rng, view, draws = np.random.default_rng(12), buffer.view("p"), 4000
    for _ in range(draws):
        draw = BUNDLED[name](view, 2, rng, config)
        first[draw.positions[0]] += 1
        assert reported.setdefault(draw.positions[0], draw.probabilities[0]) == draw.probabilities[0]
    if name in ("best_worst", "recent", "top_k"):
        assert len(reported) == 1 and list(reported.values()) == [1.0]
    unseen = 1.0 - sum(reported.values())
    assert -1e-9 < unseen < 0.05
    assert_drawn_as(first, reported if unseen < 1e-9 else {**reported, -1: unseen})
