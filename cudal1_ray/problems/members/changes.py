"""Changes that leave a candidate's work that of its reference, when both are changed.

A change takes a module's text and whether it is the reference, and returns the changed text, or None where the module
does not have what is changed: such a candidate is left out of the member.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from cudal1_ray.problems.members.text import ModuleText, ReturnLine

Change = Callable[[ModuleText, bool], ModuleText | None]


def word(name: str) -> str:
    """Return the pattern of a variable's name: no attribute, and no index of an einsum."""
    return rf"(?<![\w.\"]){re.escape(name)}\b(?!\")"


def with_number(old: str, new: str) -> Change:
    """Return the change of a number, or of several in a row, before the last line."""
    pattern = re.compile(rf"(?<![\w.]){re.escape(old)}(?![\w.])")

    def change(module: ModuleText, reference: bool) -> ModuleText | None:
        if not any(pattern.search(line) for line in module.work):
            return None
        return replace(module, body=(*(pattern.sub(new, line) for line in module.work), module.body[-1]))

    return change


def with_input(argument: str, name: str, form: str, indexed: str = "") -> Change:
    """Return the change to another input: `form` of the argument, under a name that no module of the problem uses.

    Args:
        form: an elementwise expression in `{x}`.
        indexed: how the reference reads the argument in a loop, where the expression is to stand there and not in a
            line of its own. Candidates always compute the whole input first.
    """

    def change(module: ModuleText, reference: bool) -> ModuleText:
        if reference and indexed:
            lines = [line.replace(indexed, form.format(x=indexed)) for line in module.work]
        else:
            lines = [re.sub(word(argument), name, line) for line in module.work]
            lines.insert(0, f"{name} = {form.format(x=argument)}")
        return replace(module, body=(*lines, module.body[-1]))

    return change


def with_ending(old: str, new: str | ReturnLine) -> Change:
    """Return the change of the last line, `old`, to `new`; a ReturnLine is written as the module wrote the old."""
    lines = {old: new.line() if isinstance(new, ReturnLine) else new}
    if isinstance(new, ReturnLine) and (before := ReturnLine.read(old)) is not None:
        lines.setdefault(before.line_in_place(), new.line_in_place())

    def change(module: ModuleText, reference: bool) -> ModuleText | None:
        line = lines.get(module.body[-1])
        return replace(module, body=(*module.work, line)) if line else None

    return change


def with_argument(reference: ModuleText, names_in_use: str) -> Change | None:
    """Return the change of the reference's only parameter to the first argument of `forward`.

    None where it has another kind of state, or a module has a variable of that name (`names_in_use`: all their lines).
    """
    match = re.fullmatch(r"self\.(\w+) = nn\.Parameter\(torch\.randn\((.+)\)\)", "\n".join(reference.state))
    if match is None or re.search(word(match[1]), names_in_use):
        return None
    name, sizes = match[1], match[2]

    def change(module: ModuleText, reference: bool) -> ModuleText | None:
        if module.state != (match[0],):
            return None
        body = tuple(re.sub(rf"self\.{name}\b", name, line) for line in module.body)
        after = module.after
        if reference:
            after = after.replace("return [torch", f"return [torch.randn({sizes.upper()}), torch", 1)
            after = _with_sizes(after, "")
        return replace(module, sizes=(), state=(), arguments=(name, *module.arguments), body=body, after=after)

    return change


def with_parameter(reference: ModuleText, argument: str, name: str) -> Change | None:
    """Return the change of an argument of `forward` to a parameter of that name.

    None where it is not drawn from a normal distribution, as parameters are.
    """
    match = re.search(r"def get_inputs\(\):\n    return \[(.*)\]\n", reference.after)
    inputs = re.findall(r"torch\.\w+\([^)]*\)", match[1]) if match else []
    place = reference.arguments.index(argument)
    drawn = re.fullmatch(r"torch\.randn\((.*)\)", inputs[place]) if place < len(inputs) else None
    if match is None or drawn is None:
        return None
    sizes = tuple(dict.fromkeys(drawn[1].split(", ")))
    line = f"self.{name} = nn.Parameter(torch.randn({drawn[1].lower()}))"
    others = ", ".join(text for i, text in enumerate(inputs) if i != place)

    def change(module: ModuleText, reference: bool) -> ModuleText:
        after = module.after
        if reference:
            after = _with_sizes(after.replace(match[1], others, 1), ", ".join(sizes))
        return replace(
            module,
            sizes=tuple(size.lower() for size in sizes),
            state=(line,),
            arguments=tuple(name for name in module.arguments if name != argument),
            body=tuple(re.sub(word(argument), f"self.{name}", line) for line in module.body),
            after=after,
        )

    return change


def _with_sizes(after: str, sizes: str) -> str:
    return re.sub(r"(def get_init_inputs\(\):\n    return )\[.*\]", rf"\g<1>[{sizes}]", after)
