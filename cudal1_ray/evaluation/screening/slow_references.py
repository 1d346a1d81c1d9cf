"""Time for candidates of problems whose own construction takes long: a multiple of what the reference needs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.exchange.messages import Construction, Screen
from cudal1_ray.evaluation.host.handles import ForkServer, Misbehaviour
from cudal1_ray.evaluation.screening.hints import longest_alone_s
from cudal1_ray.evaluation.verdict import candidate_hash

Result = TypeVar("Result")
# Share of `load_timeout_s` for which a reference is waited for; candidates of a slower one have all of that.
_ENOUGH = 0.1


class SlowReferences:
    """How long references take to be imported and constructed, as far as a candidate was ended for taking longer."""

    def __init__(self, config: EvaluationConfig) -> None:
        self._config = config
        self._seconds: dict[str, float] = {}  # by the hash of the problem's text

    def with_time(
        self, server: ForkServer, problem_source: str, code: str, attempt: Callable[[float], Result]
    ) -> Result:
        """Return what `attempt` does within `longest_alone_s`. After a timeout the reference is constructed too, and
        the candidate once more, if that allows it longer.

        Raises:
            Misbehaviour: as `attempt` does.
        """
        limits, problem = self._config.limits, candidate_hash(problem_source)
        alone_s = longest_alone_s(code, limits, self._seconds.get(problem, 0.0))
        try:
            return attempt(alone_s)
        except Misbehaviour as error:
            if error.reason != "timeout" or problem in self._seconds:
                raise
            self._seconds[problem] = self._construction_s(server, problem_source)
            longer_s = longest_alone_s(code, limits, self._seconds[problem])
            if longer_s <= alone_s:
                raise
        return attempt(longer_s)

    def _construction_s(self, server: ForkServer, source: str) -> float:
        """Return the seconds of the reference's import and construction; infinite where it takes too long."""
        screener, doing = server.spawn(role="screener", cores=[]), "the reference's construction"
        limit_s, start = _ENOUGH * self._config.limits.load_timeout_s, time.monotonic()
        try:
            screener.ask(Construction(source, self._config.threads), limit_s, doing=doing)
            screener.ask(Screen(f"{source}\nModelNew = Model\n", self._config.device, [], {}), limit_s, doing=doing)
        except Misbehaviour as error:
            return math.inf if error.reason == "timeout" else 0.0
        finally:
            screener.close()
        return time.monotonic() - start
