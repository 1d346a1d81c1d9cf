"""What tests of weight updates share: another checkpoint of a served policy, and streams that run over a switch."""

from __future__ import annotations

import copy
import json
import shutil
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import torch

from tests.rollout.conftest import TinyModel
from tests.serving.conftest import Server, bearer

LENGTH = 60  # tokens of a stream


def by_transformers(model: TinyModel, prompt: str, count: int) -> tuple[int, ...]:
    """Return greedy tokens by plain transformers."""
    from transformers import AutoTokenizer

    ids = tuple(AutoTokenizer.from_pretrained(model.path)(prompt)["input_ids"])
    return model.greedy(ids, count, end=-1)


@dataclass(frozen=True)
class Stream:
    """One stream that ended: which version its header named, the tokens it brought, and how it ended."""

    version: int
    token_ids: tuple[int, ...]
    reason: str


def changed(model: TinyModel, seed: int) -> TinyModel:
    """Return the same model with other weights: noise of the size of the weights themselves."""
    other = copy.deepcopy(model.model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in other.parameters():
            tensor += tensor.std().nan_to_num(0.1) * torch.randn(tensor.shape, generator=generator)
    return TinyModel(model.path, other)


def write_checkpoint(run: Path, name: str, model: TinyModel) -> Path:
    """Write a checkpoint as a run writes one: complete or absent."""
    partial = run / "checkpoints" / f".{name}.partial"
    model.model.save_pretrained(partial / "policy")
    for file in Path(model.path).glob("tokenizer*"):
        shutil.copy(file, partial / "policy")
    final = run / "checkpoints" / name
    partial.rename(final)
    return final


def stream(server: Server, prompt: str, length: int = LENGTH) -> Stream:
    """Read one greedy stream. Raises when it fails or breaks off."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": length, "temperature": 0, "ignore_eos": True}
    body |= {"stream": True, "return_token_ids": True}
    token_ids: list[int] = []
    reason, last = "", ""
    with httpx.stream(
        "POST", f"{server.url}/v1/completions", json=body, headers=bearer(server.key), timeout=120
    ) as answer:
        answer.raise_for_status()
        version = int(answer.headers["x-policy-version"])
        for line in answer.iter_lines():
            if not line.startswith("data: "):
                continue
            last = line[6:]
            if last == "[DONE]":
                continue
            for choice in json.loads(last)["choices"]:
                token_ids += choice["token_ids"]
                reason = choice["finish_reason"] or reason
    assert last == "[DONE]", f"the stream broke off after {len(token_ids)} tokens"
    return Stream(version, tuple(token_ids), reason)


class Streamers:
    """Clients that stream without a pause, from `with` to its end; `streams` has what each of them brought home."""

    def __init__(self, server: Server, prompt: str, count: int = 6):
        self._server, self._prompt, self._count = server, prompt, count
        self._stop = threading.Event()
        self.streams: list[list[Stream]] = [[] for _ in range(count)]

    def __enter__(self) -> Streamers:
        self._threads = ThreadPoolExecutor(self._count)
        self._running: list[Future] = [self._threads.submit(self._client, ended) for ended in self.streams]
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._threads.shutdown()
        for client in self._running:
            client.result()  # raises what a stream raised

    def wait_for_each(self, more: int) -> None:
        """Wait until every client has ended `more` further streams."""
        targets = [len(ended) + more for ended in self.streams]
        while any(len(ended) < count for ended, count in zip(self.streams, targets, strict=True)):
            for client in self._running:
                if client.done():
                    client.result()
            time.sleep(0.02)

    def _client(self, ended: list[Stream]) -> None:
        while not self._stop.is_set():
            ended.append(stream(self._server, self._prompt))
