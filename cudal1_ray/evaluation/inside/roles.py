"""Roles of a forked process: a contestant (candidate or reference), a problem's maker, a builder, a screener."""

from __future__ import annotations

from cudal1_ray.evaluation.exchange.channel import Channel
from cudal1_ray.evaluation.inside.builder import Builder
from cudal1_ray.evaluation.inside.harness import Contestant, serve
from cudal1_ray.evaluation.inside.maker import Maker
from cudal1_ray.evaluation.inside.screener import Screener

_KINDS = {"maker": Maker, "builder": Builder, "screener": Screener}


def play(role: str, channel: Channel, scratch: str) -> None:
    """Answer requests in that role; never return."""
    serve(_KINDS.get(role, Contestant)(channel, scratch))
