"""Numbers have bounds and names are those declared; any other value is refused by the name of its key."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

import pytest

from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.settings import Key, bounded, check_values, choices_of, find_keys, one_of, several_of


@dataclass
class Inner:
    share: float = bounded(0.5, above=0, most=1)
    betas: list[float] = field(default_factory=lambda: [0.9])


@dataclass
class Outer:
    plain: int = 1
    least: int = bounded(-1, least=-1)
    missing: float | None = bounded(None, above=0)
    flag: bool = False
    order: str = one_of("up", "down")
    parts: list[str] = several_of("head", "body", or_else=("tail",))
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (Outer(plain=-1), "plain=-1: must be at least 0"),
        (Outer(least=-2), "least=-2: must be at least -1"),
        (Outer(missing=0.0), "missing=0: must be above 0"),
        (Outer(inner=Inner(share=0.0)), "inner.share=0: must be above 0 and at most 1"),
        (Outer(inner=Inner(share=float("nan"))), "inner.share=nan: must be a finite number, above 0 and at most 1"),
        (Outer(least=math.inf), "least=inf: must be a finite number, at least -1"),
        (Outer(inner=Inner(betas=[0.9, -1.0])), "inner.betas=-1"),
        (Outer(order="sideways"), "order=sideways: must be one of up, down"),
        (Outer(parts=["tail", "wing"]), "parts=wing: must be one of head, body, tail"),
    ],
)
def test_number_when_out_of_bounds_is_refused_by_its_key(changed, named):
    with pytest.raises(UserError, match=named):
        check_values(changed)


def test_numbers_when_within_bounds_null_or_flags_pass():
    check_values(Outer(least=-1, missing=0.1, flag=True, inner=Inner(share=1.0)))


@pytest.mark.parametrize(
    "override",
    [
        "contrastive.steps=-5",
        "contrastive.learning_rate=-1",
        "contrastive.learning_rate=1e9",
        "sft.learning_rate=inf",
        "sft.epochs=0",
        "self_supervised.rounds=0",
        "checkpoint.every_steps=0",
        "cluster.evaluator.count=0",
        "evaluation.timing.budget_s=0",
        "evaluation.timing.contestants=100000",
    ],
)
def test_setting_when_without_meaning_is_refused_before_anything_starts(override):
    with pytest.raises(UserError) as caught:
        load_config([override])
    assert str(caught.value).startswith(override.partition("=")[0])


def test_bounds_when_a_key_is_explained_are_part_of_it():
    key = find_keys(Outer)["inner.share"]
    assert isinstance(key, Key) and key.bounds == "above 0 and at most 1" and key.kind == "number"


def test_names_when_settings_declare_them_are_those_the_package_knows():
    from cudal1_ray.evaluation.config import CheckConfig, EvaluationConfig
    from cudal1_ray.evaluation.correctness.trials import kind_in_words
    from cudal1_ray.evaluation.opening.maker_requests import FORMS
    from cudal1_ray.evaluation.sandbox.walls import LEVELS
    from cudal1_ray.prompting.builder import EXAMPLES
    from cudal1_ray.prompting.config import PromptingConfig

    def names(schema, name):
        (declared,) = (field for field in dataclasses.fields(schema) if field.name == name)
        return set(choices_of(declared))

    assert names(EvaluationConfig, "required_sandbox") == set(LEVELS)
    assert names(EvaluationConfig, "sandbox") == {"", *LEVELS}
    assert names(PromptingConfig, "examples") == {path.stem for path in EXAMPLES.glob("*.py")}
    forms = [form for kind in names(CheckConfig, "distributions") for form in FORMS.get(kind, (kind,))]
    assert all(kind_in_words(form) != form for form in forms)
