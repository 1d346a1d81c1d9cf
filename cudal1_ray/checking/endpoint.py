"""A judge behind any OpenAI-compatible endpoint, asked over plain HTTP.

Nothing but the standard library: one POST to `<base_url>/chat/completions` is all that is needed.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from cudal1_ray.checking.config import JudgeEndpointConfig
from cudal1_ray.checking.opinions import JudgeReply
from cudal1_ray.errors import UserError

_MAX_BYTES = 4 << 20
_RETRIED_STATUS = (408, 429, 500, 502, 503, 504)


def read_api_key(variable: str | None) -> str:
    """Return the key in the named environment variable, the only one this package reads; empty where none is named.

    Raises UserError when it is named and not set.
    """
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(
            f"rewards.checker.endpoint.api_key_variable is {variable!r}: this environment variable is not set; "
            "set it, or give null where the endpoint needs no key"
        )
    return key


class JudgeClient:
    """Asks an OpenAI-compatible server. Raises UserError (constructor) for a configuration that cannot work."""

    def __init__(self, config: JudgeEndpointConfig, temperature: float = 0.0, max_tokens: int = 1024) -> None:
        config.validate()
        self.config, self._temperature, self._max_tokens = config, temperature, max_tokens
        self._key = read_api_key(config.api_key_variable)
        self._url = f"{config.base_url.rstrip('/')}/chat/completions"
        self._opener = urllib.request.build_opener(_NoRedirects)

    def ask(self, prompts: Sequence[str]) -> list[JudgeReply]:
        """Return one reply per prompt, in order; raise nothing, whatever the server does."""
        if not prompts:
            return []
        with ThreadPoolExecutor(min(self.config.concurrency, len(prompts))) as pool:
            return list(pool.map(self._ask_one, prompts))

    def _ask_one(self, prompt: str) -> JudgeReply:
        deadline, error = time.monotonic() + self.config.timeout_s, ""
        for attempt in range(self.config.attempts):
            if attempt:
                pause = min(float(attempt), deadline - time.monotonic())
                if pause <= 0.0:
                    break
                time.sleep(pause)
            try:
                return JudgeReply(text=_answer_text(self._post(prompt, deadline)))
            except urllib.error.HTTPError as failure:
                with failure:
                    error = f"HTTP {failure.code}: {failure.read(400).decode(errors='replace')}"
                if failure.code not in _RETRIED_STATUS:
                    break
            except (OSError, _DeadlinePassed) as failure:  # refused, reset, timed out; URLError is an OSError
                error = f"{type(failure).__name__.strip('_')}: {getattr(failure, 'reason', failure)}"
            except _NoAnswer as failure:
                error = str(failure)
                break
            except Exception as failure:  # whatever else a broken server makes http.client raise
                error = f"{type(failure).__name__}: {failure}"
        return JudgeReply(error=f"no answer from {self._url}: {error or 'timed out'}")

    def _post(self, prompt: str, deadline: float) -> bytes:
        body = {
            "model": self.config.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": self._temperature,
            "max_tokens": self._max_tokens,
        }
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)
        with self._opener.open(request, timeout=_seconds_left(deadline)) as response:
            received = b""
            # A socket's timeout is for one read: a server that sends a byte now and then would never meet it.
            while chunk := response.read1(1 << 16):
                received += chunk
                _seconds_left(deadline)
                if len(received) > _MAX_BYTES:
                    raise _NoAnswer(f"more than {_MAX_BYTES >> 20} MiB of answer")
            return received


class _DeadlinePassed(Exception):
    pass


class _NoAnswer(Exception):
    pass


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A key goes to the server it was meant for, and to no other that this one names."""

    def redirect_request(self, *_):
        return None


def _seconds_left(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0.0:
        raise _DeadlinePassed("timed out")
    return seconds


def _answer_text(body: bytes) -> str:
    try:
        text = json.loads(body)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise _NoAnswer(f"not an OpenAI completion: {body[:200].decode(errors='replace')}") from None
    if not isinstance(text, str) or not text.strip():
        raise _NoAnswer("an empty answer")
    return text
