"""The operations that a problem or a candidate is made of, by name, and its texts without comments and docstrings."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, field

from cudal1_ray.source.names import Names
from cudal1_ray.source.nodes import class_named, last_name
from cudal1_ray.source.normal_form import NATIVE_COMMENT
from cudal1_ray.source.parsing import PROBLEM, parse
from cudal1_ray.source.text import line_starts

# Names that most references call or that are no operation.
_COMMON = frozenset(
    {"torch", "nn", "functional", "super", "__init__", "Model", "forward", "self", "get_inputs", "randn"}
)
_CUDA_MARKS = ("__global__", "#include", "torch::Tensor", "__device__", 'extern "C"')
# A string that may select what a function does, as in `mode="reduce-overhead"`.
_WORD = re.compile(r"[\w-]+")
_Span = tuple[int, int, int, int]  # line, column, end line, end column; lines from 1, columns in UTF-8 bytes
# Calls in a forward method that compute nothing: shapes, views, allocation, bookkeeping.
_NO_COMPUTE = set(
    "size shape dim numel view view_as reshape permute transpose t squeeze unsqueeze expand expand_as "
    "contiguous to type float cuda cpu device clone detach empty empty_like new_empty zeros zeros_like "
    "ones len range int tuple list isinstance getattr print append apply ceil data_ptr stride "
    "is_contiguous chunk split flatten super format".split()
)


@dataclass
class Operations:
    """What `read_operations` finds. Lines count from 1; `operations` maps a name to the first line it is on.

    python_text and cuda_text have the line structure of the source, everything else blanked; python_text has strings of
    one word, and what is imported has its full name there (`triton.language.dot` for `tl.dot`). `operations` covers
    the whole model class, modules made in __init__ and called in forward counting by their class;
    `forward_operations` are the computing calls and operators of forward, in order, repeats included;
    `forward_results` are name and line of the calls whose values it returns; `all_calls` are the names of all calls in
    the file, helper classes and constructors too. `kernel_line` is that of its first own kernel (CUDA source or
    Triton), 0 where it has none.
    """

    source: str
    python_text: str = ""
    cuda_text: str = ""
    all_calls: set[str] = field(default_factory=set)
    operations: dict[str, int] = field(default_factory=dict)
    forward_operations: list[str] = field(default_factory=list)
    forward_results: list[tuple[str, int]] = field(default_factory=list)
    loop_lines: list[int] = field(default_factory=list)
    kernel_line: int = 0
    has_model: bool = False

    def line(self, number: int) -> str:
        """Return the text of line `number`, stripped; empty when there is none."""
        lines = self.source.split("\n")
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def operators_of(source: str) -> list[str]:
    """Return the names that a reference's classes call and its operators, such as "Conv2d", "relu", "Add"."""
    try:
        tree = parse(source, PROBLEM)
    except SyntaxError:
        return []
    operators = []
    for node in (inner for top in tree.body if isinstance(top, ast.ClassDef) for inner in ast.walk(top)):
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            if name and name not in _COMMON:
                operators.append(name)
        elif isinstance(node, ast.BinOp):
            operators.append(type(node.op).__name__)
    return operators


def read_operations(source: str) -> Operations | None:
    """Read a file that defines Model or ModelNew; None when it does not parse."""
    try:
        tree = parse(source)
        spans, names = _string_spans(tree) + _comment_spans(source), Names(tree)
    except (SyntaxError, RecursionError, tokenize.TokenError):
        return None
    reading = Operations(source=source)
    python = _blank(source, [span for span, text in spans if not _WORD.fullmatch(text)])
    reading.python_text = _write_out_imports(python, source, names)
    cuda = [(span, text) for span, text in spans if any(mark in text for mark in _CUDA_MARKS)]
    native = _blank(source, [], only=[span for span, _ in cuda])
    reading.cuda_text = NATIVE_COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), native)
    kernels = [re.search(r"__global__", reading.cuda_text), re.search(r"\btriton\.jit\b", reading.python_text)]
    lines = [match.string.count("\n", 0, match.start()) + 1 for match in kernels if match]
    reading.kernel_line = min(lines, default=0)
    reading.all_calls = {_operation(node, {}) for node in ast.walk(tree)} - {""}
    model = class_named(tree, "ModelNew", "Model")
    if model is not None:
        reading.has_model = True
        _read_model(model, names, reading)
    return reading


def _read_model(model: ast.ClassDef, names: Names, reading: Operations) -> None:
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    modules = _modules(methods.get("__init__"))
    bodies = [node for name, node in methods.items() if name != "__init__"]
    bodies += [
        node
        for node in names.tree.body
        if isinstance(node, ast.FunctionDef)
        and node.name not in ("get_inputs", "get_init_inputs")
        and not any(
            names.name(part).startswith("triton.") for decorator in node.decorator_list for part in ast.walk(decorator)
        )
    ]
    for body in bodies:
        for node in ast.walk(body):
            if isinstance(node, (ast.For, ast.While, ast.ListComp)):
                reading.loop_lines.append(node.lineno)
            if isinstance(node, ast.expr) and (name := _operation(node, modules)):
                reading.operations.setdefault(name, node.lineno)
    reading.loop_lines.sort()
    forward = methods.get("forward")
    if forward is not None:
        expressions = (node for node in ast.walk(forward) if isinstance(node, ast.expr))
        operations = [(node.lineno, name) for node in expressions if (name := _operation(node, modules))]
        reading.forward_operations = [name for _, name in sorted(operations) if name not in _NO_COMPUTE]
        reading.forward_results = [
            (last_name(node.value.func), node.lineno)
            for node in ast.walk(forward)
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Call)
        ]


def _modules(init: ast.FunctionDef | None) -> dict[str, str]:
    """Return {attribute: class name} of each `self.attribute = nn.Class(...)` in `__init__`."""
    modules: dict[str, str] = {}
    for node in ast.walk(init) if init else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self":
                    modules[target.attr] = last_name(node.value.func)
    return modules


def _operation(node: ast.AST, modules: dict[str, str]) -> str:
    """Return the operation that a node is: a call's last name, a module call's class, a tensor operator."""
    if isinstance(node, ast.BinOp):
        return "@" if isinstance(node.op, ast.MatMult) else "arithmetic" if _tensor_like(node) else ""
    if not isinstance(node, ast.Call):
        return ""
    func = node.func
    if isinstance(func, ast.Attribute) and getattr(func.value, "id", "") == "self" and func.attr in modules:
        return modules[func.attr]
    return last_name(func)


def _tensor_like(node: ast.BinOp) -> bool:
    """Return whether arithmetic may be on tensors: index arithmetic with floor division or modulo is not."""
    return not isinstance(node.op, (ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift))


def _string_spans(tree: ast.Module) -> list[tuple[_Span, str]]:
    """Return the place and the text of each string; a docstring has no text."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    spans = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts]
            text = "" if id(node) in docstrings else "".join(texts)
            if node.end_lineno is not None and node.end_col_offset is not None:  # what was parsed has both
                spans.append(((node.lineno, node.col_offset, node.end_lineno, node.end_col_offset), text))
    return spans


def _comment_spans(source: str) -> list[tuple[_Span, str]]:
    spans = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line = token.line
            start, end = (len(line[:column].encode()) for column in (token.start[1], token.end[1]))
            spans.append(((token.start[0], start, token.end[0], end), ""))
    return spans


def _blank(source: str, spans: Sequence[_Span], only: Sequence[_Span] | None = None) -> str:
    """Return `source` with the spans blanked or, with `only`, all but those; lines stay where they are."""
    data = source.encode()
    starts = line_starts(data)
    hidden = bytearray(10 if byte == 10 else 32 for byte in data)
    result = bytearray(data if only is None else hidden)
    for line, column, end_line, end_column in spans if only is None else only:
        low, high = starts[line - 1] + column, starts[end_line - 1] + end_column
        result[low:high] = (hidden if only is None else data)[low:high]
    return result.decode(errors="replace")


def _write_out_imports(text: str, source: str, names: Names) -> str:
    """Return `text`, a source with parts blanked, with the full name of what is imported; lines stay where they are."""
    data, starts = bytearray(text.encode()), line_starts(source.encode())
    places: dict[int, tuple[bytes, bytes]] = {}
    for node in ast.walk(names.tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            full_name = next((value for value in names.values(node) if isinstance(value, str)), node.id)
            places[starts[node.lineno - 1] + node.col_offset] = (node.id.encode(), full_name.encode())
    for low, (name, replacement) in sorted(places.items(), reverse=True):
        if data[low : low + len(name)] == name:  # before Python 3.12 places inside an f-string are wrong
            data[low : low + len(name)] = replacement
    return data.decode(errors="replace")
