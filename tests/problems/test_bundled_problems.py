"""The bundled problems: their number and shape, and that each one is a sound problem for an evaluator."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from cudal1_ray.problems import ProblemsConfig, load_problems

PROBLEMS = load_problems(ProblemsConfig())


def by_id(problem):
    return problem.problem_id


def test_bundled_problems_when_counted_are_twelve_families_of_two_and_one():
    assert len(PROBLEMS) == 36
    families = Counter((problem.family, problem.split) for problem in PROBLEMS)
    assert len({family for family, _ in families}) == 12
    assert {count for (_, split), count in families.items() if split == "train"} == {2}
    assert {count for (_, split), count in families.items() if split == "held_out"} == {1}


def test_members_when_of_one_family_differ_in_sizes_and_in_what_they_compute():
    headers = {(problem.family, problem.source.split("\n\n\n")[0]) for problem in PROBLEMS}
    models = {problem.source.split("def get_inputs")[0].split("class Model")[1] for problem in PROBLEMS}
    assert len(headers) == len(models) == 36


@pytest.mark.parametrize("problem", PROBLEMS, ids=by_id)
def test_bundled_problem_when_read_has_the_regular_style(problem):
    lines = problem.source.splitlines()
    assert lines[:2] == ["import torch", "import torch.nn as nn"]
    assert 12 <= len(lines) <= 28 and max(map(len, lines)) <= 110
    assert "#" not in problem.source and '"""' not in problem.source and "->" not in problem.source


@pytest.mark.parametrize("problem", PROBLEMS, ids=by_id)
def test_reference_when_run_is_deterministic_and_depends_on_every_input(problem, namespace_of):
    module = namespace_of(problem.source)
    torch.manual_seed(0)
    model = module["Model"](*module["get_init_inputs"]())
    first, second = module["get_inputs"](), module["get_inputs"]()
    kept = [x.clone() for x in first]
    with torch.no_grad():
        output = model(*first)
        assert torch.equal(output, model(*first))
        assert all(torch.equal(x, y) for x, y in zip(first, kept, strict=True)), "the inputs were changed"
        for i in range(len(first)):
            mixed = [second[j] if j == i else first[j] for j in range(len(first))]
            assert not torch.allclose(model(*mixed), output, rtol=0.1)
    assert output.dtype == torch.float32 and output.isfinite().all()
    assert output.std() > 0.05 and output.abs().max() < 100


@pytest.mark.parametrize("problem", PROBLEMS, ids=by_id)
def test_parameters_when_changed_change_the_output(problem, namespace_of):
    module = namespace_of(problem.source)
    torch.manual_seed(0)
    model = module["Model"](*module["get_init_inputs"]())
    inputs = module["get_inputs"]()
    with torch.no_grad():
        before = model(*inputs)
        for parameter in model.parameters():
            assert parameter.std() > 0.01
            saved = parameter.clone()
            parameter.copy_(torch.randn_like(parameter) * parameter.std())
            assert not torch.allclose(model(*inputs), before, rtol=0.01, atol=0.01)
            parameter.copy_(saved)
