"""Prompts: what they hold, and what goes first when they are too long."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.evaluation.hardware import Machine
from cudal1_ray.evaluation.stated_rules import rules_in_force
from cudal1_ray.exemplars import Exemplar, Selection
from cudal1_ray.problems import Problem
from cudal1_ray.prompting import PromptBuilder, PromptingConfig, PromptTooLong, parse_answer, render_answer

REFERENCE = '''
import torch

class Model(torch.nn.Module):
    """The reference."""
    def forward(self, x):
        return x + 1  # reference comment

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
'''
PROBLEM = Problem("add_one", REFERENCE, "Add one")


def code_of(name: str) -> str:
    return f"# comment of {name}\nclass ModelNew:\n    name = '{name}'\n"


SLOW = Exemplar.new("add_one", code_of("slow"), 0.5)
MIDDLE = Exemplar.new("add_one", code_of("middle"), 1.054)
FAST = Exemplar.new("add_one", code_of("fast"), 3.1)
SELECTION = Selection((SLOW, MIDDLE, FAST), (0.5, 0.3, 0.2), "bucket")


def words(text: str) -> int:
    return len(text.split())


def builder(**fields) -> PromptBuilder:
    return PromptBuilder(PromptingConfig(**fields), words)


DETAILS = "140 GiB, compute capability 9.0, 132 SMs, PyTorch 2.11.0, CUDA 13.0, Triton 3.6.0"
GPU = Machine("NVIDIA H200", DETAILS, on_gpu=True)
CPU = Machine("a processor", "PyTorch 2.13.0")
RULES = rules_in_force(EvaluationConfig(device="cuda"))


def test_compact_prompt_when_there_are_exemplars_is_reference_and_candidates():
    prompt = builder(style="compact").contrastive(PROBLEM, SELECTION)
    assert prompt.text == (
        f"## Reference\n{REFERENCE.strip()}\n"
        f"## Candidate 1: 0.50x\n{SLOW.code.strip()}\n"
        f"## Candidate 2: 1.05x\n{MIDDLE.code.strip()}\n"
        f"## Candidate 3: 3.10x\n{FAST.code.strip()}\n"
    )
    assert prompt.exemplar_ids == (SLOW.exemplar_id, MIDDLE.exemplar_id, FAST.exemplar_id)
    assert prompt.exemplar_probabilities == (0.5, 0.3, 0.2)
    assert prompt.problem_id == "add_one"


def test_compact_prompt_when_one_shot_is_the_reference():
    prompt = builder(style="compact").one_shot(PROBLEM)
    assert prompt.text == f"## Reference\n{REFERENCE.strip()}\n"
    assert prompt.exemplar_ids == ()


@pytest.mark.parametrize("style", ["compact", "full"])
def test_contrastive_prompt_when_there_is_no_exemplar_is_the_one_shot_prompt(style):
    build = builder(style=style)
    assert build.contrastive(PROBLEM, Selection()) == build.one_shot(PROBLEM)


@pytest.mark.parametrize("style", ["compact", "full"])
def test_answer_when_appended_continues_the_prompt(style):
    prompt = builder(style=style).contrastive(PROBLEM, SELECTION)
    assert prompt.text.endswith("\n") and not prompt.text.endswith("\n\n")
    answer = render_answer("a", "d", FAST.code)
    assert answer.startswith("## Performance Analysis\n")
    assert parse_answer(answer).error == ""


def test_full_prompt_when_built_has_the_parts_of_the_paper():
    config = PromptingConfig(style="full", device="NVIDIA H200", allowed_means=["PyTorch", "Triton"])
    text = PromptBuilder(config, words, GPU, RULES).contrastive(PROBLEM, SELECTION).text
    headers = [line for line in text.splitlines() if line.startswith("# ")]
    assert headers[:2] == ["# Task for CUDA Optimization", "# Reference Implementation"]
    for header in (
        "# Previous Implementations with Scores",
        "## Candidate 3, score 3.10x",
        "# Generation Protocol",
        "## Performance Analysis",
        "## Algorithm Design",
        "## Code Implementation",
        "# Requirements",
        "# Restrictions",
    ):
        assert f"\n{header}\n" in text
    assert "Allowed means: PyTorch, Triton." in text and "NVIDIA H200" in text and "A100" not in text
    for rule in ("same function", "compiles", *RULES):
        assert rule in text
    assert text.index("slow'") < text.index("middle'") < text.index("fast'")
    assert "\n\n\n" not in text


@pytest.mark.parametrize("kind", ["one_shot", "contrastive"])
def test_prompt_when_the_device_is_auto_states_the_machine_that_measures(kind):
    def text(machine, **fields) -> str:
        build = PromptBuilder(PromptingConfig(style="full", **fields), words, machine)
        return (build.one_shot(PROBLEM) if kind == "one_shot" else build.contrastive(PROBLEM, SELECTION)).text

    details = "140 GiB, compute capability 9.0, 132 SMs, PyTorch 2.11.0, CUDA 13.0, Triton 3.6.0"
    assert f"\nMeasured on: NVIDIA H200, {details}.\n" in text(GPU) and " on NVIDIA H200 and still" in text(GPU)
    assert "# Restrictions" not in text(GPU)  # no rules were given
    assert "Measured on: a processor, PyTorch 2.13.0." in text(CPU)
    assert "my GPU" in text(GPU, device="my GPU") and "H200" not in text(GPU, device="my GPU")


def test_worked_examples_when_a_prompt_is_too_long_are_dropped_before_exemplars():
    config = PromptingConfig(style="full", examples=["triton", "cuda"], max_prompt_tokens=10_000)
    text = PromptBuilder(config, words, GPU).contrastive(PROBLEM, SELECTION).text
    assert text.index("# Worked Example, Triton: ") < text.index("# Worked Example, Inline CUDA: ")
    assert "no_implicit_headers=True" in text and "\n\n\n#" not in text
    assert "# Worked Example" not in PromptBuilder(config, words, CPU).contrastive(PROBLEM, SELECTION).text
    config.max_prompt_tokens = words(text) - 50
    shorter = PromptBuilder(config, words, GPU).contrastive(PROBLEM, SELECTION)
    assert "# Worked Example" not in shorter.text and len(shorter.exemplar_ids) == 3


@pytest.mark.parametrize("kind", ["one_shot", "contrastive"])
def test_analysis_when_left_out_is_asked_for_nowhere(kind):
    build = builder(style="full", include_analysis=False)
    prompt = build.one_shot(PROBLEM) if kind == "one_shot" else build.contrastive(PROBLEM, SELECTION)
    assert "Performance Analysis" not in prompt.text and "exactly two parts" in prompt.text
    with_it = builder(style="full")
    prompt = with_it.one_shot(PROBLEM) if kind == "one_shot" else with_it.contrastive(PROBLEM, SELECTION)
    assert "## Performance Analysis" in prompt.text and "exactly three parts" in prompt.text


def test_code_when_it_looks_like_a_template_is_not_rendered():
    odd = Exemplar.new("add_one", "x = '{{ reference }} {% for %} {# #}'", 2.0)
    text = builder().contrastive(PROBLEM, Selection((odd,), (1.0,))).text
    assert "{{ reference }} {% for %} {# #}" in text


def test_comments_when_stripped_are_in_no_part_of_the_prompt():
    text = builder(strip_comments=True).contrastive(PROBLEM, SELECTION).text
    assert "comment" not in text and "The reference." not in text and "\n\n" not in text


def test_prompt_when_too_long_loses_its_parts_in_the_documented_order():
    whole = words(builder().contrastive(PROBLEM, SELECTION).text)
    states = []
    for budget in range(whole, 0, -1):
        try:
            prompt = builder(max_prompt_tokens=budget).contrastive(PROBLEM, SELECTION)
        except PromptTooLong:
            states.append("too long")
            continue
        assert words(prompt.text) <= budget
        exemplars = tuple(e for e in (SLOW, MIDDLE, FAST) if repr(e.code.split("'")[1]) in prompt.text)
        assert prompt.exemplar_ids == tuple(e.exemplar_id for e in exemplars)
        probability = {SLOW: 0.5, MIDDLE: 0.3, FAST: 0.2}
        assert prompt.exemplar_probabilities == tuple(probability[e] for e in exemplars)
        states.append(
            (len(exemplars), FAST in exemplars, "comment of" in prompt.text, "reference comment" in prompt.text)
        )
    order = list(dict.fromkeys(states))
    assert order == [
        (3, True, True, True),
        (3, True, False, True),
        (3, True, False, False),
        (2, True, False, False),
        (1, True, False, False),
        (0, False, False, False),
        "too long",
    ]


def test_exemplars_when_equally_fast_are_dropped_one_at_a_time():
    twins = [Exemplar.new("add_one", code_of(name), 2.0) for name in ("one", "two", "three")]
    selection = Selection(tuple(twins), (0.1, 0.2, 0.3))
    exemplars = set()
    for budget in range(200, 20, -1):
        try:
            exemplars.add(len(builder(max_prompt_tokens=budget).contrastive(PROBLEM, selection).exemplar_ids))
        except PromptTooLong:
            break
    assert exemplars == {3, 2, 1, 0}


def test_reference_when_too_long_names_its_problem():
    with pytest.raises(PromptTooLong, match=r"add_one .*max_prompt_tokens is 3") as caught:
        builder(max_prompt_tokens=3).one_shot(PROBLEM)
    assert caught.value.problem_id == "add_one" and caught.value.tokens > 3
    assert not isinstance(caught.value, UserError)


def test_style_when_it_is_a_folder_is_taken_from_it(tmp_path):
    (tmp_path / "one_shot.md.j2").write_text("{{ name }}|{{ reference }}\n\n")
    (tmp_path / "contrastive.md.j2").write_text("{% for c in candidates %}{{ c.speedup }} {% endfor %}")
    build = builder(style=str(tmp_path))
    assert build.one_shot(PROBLEM).text.startswith("Add one|import torch")
    assert build.contrastive(PROBLEM, SELECTION).text == "0.50x 1.05x 3.10x\n"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "one_shot.md.j2"),
        ({"one_shot.md.j2": ""}, "contrastive.md.j2"),
        ({"one_shot.md.j2": "{% for %}", "contrastive.md.j2": ""}, "line 1"),
        ({"one_shot.md.j2": "", "contrastive.md.j2": "plus rapide, déjà"}, "contrastive.md.j2 is not UTF-8"),
    ],
)
def test_style_when_broken_is_a_users_error(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=message):
        builder(style=str(tmp_path))


@pytest.mark.parametrize("text", ["{{ refernce }}", "{% include 'rules.md.j2' %}"])
def test_style_when_a_template_names_what_does_not_exist_is_a_users_error(tmp_path, text):
    (tmp_path / "one_shot.md.j2").write_text(text)
    (tmp_path / "contrastive.md.j2").write_text("")
    with pytest.raises(UserError, match=r"one_shot.md.j2: .*(refernce|rules.md.j2).*; mend the template"):
        builder(style=str(tmp_path)).one_shot(PROBLEM)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("style", "fulll"),
        ("style", ""),
        ("max_prompt_tokens", 0),
        ("max_completion_tokens", 0),
        ("allowed_means", []),
        ("examples", ["tritton"]),
    ],
)
def test_prompting_config_when_a_value_is_wrong_names_its_field(field, value):
    with pytest.raises(UserError, match=f"prompting.{field}"):
        builder(**{field: value})


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "conf" / "prompting").glob("*.yaml")), ids=str)
def test_prompting_presets_when_merged_are_valid(path):
    assert path.read_text().startswith("# ")
    merged = OmegaConf.merge(OmegaConf.structured(PromptingConfig), OmegaConf.load(path))
    config = OmegaConf.to_object(merged)
    assert config.style == path.stem
    assert PromptBuilder(config, words).contrastive(PROBLEM, SELECTION).exemplar_ids
