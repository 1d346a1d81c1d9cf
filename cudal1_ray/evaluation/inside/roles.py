"""What a forked process becomes: a contestant (candidate or reference), a problem's maker, a builder, a screener."""

from __future__ import annotations

from ..exchange.channel import Channel
from .builder import Builder
from .harness import Contestant, serve
from .maker import Maker
from .screener import Screener

_KINDS = {"maker": Maker, "builder": Builder, "screener": Screener}


def play(role: str, channel: Channel, scratch: str) -> None:
    """Answer requests as a process of that role does; never returns."""
    serve(_KINDS.get(role, Contestant)(channel, scratch))
