"""The house's language, and `make lint` as a test, so that a change that fails it fails the suite."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import word_list as words

ROOT = Path(__file__).resolve().parents[2]


def lint_commands() -> list[str]:
    """Return the commands of `make lint`, as they stand in the Makefile."""
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe, "the Makefile has no target lint"
    return [line.strip().removeprefix("@$(BIN)/python ") for line in recipe[1].splitlines()]


def test_make_lint_when_read_has_every_check():
    checks = ("-m ruff check", "-m ruff format", "-m mypy", "tests/style/word_list.py", "tests/style/references.py")
    commands = lint_commands()
    assert [sum(command.startswith(check) for command in commands) for check in checks] == [1] * len(checks)


@pytest.mark.parametrize("command", lint_commands())
def test_make_lint_when_run_passes(command):
    done = subprocess.run([sys.executable, *command.split()], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\nthe process who waits", 2),
        ("Whoever asks", 1),
        ("nobody's turn", 1),
        ("all but for one", 1),
        ("from nought to one", 1),
    ],
)
def test_find_words_when_a_word_is_forbidden_names_its_line(text, line):
    assert [finding.line for finding in words.find_words(text)] == [line]


@pytest.mark.parametrize(
    "text", ["users who train", "the author\n who wrote it", "whole", "whose", "nobody/dataset", "a_who"]
)
def test_find_words_when_people_or_other_words_are_meant_finds_none(text):
    assert list(words.find_words(text)) == []


def test_find_empty_names_when_a_local_or_a_parameter_is_one_names_it_and_spares_fields():
    source = (
        "class Form:\n    found: bool\n\ndef asked(given, rows):\n    known = [one for one in rows]\n    _said = 1\n"
    )
    names = {finding.text for finding in words.find_empty_names(source)}
    assert names == {"asked", "given", "known", "one", "_said"}


def test_find_letters_when_a_letter_outlives_an_expression_names_it():
    source = (
        "def f(c, x):\n    self._m = [s for s in x]\n    for i in sorted(x, key=lambda r: r):\n        t = i\n_A = 1\n"
    )
    assert {finding.text for finding in words.find_letters(source)} == {"f", "c", "_m", "t"}


def test_find_empty_constants_when_a_constant_is_one_names_it():
    source = "GIVEN = 1\n_HERE: int = 2\nARGUMENTS = 3\nwon = 4\n\ndef f():\n    SAME = 5\n"
    assert [finding.text for finding in words.find_empty_constants(source)] == ["GIVEN", "_HERE"]


def test_find_trailing_comments_when_a_constant_has_one_names_it():
    source = (
        "# Seconds of a turn.\nTURN_S = 1.0\nREST_S = 2.0  # of a device\nimport x  # noqa\nROWS = 3  # fmt: skip\n"
    )
    assert [(finding.line, finding.text) for finding in words.find_trailing_comments(source)] == [(3, "# of a device")]


def test_find_names_when_a_binding_is_forbidden_names_it():
    source = "def f(keeper):\n    desk = keeper\n    self.workshop = desk\n\nclass Keeper: ...\n"
    assert [(found.line, found.text) for found in words.find_names(source)] == [
        (5, "Keeper"), (1, "keeper"), (2, "desk"), (3, "workshop"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "lines"), [("cudal1_ray/evaluation/pool.py", [1, 2]), ("cudal1_ray/checking/opinions.py", [])]
)
def test_find_names_when_a_judge_is_no_model_of_the_reward_checker_names_it(file, lines):
    source = "def judge_call(): ...\njudged = judge_call()\n"
    assert [finding.line for finding in words.find_names(source, file)] == lines


def test_check_when_a_word_is_forbidden_reports_file_line_and_advice(tmp_path):
    (tmp_path / "page.md").write_text("# Title\n\nSomebody waits.\n")
    (finding,) = words.check(tmp_path / "page.md", tmp_path)
    assert str(finding).startswith("page.md:3: 'Somebody': write ")


def test_find_code_words_when_an_argument_has_no_noun_names_its_line():
    source = 'def f(limit):\n    """Return it.\n\n    Args:\n        limit: of the files.\n    """\n'
    (finding,) = words.find_code_words(source)
    assert (finding.line, finding.text.strip()) == (5, "limit: of")


def test_find_double_ticks_when_a_docstring_has_them_names_its_line():
    source = 'def f(path):\n    """Read ``path``."""\n\ndef g(path):\n    """Read `path`, no ```fence```."""\n'
    assert [(finding.line, finding.text) for finding in words.find_double_ticks(source)] == [(2, "``path``")]


@pytest.mark.parametrize("stem", ["test_evil", "kept"])
def test_check_when_a_file_has_a_forbidden_name_reports_it(tmp_path, stem):
    (tmp_path / f"{stem}.py").write_text("")
    assert [finding.text for finding in words.check(tmp_path / f"{stem}.py", tmp_path)] == [stem]


def test_find_code_words_when_a_comment_or_docstring_tells_names_its_line():
    source = 'def f(says):\n    """Return it.\n\n    It says so."""\n    return 1  # at most so many, so long as told\n'
    places = [(finding.line, finding.text) for finding in words.find_code_words(source)]
    assert places == [(5, "told"), (5, "so many"), (4, "says")]


@pytest.mark.parametrize("name", ["test_the_queue_is_fair", "test_when_empty_it_ends", "test_Queue_when_full_waits"])
def test_find_test_names_when_a_part_is_missing_names_the_test(name):
    source = f"def {name}(): ...\n\ndef test_queue_when_empty_ends(): ...\n\ndef tester(): ...\n"
    assert [finding.text for finding in words.find_test_names(source)] == [name]


@pytest.mark.parametrize("folder", words.FOLDERS)
def test_check_when_a_name_is_empty_reports_it_in_every_folder(tmp_path, folder):
    script = tmp_path / folder / "script.py"
    script.parent.mkdir()
    script.write_text("def read(path):\n    found = path.read_text()\n    return found\n")
    assert [(finding.line, finding.text) for finding in words.check(script, tmp_path)] == [(2, "found")]


def test_checked_files_when_listed_cover_every_folder_of_the_repository():
    tracked = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    unwritten = {
        "build",
        "dist",
        "multirun",
        "outputs",
        "requirements",
        "runs",
    }  # made by commands, or lists of versions
    assert {name for name in tracked if not name.endswith(".egg-info")} - unwritten - {"__pycache__"} <= set(
        words.FOLDERS
    )


def test_checked_files_when_listed_hold_the_sources_of_the_page():
    assert {"story.ts", "page.css", "build.mjs", "index.html"} <= {path.name for path in words.checked_files()}


@pytest.mark.parametrize(
    "docstring",
    [
        "The folder of the run.",
        "Whether it is there.",
        "`most` rows are read.",
        "float64[n]: the draws.",
        "UserError when the file is missing.",
        "(id, row) of each.",
        "Do inputs that differ give something else? Then it rounds.",
        "Seconds until the next one.",
        "Enters the level, for good.",
        "Refused unless it equals `value`.",
    ],
)
def test_starts_with_verb_when_a_docstring_names_a_value_or_asks_is_false(docstring):
    assert not words.starts_with_verb(docstring)


@pytest.mark.parametrize(
    "docstring",
    [
        "Return the folder.",
        "Re-read the file.",
        "Do what `run` does: see there.",
        "Empty the cache.\n\nWhy? It is old.",
    ],
)
def test_starts_with_verb_when_a_docstring_states_an_action_is_true(docstring):
    assert words.starts_with_verb(docstring)


def test_check_when_a_docstring_starts_with_no_verb_reports_it_except_of_a_test(tmp_path):
    text = 'def size():\n    """The result."""\n\ndef test_size_when_called_returns():\n    """The case."""\n'
    for name in ("script.py", "test_script.py"):
        (tmp_path / name).write_text(text)
        assert [finding.line for finding in words.check(tmp_path / name, tmp_path)] == [2]
