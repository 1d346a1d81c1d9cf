"""What a forked process becomes: a contestant (candidate or reference), a problem's maker, a builder, a screener."""

from __future__ import annotations

from ..exchange.channel import Channel
from .builder import Builder
from .harness import OPERATIONS, Contestant, serve
from .maker import Maker
from .screener import Screener


def play(role: str, channel: Channel, scratch: str) -> None:
    """Never returns."""
    if role == "maker":
        serve(Maker(channel, scratch), ("attach", "forget", "open", "character", "trial", "fetch_trial"))
    elif role == "builder":
        serve(Builder(channel, scratch), ("build",))
    elif role == "screener":
        serve(Screener(channel, scratch), ("construction", "screen"))
    serve(Contestant(channel, scratch), OPERATIONS)
