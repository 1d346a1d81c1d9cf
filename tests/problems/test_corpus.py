"""The stage-1 corpus: right and wrong where it states so, and readable."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

from cudal1_ray.errors import UserError
from cudal1_ray.problems import ProblemsConfig, load_corpus, load_problems
from cudal1_ray.problems.corpus import parse_entry

PROBLEMS = {problem.problem_id: problem for problem in load_problems(ProblemsConfig())}
ENTRIES = load_corpus()
TECHNIQUES = {
    "operation fusion",
    "memory layout",
    "mathematical short-circuit",
    "algorithmic change",
    "precision",
    "vectorisation",
    "memory reuse",
    "none",
}

TEXT = (
    '"""Technique: none\nAnalysis: It is plain.\nDesign: Copy: the reference.\n"""\n\n'
    "import torch\n\n\nclass ModelNew:\n    pass\n"
)


def relative_error(entry, namespace_of) -> float:
    """Return the largest difference of outputs over the largest output, on fresh inputs and random weights."""
    module = namespace_of(PROBLEMS[entry.problem_id].source)
    torch.manual_seed(len(entry.entry_id))
    init = module["get_init_inputs"]()
    reference, candidate = module["Model"](*init), namespace_of(entry.code)["ModelNew"](*init)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(torch.randn_like(parameter) * parameter.std())
        candidate.load_state_dict(reference.state_dict())
        inputs = module["get_inputs"]()
        kept = [x.clone() for x in inputs]
        expected, output = reference(*inputs), candidate(*kept)
    assert all(torch.equal(x, y) for x, y in zip(inputs, kept, strict=True)), "the inputs were changed"
    if output.shape != expected.shape:
        return float("inf")
    return ((output - expected).abs().max() / expected.abs().max()).item()


def test_corpus_when_counted_has_enough_of_both_for_every_training_problem():
    by_problem = defaultdict(list)
    for entry in ENTRIES:
        by_problem[entry.problem_id].append(entry.expected)
    assert set(by_problem) == {key for key, problem in PROBLEMS.items() if not problem.held_out}
    for problem_id, expected in by_problem.items():
        assert expected.count("accepted") >= 4 and expected.count("rejected") == 2, problem_id
        assert 6 <= len(expected) <= 9, problem_id


def test_corpus_when_read_has_unique_ids_and_codes():
    assert len({entry.entry_id for entry in ENTRIES}) == len(ENTRIES)
    assert len({(entry.problem_id, entry.code) for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.entry_id)
def test_corpus_entry_when_run_is_what_it_is_expected_to_be(entry, namespace_of):
    if entry.expected == "accepted":
        assert relative_error(entry, namespace_of) < 1e-4
        return
    try:
        error = relative_error(entry, namespace_of)
    except (RuntimeError, TypeError, AttributeError):
        return
    assert error > 0.02


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.entry_id)
def test_corpus_entry_when_read_is_short_and_regular(entry):
    assert entry.technique in TECHNIQUES
    for sentence in (entry.analysis, entry.design):
        assert len(sentence.split()) <= 20 and sentence.endswith(".")
    assert entry.code.startswith("import torch") and len(entry.code.splitlines()) <= 22
    assert "#" not in entry.code and '"""' not in entry.code and "torch.compile" not in entry.code


def test_corpus_entry_when_parsed_has_the_parts_of_its_docstring():
    entry = parse_entry(TEXT, "p1", "wrong_copy", "here")
    assert (entry.entry_id, entry.expected, entry.technique) == ("p1/wrong_copy", "rejected", "none")
    assert (entry.analysis, entry.design) == ("It is plain.", "Copy: the reference.")
    assert entry.code == "import torch\n\n\nclass ModelNew:\n    pass\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TEXT.replace("Design:", "Plan:"), "`Design: ...`"),
        (TEXT.split('"""')[2], "`Technique: ...`"),
        (TEXT.replace("ModelNew", "Model"), "class `ModelNew`"),
        (TEXT + "(", "not valid Python, line"),
        (TEXT + "x = '\0'", "not valid Python, source code string cannot contain null bytes"),
        ("", "`Technique: ...`"),
    ],
)
def test_corpus_entry_when_wrong_is_named(text, says):
    with pytest.raises(UserError) as caught:
        parse_entry(text, "p1", "entry", "p1/entry.py")
    assert str(caught.value).startswith("p1/entry.py: ") and says in str(caught.value)


def test_corpus_when_a_folder_is_given_is_read_from_it(tmp_path):
    with pytest.raises(UserError, match="no corpus here"):
        load_corpus(tmp_path)
    (tmp_path / "p1").mkdir()
    (tmp_path / "p1" / "copy.py").write_text(TEXT)
    assert [entry.entry_id for entry in load_corpus(tmp_path)] == ["p1/copy"]
