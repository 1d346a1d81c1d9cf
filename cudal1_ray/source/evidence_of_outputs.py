"""What in a candidate speaks for an output that is incomplete, kept, shared or not computed.

Each function reads a candidate beside its reference and returns one line of evidence, empty without any. What the
reference does itself is no evidence. An honest candidate can have some: see `checking.rechecks`.
"""

from __future__ import annotations

import ast
import re

from cudal1_ray.source.candidate import CandidateReading, branches_around
from cudal1_ray.source.input_caches import input_cache
from cudal1_ray.source.nodes import last_name, root_name, self_attribute

# Calls that are given the sizes of what they make.
_SIZED = ("empty", "zeros", "ones", "full", "new_empty", "new_zeros", "new_full", "empty_strided")
_VIEWS = ("t", "transpose", "permute", "view", "squeeze", "unsqueeze", "narrow", "select", "detach", "movedim")
_TURNED = re.compile(r"\.(transpose|permute|swapaxes|t)\([^()]*\)$|\.(T|mT)$")
# Larger ones are bounds of an operation, such as 0.5 or 6.
_SMALL_BOUND = 1e-2


def graph_without_copy(ours: CandidateReading, _: CandidateReading) -> str:
    """Find a graph that is replayed in branches that do not copy its inputs."""
    for method in ours.call_time:
        for replay in _calls(method, "replay"):
            where = branches_around(method, replay)
            if not any(branches_around(method, copy) <= where for copy in _calls(method, "copy_")):
                return f"{method.name} replays a graph and does not always copy its inputs"
    return ""


def returns_stored(ours: CandidateReading, theirs: CandidateReading) -> str:
    """Find a result that only some calls compute and others return."""
    conditional = {name for name, guarded in ours.state_set_in_calls().items() if guarded}
    if ours.calls("replay"):
        return ""  # a CUDA graph's static output is written anew by every replay
    for value in ours.returned():
        name = self_attribute(value)
        if name in conditional:
            return f"returns self.{name}, which only some calls compute"
    if (name := input_cache(ours)) and not input_cache(theirs):
        return f"returns what self.{name} has kept of an earlier call's inputs"
    return ""


def returns_buffer(ours: CandidateReading, theirs: CandidateReading) -> str:
    """Find a result in memory that later calls or the caller share."""
    copies = [ast.unparse(value).endswith(".contiguous()") for value in theirs.returned()]
    if copies and all(copies):
        for value in ours.returned():
            if match := _TURNED.search(ast.unparse(value)):
                return f"returns {match.group(0).lstrip('.')} of its memory, where the reference makes a copy"
    for value in ours.returned():
        name = self_attribute(value)
        if name in ours.buffers() and "clone" not in ast.unparse(value):
            return f"returns self.{name}, memory that every call shares"
        if name and ours.calls("replay") and not isinstance(value, ast.Call):
            return f"returns what it keeps in self.{name}, which the next replay overwrites"
        for call in (node for node in ast.walk(value) if isinstance(node, ast.Call)):
            for keyword in call.keywords:
                shared = self_attribute(keyword.value) if keyword.arg == "out" else ""
                if shared in ours.buffers() and "clone" not in ast.unparse(value):
                    return f"returns what is written to self.{shared}, memory that every call shares"
    return "" if _returns_view(theirs) else _returns_view(ours)


def _returns_view(reading: CandidateReading) -> str:
    for value in reading.returned():
        if isinstance(value, ast.Call) and last_name(value.func) in ("expand", "expand_as", "broadcast_to"):
            return f"returns {ast.unparse(value)}, elements that share memory"
        steps = [n for n in ast.walk(value) if isinstance(n, ast.Call)]
        if root_name(value) in reading.arguments and all(last_name(step.func) in _VIEWS for step in steps):
            return f"returns {ast.unparse(value)}, its input's memory"
    return ""


def returns_unwritten(ours: CandidateReading, _: CandidateReading) -> str:
    """Find a result in uninitialised memory that nothing writes to."""
    targets = {root_name(n.func) for n in ours.calls() if last_name(n.func).endswith("_")}
    targets |= {root_name(argument) for n in ours.calls() for argument in [*n.args, *(k.value for k in n.keywords)]}
    targets |= {root_name(n) for n in ours.in_calls(ast.Subscript) if isinstance(n.ctx, ast.Store)}
    for method in ours.call_time:
        for node in ast.walk(method):
            if isinstance(node, ast.Assign) and _is_empty(node.value):
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                values = (n.value for n in ast.walk(method) if isinstance(n, ast.Return))
                returned = {value.id for value in values if isinstance(value, ast.Name)}
                if names & returned - targets:
                    return f"returns {min(names)}, uninitialised memory that nothing writes to"
            if isinstance(node, ast.Return) and node.value is not None and _is_empty(node.value):
                return "returns uninitialised memory"
    return ""


def _constant_output(ours: CandidateReading, _: CandidateReading) -> str:
    makers = ("zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "tensor", "new_zeros", "new_full")
    values = ours.returned()
    if values and all(isinstance(value, ast.Call) and last_name(value.func) in makers for value in values):
        return f"returns {ast.unparse(values[0])}"
    return ""


def same_for_all(ours: CandidateReading, theirs: CandidateReading) -> str:
    """Find an output that does not depend on the inputs."""
    return _constant_output(ours, theirs) or returns_stored(ours, theirs) or _unread_input(ours, theirs)


def approximates(ours: CandidateReading, theirs: CandidateReading) -> str:
    """Find an output that is constant, strided, or cut off below a small bound that the reference lacks."""
    if evidence := _constant_output(ours, theirs):
        return evidence
    steps = [ast.unparse(n) for n in ours.in_calls(ast.Slice) if n.step is not None]
    if steps:
        return f"takes every {steps[0]} only"
    bounds = sorted(_small_bounds(ours) - _small_bounds(theirs))
    return f"decides by whether a value is beyond {bounds[0]:g}" if bounds else ""


def _small_bounds(reading: CandidateReading) -> set[float]:
    """Return the fractions with which values are compared: where those of an output end that are left out."""
    compared = (operand for node in reading.in_calls(ast.Compare) for operand in (node.left, *node.comparators))
    values = (operand.value for operand in compared if isinstance(operand, ast.Constant))
    return {float(value) for value in values if isinstance(value, float) and 0 < value <= _SMALL_BOUND}


def part_of_an_input(ours: CandidateReading, theirs: CandidateReading) -> str:
    """Find a slice of an input that stands for the whole, or an input that is never read."""
    reference_slices = {ast.unparse(node.slice) for node in theirs.in_calls(ast.Subscript)}
    running = {t.id for n in ours.in_calls(ast.For) for t in ast.walk(n.target) if isinstance(t, ast.Name)}
    tests = {id(part) for node in ours.in_calls(ast.If, ast.IfExp) for part in ast.walk(node.test)}
    for node in ours.in_calls(ast.Subscript):
        names = {part.id for part in ast.walk(node.slice) if isinstance(part, ast.Name)}
        bounded = any(isinstance(s, ast.Slice) and (s.lower or s.upper or s.step) for s in ast.walk(node.slice))
        bounded = bounded or id(node) in tests  # one row decides for all
        of_input = root_name(node) in ours.arguments and last_name(node.value) not in ("shape", "size")
        if isinstance(node.ctx, ast.Load) and bounded and of_input and not names & running:
            if ast.unparse(node.slice) not in reference_slices:
                return f"reads {ast.unparse(node)} only"
    return _unread_input(ours, theirs)


def _unread_input(ours: CandidateReading, theirs: CandidateReading) -> str:
    unread = ours.arguments - {node.id for node in ours.in_calls(ast.Name)}
    if unread and not theirs.arguments - {node.id for node in theirs.in_calls(ast.Name)}:
        return f"never reads its input {min(unread)}"
    return ""


def single_for_double(ours: CandidateReading, theirs: CandidateReading) -> str:
    """Find single precision where the reference has double."""
    double = re.search(r"\.double\(|float64", theirs.code)
    single = re.search(r"\.float\(\)|float32", ours.code)
    return f"{single.group(0)!r}, where the reference has {double.group(0)!r}" if double and single else ""


def size_one(ours: CandidateReading, theirs: CandidateReading) -> str:
    """Find an output of one element along an axis."""
    for value in ours.returned():
        if isinstance(value, ast.Call) and last_name(value.func) == "tensor":
            return f"returns {ast.unparse(value)}, one number"
        if isinstance(value, ast.Call) and last_name(value.func) in _SIZED and value.args:
            sizes = getattr(value.args[0], "elts", value.args[:1])
            if any(isinstance(size, ast.Constant) and size.value in (0, 1) for size in sizes):
                return f"returns {ast.unparse(value)}, one element along an axis or none"
    evidence = part_of_an_input(ours, theirs)
    return evidence if re.search(r"\[:1[],]|\[0:1|\[0\]", evidence) else ""


def fixed_sizes(ours: CandidateReading, theirs: CandidateReading) -> str:
    """Find a size of the problem's inputs written into the candidate."""
    inputs = [n for n in ast.walk(theirs.tree) if isinstance(n, ast.FunctionDef) and n.name == "get_inputs"]
    sizes = {n.value for tree in inputs for n in ast.walk(tree) if isinstance(n, ast.Constant) and _is_size(n.value)}
    named = [
        n for n in theirs.tree.body if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) for t in n.targets)
    ]
    sizes |= {n.value.value for n in named if isinstance(n.value, ast.Constant) and _is_size(n.value.value)}
    shaping = (*_SIZED, "view", "reshape", "expand", "repeat")
    for node in [*ours.in_calls(ast.Compare, ast.Slice), *ours.calls(*shaping)]:
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and _is_size(part.value) and part.value in sizes:
                return f"`{ast.unparse(node)}` holds a size of the problem's inputs"
    return ""


def unused_weights(ours: CandidateReading, theirs: CandidateReading) -> str:
    """Find weights of the reference that the candidate sets up and never uses."""
    attributes = {self_attribute(n) for method in ours.set_up for n in ast.walk(method) if isinstance(n, ast.Attribute)}
    attributes |= set(re.findall(r"register_buffer\(['\"](\w+)", ours.code))
    used = {self_attribute(node) for node in ours.in_calls(ast.Attribute)}
    reference_attributes = {self_attribute(node) for node in theirs.in_calls(ast.Attribute)}
    # Read by the constructor itself, other than to set it up: packed, folded or traced, and so used in another form.
    idle = {id(n) for m in ours.set_up for e in ast.walk(m) if isinstance(e, ast.Expr) for n in ast.walk(e)}
    used |= {n.attr for method in ours.set_up for n in ast.walk(method)
             if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and self_attribute(n) == n.attr
             and id(n) not in idle}  # fmt: skip
    unused = (attributes & reference_attributes) - used - {""}
    if unused:
        return f"never uses self.{min(unused)}, which the reference does"
    evidence = part_of_an_input(ours, theirs)  # the last steps of what forgets the first, as new weights have it
    return evidence if re.search(r"-\d+:[],]|// \d+:[],]", evidence) else ""


def _calls(tree: ast.AST, *names: str) -> list[ast.Call]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and last_name(n.func) in names]


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 8


def _is_empty(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in ("empty", "empty_like", "new_empty", "empty_strided")
