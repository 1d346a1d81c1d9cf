"""A judge behind any OpenAI-compatible endpoint: the client of policies, for questions that are asked all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from cudal1_ray.checking.config import JudgeEndpointConfig
from cudal1_ray.checking.opinions import JudgeReply
from cudal1_ray.errors import UserError, first_line
from cudal1_ray.rollout.endpoint import EndpointClient, PolicyEndpointConfig

_URL, _KEY = "rewards.checker.endpoint.base_url", "rewards.checker.endpoint.api_key_variable"


class JudgeClient:
    """Asks an OpenAI-compatible server. Raises UserError (constructor) for a configuration that cannot work."""

    def __init__(self, config: JudgeEndpointConfig, temperature: float = 0.0, max_tokens: int = 1024) -> None:
        config.validate()
        self._temperature, self._max_tokens = temperature, max_tokens
        self._server = PolicyEndpointConfig(
            config.base_url, config.model, config.api_key_variable or "", config.timeout_s, config.attempts,
            config.concurrency,
        )  # fmt: skip
        self._server.require_server(_URL)
        self._server.read_key(_KEY)

    def ask(self, prompts: Sequence[str]) -> list[JudgeReply]:
        """Return one reply per prompt, in order; raise nothing, whatever the server does."""
        if not prompts:
            return []
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._ask(prompts))
        with ThreadPoolExecutor(1) as thread:  # a notebook's cell runs within a loop, and a thread has one loop
            return thread.submit(asyncio.run, self._ask(prompts)).result()

    async def _ask(self, prompts: Sequence[str]) -> list[JudgeReply]:
        client = EndpointClient(self._server, _URL, _KEY)
        try:
            return await asyncio.gather(*(self._reply(client, prompt) for prompt in prompts))
        finally:
            await client.aclose()

    async def _reply(self, client: EndpointClient, prompt: str) -> JudgeReply:
        error, limit_s = "an empty answer", self._server.timeout_s
        try:
            answer = await client.complete(
                prompt, temperature=self._temperature, max_tokens=self._max_tokens, limit_s=limit_s
            )
            if answer.text.strip():
                return JudgeReply(text=answer.text)
        except UserError as failure:  # names the server
            return JudgeReply(error=str(failure))
        except Exception as failure:  # whatever else a broken server makes httpx raise
            error = first_line(failure)
        return JudgeReply(error=f"no answer from {self._server.url}: {error}")
