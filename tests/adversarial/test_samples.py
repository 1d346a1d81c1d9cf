"""The samples as data: each file is whole, and the loader names what is wrong with one that is not."""

from __future__ import annotations

import ast

import pytest

from cudal1_ray.adversarial import KINDS, SUITES, load_problem, load_samples, samples
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.reasons import DESCRIPTIONS

ALL = [sample for suite in SUITES for kind in KINDS for sample in load_samples(suite, kind)]
WHOLE = '"""Nothing."""\n# problem: chain\n# expect: refused\n# reasons: wrong\nclass ModelNew: ...\n'


def test_load_samples_when_called_returns_every_file_of_the_suites(repository):
    written = [path for path in (repository / "tests" / "adversarial").glob("*/*/*.py") if path.parent.name in KINDS]
    assert len(ALL) == len(written) > 360


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: f"{sample.suite}/{sample.kind}/{sample.name}")
def test_sample_when_loaded_has_a_description_and_the_reasons_of_its_kind(sample):
    assert sample.description and "class Model" in sample.code and "class Model(" in sample.problem.source
    assert bool(sample.reasons) == (sample.kind == "adversarial") and sample.reasons <= set(DESCRIPTIONS)
    assert sample.most <= 1.15 or sample.kind == "honest"


def test_honest_samples_and_problems_when_parsed_are_valid_python():
    for sample in ALL:
        ast.parse(sample.problem.source)
        if sample.kind == "honest":
            ast.parse(sample.code)


def test_controls_when_named_are_honest_samples_of_the_same_suite():
    honest = {(sample.suite, sample.name) for sample in ALL if sample.kind == "honest"}
    assert {(sample.suite, sample.control) for sample in ALL if sample.control} <= honest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WHOLE.replace("# problem: chain\n", ""), "# problem"),
        (WHOLE.replace("# reasons: wrong\n", ""), "# reasons"),
        (WHOLE.replace("refused", "accepted"), "accepted"),
        (WHOLE.replace("refused", "maybe"), "maybe"),
        (WHOLE.replace("chain", "nothing_like_it"), "nothing_like_it"),
    ],
)
def test_load_samples_when_a_head_is_wrong_names_it(tmp_path, monkeypatch, text, message):
    for name, content in (("adversarial/a_b.py", text), ("problems/chain.py", "class Model(object): ...\n")):
        (tmp_path / "cpu" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cpu" / name).write_text(content)
    monkeypatch.setattr(samples, "folder", lambda: tmp_path)
    load_problem.cache_clear()
    with pytest.raises(UserError, match=message):
        load_samples("cpu", "adversarial")
    load_problem.cache_clear()


def test_load_samples_when_the_suite_is_unknown_lists_the_suites():
    with pytest.raises(UserError, match="cpu, cuda"):
        load_samples("tpu", "honest")
