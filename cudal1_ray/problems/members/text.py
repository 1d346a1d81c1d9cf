"""A bundled problem's or candidate's file taken apart around `forward`, and the last expression there."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MODULE = re.compile(
    r"class (?P<name>Model|ModelNew)\(nn\.Module\):\n"
    r"(?P<init>    def __init__\(self(?:, (?P<sizes>[^)]*))?\):\n(?P<state>(?:        .*\n)+)\n)?"
    r"    def forward\(self, (?P<arguments>[^)]*)\):\n(?P<body>(?:        .*\n)+)"
)
_NUMBER = r"\d+\.\d+"
_ENDING = re.compile(
    rf"return (?:torch\.(?P<function>\w+)\()?(?P<core>self\.fc\(h\)|[hy](?: \* (?:self\.)?[a-z]\b)?)"
    rf"(?: (?P<inner_sign>[*+-]) (?P<inner>{_NUMBER}))?(?(function)\))(?: \* (?P<scale>{_NUMBER}))?"
    r"(?: (?P<sign>[+-]) (?P<term>.+))?"
)
_IN_PLACE = {"*": "mul_", "+": "add_", "-": "sub_"}


@dataclass(frozen=True)
class ModuleText:
    """A file with one module.

    Attributes:
        before, after: the text around the class.
        name: Model or ModelNew.
        sizes: arguments of `__init__`.
        state: lines of `__init__` after `super().__init__()`, without indentation.
        arguments: those of `forward`.
        body: lines of `forward` with the indentation that they have beyond its own.
    """

    before: str
    name: str
    sizes: tuple[str, ...]
    state: tuple[str, ...]
    arguments: tuple[str, ...]
    body: tuple[str, ...]
    after: str

    @classmethod
    def read(cls, text: str) -> ModuleText | None:
        """Return the file taken apart; None where it has another form."""
        match = _MODULE.search(text if text.endswith("\n") else text + "\n")
        if match is None:
            return None
        lines = [line[8:] for line in (match["state"] or "").splitlines()]
        return cls(
            before=text[: match.start()],
            name=match["name"],
            sizes=tuple((match["sizes"] or "").split(", ")) if match["sizes"] else (),
            state=tuple(line for line in lines if line != "super().__init__()"),
            arguments=tuple(match["arguments"].split(", ")),
            body=tuple(line[8:] for line in match["body"].splitlines()),
            after=text[match.end() :],
        )

    @property
    def work(self) -> tuple[str, ...]:
        """Return the lines of `forward` before the last."""
        return self.body[:-1]

    def write(self) -> str:
        """Return the file's text, with `import torch` where it had none."""
        text = (
            self.before if re.search(r"^import torch$", self.before, re.MULTILINE) else f"import torch\n{self.before}"
        )
        text += f"class {self.name}(nn.Module):\n"
        if self.state:
            lines = "".join(f"        {line}\n" for line in ("super().__init__()", *self.state))
            text += f"    def __init__({', '.join(('self', *self.sizes))}):\n{lines}\n"
        body = "".join(f"        {line}\n" for line in self.body)
        return f"{text}    def forward({', '.join(('self', *self.arguments))}):\n{body}{self.after}"


@dataclass(frozen=True)
class ReturnLine:
    """`return function(core inner_sign inner) * scale sign term`, of which all but the core may be missing.

    Attributes:
        core: what the lines before have computed, `h`, `h * self.w` or `self.fc(h)`.
        inner, scale: numbers.
        term: a number, or an expression in the arguments.
    """

    core: str
    function: str = ""
    inner_sign: str = ""
    inner: str = ""
    scale: str = ""
    sign: str = ""
    term: str = ""

    @classmethod
    def read(cls, line: str) -> ReturnLine | None:
        """Return the line taken apart; None where it has another form."""
        match = _ENDING.fullmatch(line)
        if match is None:
            return None
        parts = {name: value or "" for name, value in match.groupdict().items()}
        if not parts["function"] and parts["inner_sign"]:  # without a function what is inside is what comes after
            sign, number, parts["inner_sign"], parts["inner"] = parts["inner_sign"], parts["inner"], "", ""
            parts |= {"scale": number} if sign == "*" else {"sign": sign, "term": number}
        return cls(**parts)

    def line(self) -> str:
        """Return the statement as references write it."""
        text = f"{self.core} {self.inner_sign} {self.inner}" if self.inner else self.core
        text = f"torch.{self.function}({text})" if self.function else text
        text += f" * {self.scale}" if self.scale else ""
        return f"return {text} {self.sign} {self.term}" if self.term else f"return {text}"

    def line_in_place(self) -> str:
        """Return the statement as candidates write it that reuse the memory of the core."""
        name, _, factor = self.core.partition(" * ")
        text = f"{name}.mul_({factor})" if factor else name
        text += f".{_IN_PLACE[self.inner_sign]}({self.inner})" if self.inner else ""
        text = f"torch.{self.function}_({text})" if self.function else text
        text += f".mul_({self.scale})" if self.scale else ""
        return f"return {text}.{_IN_PLACE[self.sign]}({self.term})" if self.term else f"return {text}"
