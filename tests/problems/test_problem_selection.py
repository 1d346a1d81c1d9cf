"""From a configuration to the problems of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from cudal1_ray.errors import UserError
from cudal1_ray.problems import ProblemsConfig, load_problems, parse_problem
from cudal1_ray.problems.select import fixed_problems, hashed_split

VALID = "class Model:\n    pass\ndef get_inputs():\n    return []\ndef get_init_inputs():\n    return []\n"
PRESETS = Path(__file__).parents[2] / "conf" / "problems"


@pytest.fixture
def numbered(tmp_path) -> ProblemsConfig:
    """Return a configuration of 40 problems at level 1 and 40 at level 2."""
    for level in (1, 2):
        (tmp_path / f"level{level}").mkdir()
        for number in range(40):
            (tmp_path / f"level{level}" / f"{number}_p.py").write_text(VALID)
    return ProblemsConfig(source="folder", path=str(tmp_path), held_out_fraction=0.25)


def test_held_out_share_when_hashed_is_a_function_of_the_id_alone(numbered):
    whole = {problem.problem_id: problem.split for problem in load_problems(numbered)}
    part = {problem.problem_id: problem.split for problem in load_problems(replace(numbered, levels=[2]))}
    assert part == {key: split for key, split in whole.items() if "-l2-" in key}
    assert 0.1 < sum(split == "held_out" for split in whole.values()) / len(whole) < 0.4


def test_held_out_share_when_larger_only_adds(numbered):
    small = {p.problem_id for p in load_problems(numbered) if p.held_out}
    large = {p.problem_id for p in load_problems(replace(numbered, held_out_fraction=0.6)) if p.held_out}
    assert small < large


def test_held_out_share_when_ids_are_many_is_met():
    problems = [parse_problem(VALID, f"p{i}", origin="here") for i in range(4000)]
    share = sum(hashed_split(problem, 0.1) == "held_out" for problem in problems) / len(problems)
    assert 0.08 < share < 0.12


def test_levels_ids_and_limit_when_given_select(numbered):
    assert {p.level for p in load_problems(replace(numbered, levels=[2]))} == {2}
    expected = ["kernelbench-l1-p003", "kernelbench-l2-p001"]
    assert [p.problem_id for p in load_problems(replace(numbered, ids=expected[::-1]))] == expected
    few = load_problems(replace(numbered, limit=3))
    assert [p.split for p in few].count("train") == 3 and [p.split for p in few].count("held_out") == 3
    assert [p.problem_id for p in few] == sorted(p.problem_id for p in few)


def test_families_when_given_select_bundled_problems():
    problems = load_problems(ProblemsConfig(families=["loop_scan", "outer_sum"]))
    assert {problem.family for problem in problems} == {"loop_scan", "outer_sum"} and len(problems) == 6


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"source": "web"}, "problems.source=web"),
        ({"source": "folder"}, "problems.path: needed with problems.source=folder"),
        ({"source": "parquet", "path": ""}, "problems.path: needed"),
        ({"held_out_fraction": 1.5}, "problems.held_out_fraction=1.5"),
        ({"limit": 0}, "problems.limit=0"),
        ({"ids": ["nothing"]}, "problems.ids: 'nothing'"),
        ({"families": ["nothing"]}, "problems.families: 'nothing'"),
    ],
)
def test_problems_config_when_a_field_is_wrong_names_it(changes, says):
    with pytest.raises(UserError) as caught:
        load_problems(replace(ProblemsConfig(), **changes))
    assert says in str(caught.value)


def test_selection_when_nothing_is_left_is_an_error(numbered):
    with pytest.raises(UserError, match="no problem file|nothing is left"):
        load_problems(replace(numbered, levels=[3]))
    config = ProblemsConfig(ids=["loop_scan_1"], families=["outer_sum"])
    with pytest.raises(UserError, match="problems.families: 'outer_sum'"):
        load_problems(config)


@pytest.mark.parametrize("config", ["problems", Path("problems"), {"path": "problems"}])
def test_problems_when_loaded_from_no_configuration_are_refused_with_how_to(config):
    with pytest.raises(UserError, match="load_problems: .* ProblemsConfig\\(source='folder', path='problems'\\)"):
        load_problems(config)


@pytest.mark.parametrize("preset", sorted(PRESETS.glob("*.yaml")), ids=lambda path: path.stem)
def test_problem_presets_when_merged_fit_the_schema(preset):
    merged = OmegaConf.merge(OmegaConf.structured(ProblemsConfig), OmegaConf.load(preset))
    config = OmegaConf.to_object(merged)
    assert config.source in preset.stem and preset.read_text().startswith("# ")


def test_fixed_problems_when_chosen_are_the_same_in_any_order_and_among_those_of_a_larger_number(numbered):
    problems = load_problems(numbered)
    chosen = fixed_problems(problems, 5)
    assert chosen == fixed_problems(problems[::-1], 5) and len(chosen) == 5
    assert set(map(id, chosen)) < set(map(id, fixed_problems(problems, 9)))
    assert fixed_problems(problems, 999) == fixed_problems(problems, None) == problems
