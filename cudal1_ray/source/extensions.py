"""How a candidate builds its inline extensions, as far as its text states it."""

from __future__ import annotations

import ast
import re

from cudal1_ray.source.parsing import parse

# What decides whether a precompiled header may be used, and cannot make the compiler do anything else.
_FLAG = re.compile(r"-O[0-3s]?|-Ofast|-g|-w|-Wall|-march=native|-mtune=native|-mavx\w*|-mfma|-fopenmp|-f[a-z-]*math")


def flags_of(code: str) -> tuple[str, ...] | None:
    """Return the C++ flags of a candidate's first `load_inline` with torch's headers.

    It is None where there is none, and where the flags are not written out or could do more than choose a header.
    """
    calls = (node for node in ast.walk(parse(code)) if isinstance(node, ast.Call))
    for call in calls:
        if not ast.unparse(call.func).endswith("load_inline"):
            continue
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        if "no_implicit_headers" in named and "torch/extension.h" not in code:
            continue
        try:
            flags = tuple(ast.literal_eval(named.get("extra_cflags", ast.List([]))) or ())
        except (ValueError, TypeError):
            return None
        return flags if all(isinstance(flag, str) and _FLAG.fullmatch(flag) for flag in flags) else None
    return None
