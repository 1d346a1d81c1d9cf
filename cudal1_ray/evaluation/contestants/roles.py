"""What a forked process becomes: a contestant (candidate or reference), the maker of a problem, or a builder."""

from __future__ import annotations

from ..exchange.channel import Channel
from .builder import Builder
from .harness import OPERATIONS, Contestant, serve
from .maker import Maker


def play(role: str, channel: Channel, scratch: str) -> None:
    """Never returns."""
    if role == "maker":
        serve(Maker(channel, scratch), ("attach", "forget", "open", "character", "trial", "fetch_trial"))
    elif role == "builder":
        serve(Builder(channel, scratch), ("build",))
    serve(Contestant(channel, scratch), OPERATIONS)
