"""The house's word list, checked over code, comments, docstrings, messages and documentation.

`python tests/style/word_list.py` prints one line for each place and exits with 1 if there is any; `make lint` runs it.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

# Parts of the repository whose text is written here; what is not listed is generated, recorded or quoted.
FOLDERS = (".ci", "benchmarks", "conf", "cudal1_ray", "docs", "examples", "hydra_plugins", "launch", "scripts", "tests")
FILES = ("CHANGELOG.md", "CONTRIBUTING.md", "Dockerfile", "Makefile", "README.md", "mkdocs.yml", "pyproject.toml")
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".sh", ".sbatch", ".j2", ".toml", ".html", ".ts", ".mjs", ".css"}
DATA = ("benchmarks/results/", "cudal1_ray/problems/bundled/", "cudal1_ray/problems/corpus/", "tests/style/")
BUILT = ("node_modules", "static", "__pycache__")

# Pattern -> what to write instead. A process, a candidate or a value is "it"; people are users, authors, readers.
WORDS = {
    r"who": "which, that, or the noun",
    r"whoever": "the process, caller or user that",
    r"whom": "which",
    r"(?:no|some|any|every)body": "the noun: no process, another user, a reader",
    r"(?:some|any|every)one": "the noun: a user, a reader, every caller",
    r"no one": "none, or the noun",
    r"nought": "zero",
    r"lest": "so that ... not",
    r"but for": "except",
    r"as of": "see, or since",
}
# The same in comments and docstrings of code; a page may say something to its reader, and count so many of it.
CODE_WORDS = {
    r"say|says|said|saying|tell|tells|told|telling": "report, record, print, state, show, or distinguish",
    r"so (?:many|much|long)(?! (?:as|that)\b)": "the number by its name: at most `limit`, seconds after which",
    r"lets? go of": "drop, release, or close",
    r"(?<=\n) +\w+: of": "the noun: most MiB of all files, the address of this host",
}
# Parts of names that are no nouns of the field, and roles of a play.
NAMES = {
    "anybody", "desk", "everybody", "evil", "keeper", "nobody", "nought", "noughts", "somebody", "who", "whoever",
    "whom", "workshop",
}  # fmt: skip
# "Judge" is the language model that checks rewards: elsewhere nothing has the name.
JUDGE = {"judge", "judged", "judges", "judging"}
CHECKER = (
    "benchmarks/rewards/", "cudal1_ray/checking/", "cudal1_ray/training/reviewing.py", "tests/checking/",
    "tests/training/test_reviewing.py",
)  # fmt: skip
# Participles and numerals that name nothing by themselves, as the whole name of a function, a class, a parameter or a
# local variable. Fields are free: their names are keys that users read.
EMPTY_NAMES = {
    "asked", "foo", "found", "given", "gone", "known", "made", "obj", "one", "said", "seen", "shown", "stuff", "temp",
    "thing", "things", "tmp", "told", "val", "wanted",
}  # fmt: skip
# Letters that are names of the field: indices, a count, a probability, a quantile, coordinates and tensors, a pair, and
# the queries, keys and values of attention. Any other letter names nothing beyond one expression.
LETTERS = frozenset("abijknpqvxyz")
# Whole names of modules and of their constants that name nothing either.
EMPTY_CONSTANTS = EMPTY_NAMES | {
    "again", "before", "done", "good", "here", "kept", "looks", "lost", "most", "ours", "raised", "ran", "same",
    "taken", "theirs", "won", "written",
}  # fmt: skip
# Candidates and their problems are data, which keep the names that they came with.
CANDIDATES = ("tests/adversarial/cpu/", "tests/adversarial/cuda/")
TEMPLATES = ("cudal1_ray/prompting/templates/",)
# First words of docstrings that are no verbs in any sentence: determiners, pronouns and numerals, question words and
# conjunctions, prepositions, auxiliaries, and nouns and adjectives that describe a value in place of an action.
NO_VERBS = frozenset(
    """
    A All An Another Any Anything Both Each Either Every Everything First Half It Its Last Neither No None Nothing
    One Other Several Some Something That The Their These They This Those Three Two
    Although And As Because But How If Once Or So Than Then What When Where Whether Which While Who Why
    About Above Across After Along Among Around At Before Behind Below Beside Besides Between Beyond By During Except
    For From In Inside Into Like Of Off On Onto Outside Over Per Since Through To Towards Under Until Unto Up Upon With
    Within Without
    Are Can Could Did Does Had Has Is Might Must Never Not Ought Perhaps Shall Should Was Were Will Would
    Best Calling Causal Chi-square Correctness Drawn Entropy Equal Exit Few Geometric Global Gradient Greedy Histogram
    Holm Itself Keyword Label Large Learning Line Log-probability Mean Memory Misbehaviour Negative Newer Percentile
    Plain Probability Problem Python Raw Resident Room Root Rotary Small System Table Text Token Version W Wall Whole
    """.split()
)
# What a test's name states: test_<what>_when_<condition>_<result>.
TEST_NAME = re.compile(r"test_[a-z0-9_]+_when_[a-z0-9_]+")
# Comments that tools read.
DIRECTIVE = re.compile(r"# (?:fmt|noqa|type)\b")
DOUBLE_TICKS = re.compile(r"(?<!`)``(?!`)[^`\n]+``(?!`)")
PEOPLE = re.compile(r"\b(?:author|contributor|maintainer|people|reader|user)s?\W+$", re.IGNORECASE)  # they may be "who"


@dataclass(frozen=True)
class Finding:
    """A place that the house's language does not allow; `advice` is what to write instead."""

    file: str
    line: int
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text!r}: write {self.advice}"


def find_words(text: str, file: str = "") -> Iterator[Finding]:
    """Yield each word of `WORDS` in a text, in any case, with its line (from 1). Authors and users may be "who"."""
    for pattern, advice in WORDS.items():
        for match in re.finditer(rf"(?<![\w/]){pattern}(?![\w/])", text, re.IGNORECASE):
            if pattern == "who" and PEOPLE.search(text, max(0, match.start() - 20), match.start()):
                continue
            yield Finding(file, text.count("\n", 0, match.start()) + 1, match[0], advice)


# Nodes that define a name. A tuple, asked for each node: making a union of types takes longer than asking with it.
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
DOCUMENTED = (ast.Module, *DEFINITIONS)


@lru_cache(maxsize=1)  # a file is asked about by every rule before the next one
def nodes_of(source: str) -> list[ast.AST]:
    """Return the nodes of a source's syntax tree, each before its children."""
    return list(ast.walk(ast.parse(source)))


@lru_cache(maxsize=1)
def bindings(source: str) -> list[tuple[ast.AST, str, int]]:
    """Return node, name and line of each variable, parameter, attribute, function and class that a source binds."""
    bound: list[tuple[ast.AST, str, int]] = []
    for node in nodes_of(source):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.append((node, node.id, node.lineno))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            bound.append((node, node.attr, node.lineno))
        elif isinstance(node, ast.arg):
            bound.append((node, node.arg, node.lineno))
        elif isinstance(node, DEFINITIONS):
            bound.append((node, node.name, node.lineno))
    return bound


def find_code_words(source: str, file: str = "") -> Iterator[Finding]:
    """Yield each word of `CODE_WORDS` in the comments and docstrings of a Python source, with its line."""
    patterns = {re.compile(rf"(?<!\w)(?:{pattern})\b", re.IGNORECASE): advice for pattern, advice in CODE_WORDS.items()}
    texts = []
    if any(pattern.search(source) for pattern in patterns):  # reading the tokens takes longest
        texts = [
            (token.start[0], token.string)
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        ]
    for node in nodes_of(source):
        if isinstance(node, DOCUMENTED):
            if ast.get_docstring(node):
                texts.append((node.body[0].lineno, node.body[0].value.value))
    for line, text in texts:
        for pattern, advice in patterns.items():
            for match in pattern.finditer(text):
                yield Finding(file, line + text.count("\n", 0, match.start()), match[0], advice)


def find_names(source: str, file: str = "") -> Iterator[Finding]:
    """Yield each binding of a Python source with a part in `NAMES`.

    A part in `JUDGE` counts, too, outside the reward checker.
    """
    forbidden = NAMES if file.startswith(CHECKER) else NAMES | JUDGE
    for _, name, line in bindings(source):
        if forbidden & set(name.lower().split("_")):
            yield Finding(file, line, name, "a noun of the field")


def find_empty_names(source: str, file: str = "") -> Iterator[Finding]:
    """Yield each function, class, parameter and local variable of a Python source whose whole name is empty."""
    empty = [binding for binding in bindings(source) if binding[1].strip("_").lower() in EMPTY_NAMES]
    if not empty:  # to look through every function takes longest
        return
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    trees = [node for node in nodes_of(source) if isinstance(node, functions)]
    local = {(inner.id, inner.lineno) for node in trees for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    for node, name, line in empty:
        is_field = isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and (name, line) not in local)
        if not is_field:
            yield Finding(file, line, name, "what it is: found rows are rows")


def find_letters(source: str, file: str = "") -> Iterator[Finding]:
    """Yield each function, class, parameter and variable of a Python source whose name is a letter not in `LETTERS`.

    Within one expression, a comprehension or a lambda, any letter is clear. A type variable is one by convention.
    """
    brief = {
        id(inner)
        for node in nodes_of(source)
        if isinstance(node, (ast.comprehension, ast.Lambda))
        for inner in ast.walk(node.target if isinstance(node, ast.comprehension) else node.args)
    }
    for node, name, line in bindings(source):
        letter = name.strip("_")
        if len(letter) == 1 and letter not in LETTERS and not letter.isupper() and id(node) not in brief:
            yield Finding(file, line, name, "what it is: a candidate is candidate, not c")


def find_empty_constants(source: str, file: str = "") -> Iterator[Finding]:
    """Yield each module-level constant of a Python source whose whole name is empty."""
    for node in nodes_of(source)[0].body:
        for target in node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]:
            if isinstance(target, ast.Name) and target.id.isupper():
                if target.id.strip("_").lower() in EMPTY_CONSTANTS:
                    yield Finding(file, node.lineno, target.id, "what it is: GIVEN arguments are ARGUMENTS")


def find_trailing_comments(source: str, file: str = "") -> Iterator[Finding]:
    """Yield each module-level constant on whose line a comment stands: it has a complete one above it."""
    lines = source.splitlines()
    for node in nodes_of(source)[0].body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno == node.end_lineno:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            rest = lines[node.lineno - 1].encode()[node.end_col_offset :].decode().strip()
            if isinstance(target, ast.Name) and target.id.isupper() and rest and not DIRECTIVE.match(rest):
                yield Finding(
                    file, node.lineno, rest, "one complete sentence above the constant: unit, meaning, source"
                )


def find_double_ticks(source: str, file: str = "") -> Iterator[Finding]:
    """Yield each docstring of a Python source that quotes code in double backticks: docstrings are Markdown here."""
    for node in nodes_of(source):
        if isinstance(node, DOCUMENTED):
            quoted = DOUBLE_TICKS.search(ast.get_docstring(node) or "")
            if quoted:
                yield Finding(file, node.body[0].lineno, quoted[0], "single backticks")


def starts_with_verb(docstring: str) -> bool:
    """Return whether a docstring may start with a verb in the imperative, and its first sentence is no question.

    Plurals, the third person and participles are known by their ends.
    """
    word = docstring.split()[0].rstrip(".,:;")
    if word in NO_VERBS or not re.fullmatch(r"[A-Z][a-z]*(-[a-z]+)*", word):
        return False
    if word.endswith("s") and not word.endswith(("as", "is", "ss", "us")):
        return False
    if word.endswith("ed") and not word.endswith(("eed", "Embed", "Shed")):
        return False
    return not re.split(r"(?<=[.?])\s|\n\n", docstring.strip(), maxsplit=1)[0].endswith("?")


def find_openings(source: str, file: str = "") -> Iterator[Finding]:
    """Yield the first word of each function's docstring that does not start with a verb in the imperative.

    A test's docstring describes its case.
    """
    for node in nodes_of(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("test_"):
            docstring = ast.get_docstring(node)
            if docstring and not starts_with_verb(docstring):
                yield Finding(file, node.body[0].lineno, docstring.split()[0], "Return, or what else the function does")


def find_test_names(source: str, file: str = "") -> Iterator[Finding]:
    """Yield each test of a Python source whose name does not state what is tested, when, and with which result."""
    for node in nodes_of(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            if not TEST_NAME.fullmatch(node.name):
                yield Finding(file, node.lineno, node.name, "test_<what>_when_<condition>_<result>")


def checked_files(repository: Path = REPOSITORY) -> Iterator[Path]:
    """Yield the files that are checked, in order; generated and recorded ones are left out."""
    paths = [repository / name for name in FILES]
    paths += [path for folder in FOLDERS for path in sorted((repository / folder).rglob("*"))]
    for path in paths:
        name = path.relative_to(repository).as_posix()
        written_here = path.suffix in SUFFIXES or name in FILES or name == ".ci/run"
        if path.is_file() and written_here and not name.startswith(DATA):
            if not set(BUILT) & set(path.parts):
                yield path


def check(path: Path, repository: Path = REPOSITORY) -> list[Finding]:
    """Return what one file has of forbidden words and names, by line."""
    name, text = path.relative_to(repository).as_posix(), path.read_text(encoding="utf-8")
    findings = list(find_words(text, name))
    if path.suffix == ".py":
        empty = path.stem.lower() in EMPTY_CONSTANTS and not name.startswith(CANDIDATES)
        if empty or NAMES & set(path.stem.lower().split("_")):
            findings.append(Finding(name, 1, path.stem, "a noun of the field in the file's name"))
        findings += find_names(text, name)
        if name.startswith("tests/") and not name.startswith(CANDIDATES):
            findings += find_test_names(text, name)
        if not name.startswith("tests/"):
            findings += find_trailing_comments(text, name)
        if not name.startswith(CANDIDATES):
            findings += find_code_words(text, name)
            findings += [*find_empty_names(text, name), *find_letters(text, name), *find_double_ticks(text, name)]
            findings += find_empty_constants(text, name)
        if not name.startswith((*CANDIDATES, *TEMPLATES)):
            findings += find_openings(text, name)
    return sorted(findings, key=lambda finding: finding.line)


def main() -> int:
    findings = [finding for path in checked_files() for finding in check(path)]
    print(*findings, sep="\n", end="\n" if findings else "")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
