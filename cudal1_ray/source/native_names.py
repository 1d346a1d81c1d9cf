"""Names that inline C++ and CUDA declare, block by block, as far as the tokens of their source show them.

This is no parser: a word is declared where it follows a type, the commas of a declaration included. What a source does
not show to be declared has no block, and neither has a word of the same letters anywhere else in it: too few names
count as the source's own, rather than too many. A source that defines types, whose members have a scope of their own,
declares nothing here.
"""

from __future__ import annotations

import re

from cudal1_ray.source.normal_form import NATIVE_COMMENT

# The block of names declared outside functions, which other sources and Python may use.
FILE = -1

_TOKEN = re.compile(
    rf"(?P<comment>{NATIVE_COMMENT.pattern})|"
    r'\#\s*include\s*[<"][^>"\n]*[>"]|R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<!\d)'(?:\\.|[^'\\\n])+'|[A-Za-z_]\w*|\.?\d(?:[\w.]|'\d)*|([-+&|<>=:])\3|->|[^\s\w]",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_TYPE = re.compile(
    r"void|bool|char|signed|unsigned|size_t|auto|half2?|u?(?:short|int|long)[1-4]?|(?:float|double)[1-4]?|\w+_t|__\w+"
)
_NO_TYPES = frozenset(
    """and case const constexpr co_await co_return co_yield delete do else extern goto inline namespace new not
    operator or register return sizeof static throw volatile""".split()
)
_NO_NAMES = _NO_TYPES | frozenset(
    """alignas alignof auto bool break catch char class concept const_cast continue decltype default double
    dynamic_cast enum explicit false final float for friend if int long mutable noexcept nullptr override
    private protected public reinterpret_cast requires short signed static_assert static_cast struct switch template
    this true try typedef typename union unsigned using virtual void while""".split()
)
_AFTER_NAME = frozenset("= ; , ) ( [ { : >".split())


def read_native(source: str) -> tuple[list[str], dict[int, int]]:
    """Return the tokens of a source and, by position, the block of each that is a declared name.

    White space and comments are no tokens. A block is the place of the name's declaration, or `FILE`, which string
    literals with the name of something declared outside functions have, too.
    """
    tokens = [match[0] for match in _TOKEN.finditer(source) if not match["comment"]]
    if not {"struct", "union", "enum", "class"}.isdisjoint(tokens):
        return tokens, {}
    reader = _Blocks(tokens)
    names = {at: block for at, block in reader.names.items() if tokens[at] not in reader.unresolved}
    names = {at: block for at, block in names.items() if block != FILE or tokens[at] not in reader.qualified}
    public = {f'"{tokens[at]}"' for at, block in names.items() if block == FILE}
    names |= {at: FILE for at, token in enumerate(tokens) if token in public}
    return tokens, names if reader.is_complete else {}


class _Blocks:
    """Reads tokens from first to last.

    Attributes:
        names: the blocks of words that are declared where they stand, by position.
        unresolved: words that are not declared where they stand.
        qualified: words after `::`, which may be of another namespace.
        is_complete: whether all blocks are closed.
    """

    def __init__(self, tokens: list[str]) -> None:
        self.names: dict[int, int] = {}
        self.unresolved: set[str] = set()
        self.qualified: set[str] = set()
        self.is_complete = True
        self._tokens = ["", *tokens, ""]
        self._blocks: list[dict[str, int]] = [{}]
        self._header: dict[str, int] = {}  # declared in parentheses, for the block or the statement that follows
        self._outer: list[tuple[int, dict[str, int]]] = []  # parentheses and header around each open block
        self._depth = 0  # of parentheses and brackets within the block
        self._declaring: tuple[int, int] | None = None  # where the declaration is that a comma goes on with
        for at in range(1, len(tokens) + 1):
            self._read(at)
        self.is_complete &= not self._outer

    def _read(self, at: int) -> None:
        token = self._tokens[at]
        if token == "{":
            self._open(self._tokens[at - 1], self._tokens[at - 2])
        elif token == "}":
            self._close()
        elif token in ("(", "["):
            self._depth += 1
        elif token in (")", "]"):
            self._depth -= 1
        elif token == ";" and not self._depth:
            self._header = {}
        if token in (";", "<"):
            self._declaring = None
        elif _WORD.fullmatch(token) and token not in _NO_NAMES and self._tokens[at - 1] not in (".", "->"):
            if self._declares(at):
                self._declare(token, at)
            if self._tokens[at - 1] == "::":
                self.qualified.add(token)
            elif (block := self._block_of(token)) is not None:
                self.names[at - 1] = block
            elif self._tokens[at + 1] != "::":
                self.unresolved.add(token)

    def _open(self, before: str, second: str) -> None:
        if "namespace" in (before, second) or before == '"C"':
            inner, header = self._blocks[-1], self._header
        elif before in ("=", "(", ",", "{", "return"):  # of values
            inner, header = {}, self._header
        else:
            inner, header = self._header, {}
        self._blocks.append(inner)
        self._outer.append((self._depth, header))
        self._depth, self._header = 0, header

    def _close(self) -> None:
        if not self._outer:
            self.is_complete = False
            return
        self._blocks.pop()
        self._depth, self._header = self._outer.pop()

    def _declares(self, at: int) -> bool:
        token, after, last = self._tokens[at], self._tokens[at + 1], at - 1
        if self._tokens[last] == "define":
            return True
        if after not in _AFTER_NAME or token.startswith("__"):
            return False
        while self._tokens[last] in ("*", "&", "&&"):
            last -= 1
        before = self._tokens[last]
        if before == "," and self._declaring == (len(self._blocks), self._depth):
            return after == "=" or not self._depth
        if last < at - 1:
            typed = _TYPE.fullmatch(before) and self._block_of(before) is None
            return after != "(" and (bool(typed) or self._tokens[last - 1] in ("const", "::"))
        return bool(_WORD.fullmatch(before)) and before not in _NO_TYPES

    def _declare(self, name: str, at: int) -> None:
        self._declaring = len(self._blocks), self._depth
        if self._depth:
            self._header[name] = at
        else:
            self._blocks[-1].setdefault(name, FILE if self._blocks[-1] is self._blocks[0] else at)

    def _block_of(self, name: str) -> int | None:
        blocks = (self._header, *reversed(self._blocks))
        return next((block[name] for block in blocks if name in block), None)
