"""Which known candidates change their reference in the way this one does: TF-IDF over shingles of tokens.

Two candidates for one problem share most of their text with the reference, and so with each other, whatever they do.
What is compared here is therefore the difference to the reference: the shingles that a candidate adds ("+") and
those that it drops ("-"). Without a reference all shingles count as added.

Weights are those of the vector space model with sublinear term frequency, (1 + ln tf) (1 + ln((1 + N) / (1 + df))),
compared by cosine (Manning, Raghavan, Schütze, "Introduction to Information Retrieval", chapter 6).
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

from cudal1_ray.source.normal_form import bare_code
from cudal1_ray.source.parsing import PROBLEM, parse

SHINGLE = 3  # longest run of tokens that makes one feature
NOTHING = "nothing"  # the one feature of a candidate that changes nothing
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\s\w]")
_NOISE = frozenset(",;:'\"")
_LONG_STRING = 40  # longer literals are taken for source code and compared token by token


def tokens(code: str) -> list[str]:
    """Tokens of the code with everything that its author was free to name or choose replaced by a placeholder.

    Names that the code itself binds become VAR, attributes that it sets on `self` become ATTR, numbers above 2 become
    NUM and short strings STR; what it imports is written out (F.relu is torch.nn.functional.relu). Text that is no
    Python is split as it stands.
    """
    text = bare_code(code)
    try:
        tree = _Anonymous(parse(text)).result
        text = ast.unparse(tree)
    except (SyntaxError, RecursionError):
        pass
    return [token for token in _TOKEN.findall(text) if token not in _NOISE]


def shingles(words: Sequence[str], longest: int = SHINGLE) -> Counter[str]:
    """All runs of 1 to `longest` neighbouring tokens, with how often each occurs."""
    return Counter(
        " ".join(words[at : at + size]) for size in range(1, longest + 1) for at in range(len(words) - size + 1)
    )


def features(code: str, reference: str = "") -> Counter[str]:
    """What the code adds to its reference, and what it leaves out of the reference's model, as signed shingles."""
    ours, (theirs, model) = shingles(tokens(code)), _of_reference(reference)
    counts = Counter({f"+{shingle}": count for shingle, count in ours.items() if shingle not in theirs})
    counts.update({f"-{shingle}": count for shingle, count in model.items() if shingle not in ours})
    return counts or Counter({NOTHING: 1})


@lru_cache(maxsize=512)
def _of_reference(reference: str) -> tuple[Counter[str], Counter[str]]:
    """The shingles of a reference, and those of its model alone: no candidate has to repeat get_inputs()."""
    return shingles(tokens(reference)), shingles(tokens(_without_inputs(reference)))


def _without_inputs(reference: str) -> str:
    try:
        tree = parse(reference, PROBLEM)
    except SyntaxError:
        return reference
    inputs = ("get_inputs", "get_init_inputs")
    tree.body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in inputs)]
    return ast.unparse(tree)


class SimilarityIndex:
    """Features of any number of documents, each known by its number; answers which are nearest to others."""

    def __init__(self) -> None:
        self._documents: list[Counter[str]] = []
        self._df: Counter[str] = Counter()
        self._postings: dict[str, list[tuple[int, float]]] | None = None

    def __len__(self) -> int:
        return len(self._documents)

    def add(self, document: Counter[str]) -> int:
        """Takes in a document; its number, counted from 0."""
        self._documents.append(document)
        self._df.update(document.keys())
        self._postings = None  # every weight depends on the number of documents
        return len(self._documents) - 1

    def nearest(
        self, query: Counter[str], count: int, allowed: Callable[[int], bool] = lambda _: True
    ) -> list[tuple[int, float]]:
        """Up to `count` allowed documents with their cosine to the query, the nearest first; none of cosine 0."""
        if self._postings is None:
            self._build()
        assert self._postings is not None
        scores: dict[int, float] = {}
        for feature, weight in self._unit(query).items():
            for number, theirs in self._postings.get(feature, ()):
                scores[number] = scores.get(number, 0.0) + weight * theirs
        matches = [(number, min(score, 1.0)) for number, score in scores.items() if allowed(number)]
        return sorted(matches, key=lambda pair: (-pair[1], pair[0]))[:count]

    def _build(self) -> None:
        self._postings = {}
        for number, document in enumerate(self._documents):
            for feature, weight in self._unit(document).items():
                self._postings.setdefault(feature, []).append((number, weight))

    def _unit(self, document: Counter[str]) -> dict[str, float]:
        total = len(self._documents)
        weights = {
            feature: (1.0 + math.log(count)) * (1.0 + math.log((1 + total) / (1 + self._df[feature])))
            for feature, count in document.items()
        }
        norm = math.sqrt(sum(weight * weight for weight in weights.values()))
        return {feature: weight / norm for feature, weight in weights.items()}


class _Anonymous(ast.NodeTransformer):
    """Replaces what an author may name as he likes; `result` is the tree without the imports it has resolved."""

    def __init__(self, tree: ast.Module) -> None:
        self._aliases: dict[str, str] = {}
        self._bound: set[str] = set()
        self._own: set[str] = set()  # attributes set on self, and methods
        for node in ast.walk(tree):
            self._collect(node)
        self._own -= {"forward"}
        self.result = ast.fix_missing_locations(self.visit(tree))

    def _collect(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                self._aliases[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self._aliases[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}".strip(".")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self._bound.add(node.name)
            self._own.add(node.name)
        elif isinstance(node, ast.arg):
            self._bound.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self._bound.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                self._own.add(node.attr)

    def _name(self, name: str) -> str:
        if name in ("self", "forward", "__init__", "__call__"):
            return name
        if name in ("Model", "ModelNew"):
            return "Model"
        if name in self._bound:
            return "VAR"
        return self._aliases.get(name, name)

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        return None if all(alias.name.split(".")[0] == "torch" for alias in node.names) else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if (node.module or "").split(".")[0] == "torch" else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if ast.unparse(node).startswith(
            "super("
        ):  # super().__init__(), in every candidate that has something to set up
            return None
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._name(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg, node.annotation = self._name(node.arg), None
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        own = isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in self._own
        self.generic_visit(node)
        node.attr = "ATTR" if own else node.attr
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.AST]:
        """`a, b = x, y` is `a = x` and `b = y` where what is done is compared."""
        self.generic_visit(node)
        target, value = node.targets[0], node.value
        if len(node.targets) > 1 or not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
            return node
        if len(target.elts) != len(value.elts) or any(
            isinstance(part, ast.Starred) for part in target.elts + value.elts
        ):
            return node
        pairs = zip(target.elts, value.elts, strict=True)
        return [ast.Assign(targets=[part], value=part_value, lineno=node.lineno) for part, part_value in pairs]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.visit_ClassDef(node)

    def visit_ClassDef(self, node):
        node.name = self._name(node.name)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            return ast.Name("NUM", ast.Load()) if abs(node.value) > 2 else node
        if isinstance(node.value, (str, bytes)) and len(node.value) <= _LONG_STRING:
            return ast.Name("STR", ast.Load())
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node  # a placeholder cannot stand inside an f-string
