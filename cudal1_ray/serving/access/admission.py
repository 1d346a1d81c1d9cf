"""Admission of requests: by key, with a rate and a number in flight for each; none while the server drains."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from cudal1_ray.serving.access.keys import KeyFile, KnownKey
from cudal1_ray.serving.config import SecurityConfig
from cudal1_ray.wording import counted

# The key of every request where no keys are configured.
ANONYMOUS = KnownKey("anonymous", "")


@dataclass(frozen=True)
class Decision:
    """`lease` > 0: let in, and to be released; else `status` and `message` are the answer.

    retry_after_s: 0 where asking again is no use.
    """

    key_name: str = ""
    lease: int = 0
    status: int = 0
    message: str = ""
    retry_after_s: float = 0.0


class Admission:
    """The counts of all keys. Not for several threads; times are seconds of one monotonic clock, given by the caller.

    The rate is a token bucket: it fills by requests_per_minute / 60 a second, holds one minute's worth, and a request
    takes one. A lease whose holder died without releasing it lapses after the request timeout.
    """

    def __init__(self, config: SecurityConfig):
        self._config = config
        self._keys = KeyFile(config.keys_file) if config.keys_file else None
        self._buckets: dict[str, tuple[float, float]] = {}  # key -> tokens, and when they were counted
        self._leases: dict[str, dict[int, float]] = {}  # key -> lease -> when it lapses
        self._holder: dict[int, str] = {}
        self._numbers = itertools.count(1)
        self.draining = False

    def ask(self, digest: str | None, now: float) -> Decision:
        """Decide over one request; `digest` is that of the key it brought, None for a request without one.

        Raises:
            UserError: when the file of keys cannot be read.
        """
        if self.draining:
            return Decision(status=503, message="the server is stopping; try again shortly", retry_after_s=5.0)
        key = ANONYMOUS
        if self._keys is not None:
            holder = self._keys.find(digest) if digest else None
            if holder is None:
                return Decision(status=401, message="a valid API key is wanted: Authorization: Bearer <key>")
            key = holder
        rate = key.limits.requests_per_minute or self._config.requests_per_minute
        most = key.limits.max_concurrent or self._config.max_concurrent
        leases = self._current(key.name, now)
        if len(leases) >= most:
            message = f"this key has {counted(most, 'request')} under way, its limit; wait for one to end"
            return Decision(key.name, status=429, message=message, retry_after_s=1.0)
        tokens = self._tokens(key.name, rate, now)
        if tokens < 1.0:
            wait = (1.0 - tokens) * 60.0 / rate
            message = f"this key has used up its requests a minute, {rate:g}"
            return Decision(key.name, status=429, message=message, retry_after_s=wait)
        self._buckets[key.name] = (tokens - 1.0, now)
        lease = next(self._numbers)
        leases[lease] = now + self._config.request_timeout_s + self._config.body_timeout_s + 5.0
        self._holder[lease] = key.name
        return Decision(key.name, lease)

    def release(self, lease: int) -> None:
        """End a lease; one that has lapsed or was released before is no error."""
        holder = self._holder.pop(lease, None)
        if holder is not None:
            self._leases[holder].pop(lease, None)

    def under_way(self, now: float) -> int:
        """Return the number of requests let in and not yet ended."""
        return sum(len(self._current(name, now)) for name in list(self._leases))

    def _current(self, name: str, now: float) -> dict[int, float]:
        leases = self._leases.setdefault(name, {})
        for lease in [lease for lease, lapses in leases.items() if lapses <= now]:
            self.release(lease)
        return leases

    def _tokens(self, name: str, rate: float, now: float) -> float:
        full = max(1.0, rate)
        tokens, then = self._buckets.get(name, (full, now))
        return min(full, tokens + (now - then) * rate / 60.0)


def retry_header(seconds: float) -> str:
    """Return the value of `Retry-After`: whole seconds, at least 1."""
    return str(max(1, math.ceil(seconds)))
