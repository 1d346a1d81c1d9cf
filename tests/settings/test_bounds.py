"""Numbers have bounds and names are those declared; any other value is refused by the name of its key."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from dataclasses import dataclass, field
from functools import reduce

import pytest

from cudal1_ray.config import Config, load_config
from cudal1_ray.errors import UserError
from cudal1_ray.serving.config import ServingConfig
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
    pause_s: float = 1.0
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
        (Outer(plain=10**400), "plain=10+: must be at least 0 and at most 16777216"),
        (Outer(pause_s=10**400), "pause_s=10+: must be at least 0 and at most 4611686018"),
        (Outer(least=math.inf), "least=inf: must be a finite number, at least -1"),
        (Outer(inner=Inner(betas=[0.9, -1.0])), "inner.betas=-1"),
        (Outer(order="sideways"), "order=sideways: must be one of up, down"),
        (Outer(pause_s=1e300), "pause_s=1e\\+300: must be at least 0 and at most 4611686018"),
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
        "evaluation.limits.scratch_mib=0",
        "evaluation.limits.load_timeout_s=0",
        "evaluation.limits.first_call_timeout_s=0",
        "rollout.seed=4294967296",
    ],
)
def test_setting_when_without_meaning_is_refused_before_anything_starts(override):
    with pytest.raises(UserError) as caught:
        load_config([override])
    assert str(caught.value).startswith(override.partition("=")[0])


# Seconds of a unit of time, and bytes of a unit of memory, by the end of a setting's name.
SECONDS = {"_s": 1.0, "_ms": 1e-3, "_us": 1e-6, "minutes": 60.0}
BYTES = {"_kib": 1 << 10, "_mib": 1 << 20, "_gib": 1 << 30}
NUMBERS = {
    (schema, path): key
    for schema in (Config, ServingConfig)
    for path, key in find_keys(schema).items()
    if isinstance(key, Key) and key.kind.startswith(("number", "whole number"))
}


def settings_in(units):
    """Return the settings, of training and of serving, whose names end in one of several units."""
    names = [(schema, path) for schema, path in NUMBERS if path.endswith(tuple(units))]
    return pytest.mark.parametrize(("schema", "path"), names, ids=[path for _, path in names])


def most_of(path, units, bounds):
    """Return the highest value that a refusal of a setting allows, in seconds or bytes."""
    unit = next(size for end, size in units.items() if path.endswith(end))
    return float(bounds.rpartition("at most ")[2]) * unit


def check(schema, path, value):
    config = schema()
    *sections, name = path.split(".")
    setattr(reduce(getattr, sections, config), name, value)
    check_values(config)


@settings_in(SECONDS)
@pytest.mark.parametrize("value", [10**18, 1e300])
def test_duration_when_longer_than_the_platform_waits_is_refused_by_its_key(schema, path, value):
    with pytest.raises(UserError) as caught:
        check(schema, path, value)
    named, _, bounds = str(caught.value).partition(": must be ")
    assert named == f"{path}={value}".replace("1e300", "1e+300")
    longest_s = most_of(path, SECONDS, bounds)
    assert threading.Lock().acquire(timeout=longest_s) and time.monotonic() + longest_s < threading.TIMEOUT_MAX


@settings_in(SECONDS)
def test_duration_when_of_a_week_passes(schema, path):
    check(schema, path, 7 * 86400 / next(size for end, size in SECONDS.items() if path.endswith(end)))


@settings_in(BYTES)
def test_memory_when_more_than_63_bits_of_bytes_is_refused_by_its_key(schema, path):
    with pytest.raises(UserError) as caught:
        check(schema, path, 2**53)
    named, _, bounds = str(caught.value).partition(": must be ")
    assert named == f"{path}={2**53}"
    assert most_of(path, BYTES, bounds) < 2**63


@settings_in(["threads"])
@pytest.mark.parametrize("value", [0, 16384, 10**12])
def test_threads_when_of_a_number_that_openmp_does_not_start_are_refused_by_their_key(schema, path, value):
    with pytest.raises(UserError) as caught:
        check(schema, path, value)
    assert str(caught.value) == f"{path}={value}: must be at least 1 and at most 8192"


def counts():
    """Return the settings that are whole numbers and have no unit, nor a bound of their own."""
    units = (*SECONDS, *BYTES, "threads", "tokens", "seed")
    whole = [name for name, key in NUMBERS.items() if key.kind.startswith("whole number") and "most" not in key.bounds]
    names = [(schema, path) for schema, path in whole if not path.endswith(units)]
    return pytest.mark.parametrize(("schema", "path"), names, ids=[path for _, path in names])


@counts()
def test_count_when_more_than_memory_holds_is_refused_by_its_key(schema, path):
    with pytest.raises(UserError, match=f"^{path}={10**12}: must be .*at most 16777216$"):
        check(schema, path, 10**12)


@counts()
def test_count_when_of_a_million_passes(schema, path):
    check(schema, path, 10**6)


@settings_in(["tokens", "seed"])
def test_tokens_and_seeds_when_within_their_own_bounds_pass(schema, path):
    check(schema, path, 2**32 - 1)


def test_setting_when_explained_as_a_duration_has_its_unit_in_its_name():
    durations = [path for (_, path), key in NUMBERS.items() if key.text.lower().startswith(("seconds", "minutes"))]
    assert len(durations) > 10 and all(path.endswith(tuple(SECONDS)) for path in durations)


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
