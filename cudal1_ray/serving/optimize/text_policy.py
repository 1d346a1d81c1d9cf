"""Policies that write texts: an engine here or a server elsewhere, for `cudal1 optimize` and `cudal1 collect`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cudal1_ray.errors import UserError
from cudal1_ray.learning.tokenizer import encode_prompt, thought_prefix
from cudal1_ray.rollout import GenerationRequest, RolloutConfig, RolloutEngine, SamplingParameters, build_engine
from cudal1_ray.rollout.endpoint import EndpointClient, PolicyEndpointConfig, WrittenText, rough_tokens
from cudal1_ray.serving.served_policy import check_files

SeededPrompt = tuple[str, int]  # a prompt, and the seed of its completion


class TextPolicy(Protocol):
    """Writes completions of text prompts."""

    holds_device: bool  # it computes here: nothing may be measured while it writes

    def count_tokens(self, text: str) -> int: ...

    async def write(self, prompts: Sequence[SeededPrompt], temperature: float) -> list[WrittenText | None]:
        """Return a completion for each prompt, in order; None where the prompt leaves no room for one.

        Equal prompts with equal seeds get different completions.
        """
        ...

    async def close(self) -> None: ...


class EndpointPolicy:
    """A policy behind an OpenAI-compatible server. Raises UserError (constructor) naming the field that cannot work."""

    holds_device = False

    def __init__(self, config: PolicyEndpointConfig, max_completion_tokens: int) -> None:
        self._endpoint, self._max_tokens = EndpointClient(config), max_completion_tokens

    def count_tokens(self, text: str) -> int:
        return rough_tokens(text)

    async def write(self, prompts: Sequence[SeededPrompt], temperature: float) -> list[WrittenText | None]:
        common = {"temperature": temperature, "max_tokens": self._max_tokens}
        tasks = [
            asyncio.create_task(self._endpoint.complete(prompt, seed=seed + number, **common))
            for number, (prompt, seed) in enumerate(prompts)
        ]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:  # the first that fails ends the others
                task.cancel()

    async def close(self) -> None:
        await self._endpoint.aclose()


class LocalPolicy:
    """A model folder in an engine of this process, asked exactly as in training.

    Raises (constructor): UserError when engine, model or tokenizer cannot be had.
    """

    def __init__(
        self,
        rollout: RolloutConfig,
        path: str,
        chat: bool,
        max_completion_tokens: int,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        from cudal1_ray.learning.policy import load_tokenizer

        if path.endswith(".gguf"):
            raise UserError(f"policy.path={path}: unpack it first, `cudal1 train` does: runs/<name>/policy")
        self._tokenizer, self._rollout = load_tokenizer(path), rollout
        self._chat, self._template = chat, template
        self._max_tokens = max_completion_tokens
        self._thought_prefix = thought_prefix(self._tokenizer, chat, template)
        check_files(Path(path))
        try:
            self._engine: RolloutEngine = build_engine(rollout, path)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"policy.path={path}: the engine cannot take it ({reason})") from None
        self._turn = asyncio.Lock()  # one generation at a time: the engine batches what it is given at once
        self.holds_device = rollout.device != "cpu"

    def count_tokens(self, text: str) -> int:
        return len(self._encode(text))

    async def write(self, prompts: Sequence[SeededPrompt], temperature: float) -> list[WrittenText | None]:
        async with self._turn:
            return await asyncio.to_thread(self._write, prompts, temperature)

    def _write(self, prompts: Sequence[SeededPrompt], temperature: float) -> list[WrittenText | None]:
        texts: list[WrittenText | None] = [None] * len(prompts)
        token_ids = [self._encode(prompt) for prompt, _ in prompts]
        room = [min(self._max_tokens, self._rollout.max_model_len - 1 - len(tokens)) for tokens in token_ids]
        # One call for each seed and length: an engine takes them for all of a call's requests together.
        calls: dict[tuple[int, int], list[int]] = {}
        for number, (_, seed) in enumerate(prompts):
            if room[number] >= 1:
                calls.setdefault((seed, room[number]), []).append(number)
        for (seed, length), numbers in calls.items():
            sampling = SamplingParameters(temperature=temperature, max_tokens=length, seed=seed)
            requests = [GenerationRequest(str(number), token_ids[number]) for number in numbers]
            for completion in self._engine.generate(requests, sampling):
                text = self._thought_prefix + completion.text
                length, reason = len(completion.token_ids), completion.finish_reason
                texts[int(completion.request_id)] = WrittenText(text, length, reason)
        return texts

    def _encode(self, text: str) -> tuple[int, ...]:
        return encode_prompt(self._tokenizer, text, self._chat, self._template)

    async def close(self) -> None:
        self._engine.close()
