"""A model behind an OpenAI-compatible server: text in, text out. Needs neither a GPU nor the model's tokenizer here.

Its completions have no token ids and no log-probabilities, so it can be sampled but not trained.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass
from typing import Any

import httpx

from cudal1_ray.errors import UserError
from cudal1_ray.settings import bounded

# Statuses after which the same request may succeed: timeouts, rate limits, overload, restarts.
_TRANSIENT = (408, 409, 425, 429, 500, 502, 503, 504, 529)
# Most bytes of one answer.
_MOST_BYTES = 4 << 20
# Longest pause between two attempts, seconds; servers that name a longer one are asked sooner.
_LONGEST_PAUSE_S = 60.0
# Fields that some servers refuse (reasoning models, other vendors): left out, or renamed, after such a refusal.
_REPLACEMENTS = {"max_tokens": "max_completion_tokens", "seed": "", "temperature": ""}


@dataclass
class PolicyEndpointConfig:
    """An OpenAI-compatible server as the policy (`policy=endpoint`)."""

    # Where it answers, up to and with its version: http://localhost:8000/v1. Read with policy=endpoint alone.
    url: str = ""
    # As the server names the model.
    model: str = ""
    # Name of the environment variable that holds the API key; empty: none is sent.
    key_env: str = ""
    # Seconds that one attempt at one answer may take.
    timeout_s: float = bounded(600.0, above=0)
    # Attempts at one answer, while the server is overloaded, out of reach or answers with an error of its own.
    attempts: int = bounded(5, least=1)
    # Requests under way at once.
    concurrency: int = bounded(8, least=1)

    def require_server(self, setting: str = "policy.url") -> None:
        """Raise UserError naming what is wrong with the server's address, or the model's missing name.

        Args:
            setting: the one that gave the address, for messages.
        """
        if not _is_address(self.url):
            raise UserError(f"{setting}={self.url!r}: give the server's address, such as http://localhost:8000/v1")
        if not self.model:
            section = setting.rpartition(".")[0]
            raise UserError(f"{section}.model is empty: give the model's name as {self.url} knows it")

    def read_key(self, setting: str = "policy.key_env") -> str:
        """Return the key in the environment variable `key_env`; empty where none is named.

        Args:
            setting: the one that named the variable, for messages.

        Raises:
            UserError: where the variable is not set, or holds what no header can.
        """
        key = os.environ.get(self.key_env, "").strip() if self.key_env else ""
        if self.key_env and not key:
            raise UserError(f"{setting}={self.key_env}: this environment variable is not set")
        if not (key.isascii() and key.isprintable()):
            raise UserError(f"{setting}={self.key_env}: what this environment variable holds is no key")
        return key


@dataclass(frozen=True)
class WrittenText:
    """One completion: its text, its tokens as the server counts them, "stop" or "length"."""

    text: str
    tokens: int
    finish_reason: str


class EndpointClient:
    """Asks an OpenAI-compatible server for completions; call it from one event loop, then `aclose`."""

    def __init__(
        self, config: PolicyEndpointConfig, url_setting: str = "policy.url", key_setting: str = "policy.key_env"
    ) -> None:
        """Raise UserError naming the field that cannot work.

        Args:
            url_setting, key_setting: those that gave `url` and `key_env`, for messages.
        """
        self._config, self._url_setting = config, url_setting
        config.require_server(url_setting)
        self._key = config.read_key(key_setting)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        # A key goes to the server it was meant for, and to no other that this one names.
        self._client = httpx.AsyncClient(headers=headers, timeout=config.timeout_s, follow_redirects=False)
        self._slots = asyncio.Semaphore(config.concurrency)
        self._names = {name: name for name in _REPLACEMENTS}

    async def complete(
        self,
        prompt: str,
        *,
        temperature: float,
        max_tokens: int,
        seed: int | None = None,
        limit_s: float | None = None,
    ) -> WrittenText:
        """Return one answer to one user message.

        Args:
            seed: None sends none.
            limit_s: seconds of all attempts together, from the beginning of the first; None: no limit.

        Raises:
            UserError: when the server refuses the request, or `attempts` attempts have failed; without the key.
        """
        failure, pause = "", 0.0
        try:
            async with self._slots, asyncio.timeout(limit_s):
                for attempt in range(self._config.attempts):
                    await asyncio.sleep(pause)
                    pause = min(2.0**attempt * (1.0 + random.random()), _LONGEST_PAUSE_S)
                    try:
                        # httpx limits single reads: a server that sends a byte now and then would never meet that.
                        async with asyncio.timeout(self._config.timeout_s):
                            response = await self._post(prompt, temperature, max_tokens, seed)
                    except (httpx.HTTPError, TimeoutError) as error:  # refused, reset, timed out
                        failure = f"{type(error).__name__} {error}".strip()
                        continue
                    if response.status_code == 200:
                        return self._text_of(response)
                    failure = f"HTTP {response.status_code}: {' '.join(response.text.split())[:300]}"
                    if response.status_code not in _TRANSIENT:
                        break
                    pause = min(_seconds(response.headers.get("retry-after", "")) or pause, _LONGEST_PAUSE_S)
        except TimeoutError:
            failure = f"timed out after {failure}" if failure else "timed out"
        raise self._error(failure)

    async def _post(self, prompt: str, temperature: float, max_tokens: int, seed: int | None) -> httpx.Response:
        """Return the response to a request without the fields that the server does not take."""
        values = {"temperature": temperature, "max_tokens": max_tokens} | ({} if seed is None else {"seed": seed})
        while True:
            fields = {self._names[name]: value for name, value in values.items() if self._names[name]}
            body = {"model": self._config.model, "messages": [{"role": "user", "content": prompt}], **fields}
            response = await self._send(body)
            refusal = response.text if response.status_code in (400, 422) else ""
            refused = next((name for name in fields if name in refusal), "")
            if refused not in self._names:
                return response
            if self._names[refused] == refused:  # another request may have learnt it meanwhile
                self._names[refused] = _REPLACEMENTS[refused]

    async def _send(self, body: dict[str, Any]) -> httpx.Response:
        """Return the response to a request, read to its end; raise UserError where it is too long."""
        url = f"{self._config.url.rstrip('/')}/chat/completions"
        async with self._client.stream("POST", url, json=body) as response:
            content = bytearray()
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > _MOST_BYTES:
                    raise self._error(f"more than {_MOST_BYTES >> 20} MiB of answer")
        headers = {"retry-after": response.headers.get("retry-after", "")}
        return httpx.Response(response.status_code, headers=headers, content=bytes(content))

    def _text_of(self, response: httpx.Response) -> WrittenText:
        try:
            answer: dict[str, Any] = response.json()
            choice = answer["choices"][0]
            text = choice["message"]["content"] or ""
            tokens = int((answer.get("usage") or {}).get("completion_tokens") or rough_tokens(text))
            # JSON can hold half of a surrogate pair, files and requests cannot: it becomes "?".
            text = str(text).encode("utf-8", "replace").decode()
            return WrittenText(text, tokens, str(choice.get("finish_reason") or "stop"))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            raise self._error(f"not an OpenAI completion: {response.text[:200]}") from None

    def _error(self, failure: str) -> UserError:
        if self._key:
            failure = failure.replace(self._key, "***")
        return UserError(f"{self._url_setting}={self._config.url}: no answer from {self._config.model}: {failure}")

    async def aclose(self) -> None:
        await self._client.aclose()


def rough_tokens(text: str) -> int:
    """Return an upper estimate of a text's tokens without a tokenizer: code has 3 to 4 characters a token."""
    return -(-len(text) // 3)


def _is_address(url: str) -> bool:
    """Return whether a URL names an HTTP server: a host that can be looked up and a port there is."""
    try:
        parsed = httpx.URL(url)
        parsed.host.encode("idna")
    except (httpx.InvalidURL, UnicodeError):
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host) and (parsed.port or 0) <= 65535


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:  # a date: the usual pause is as good
        return 0.0
