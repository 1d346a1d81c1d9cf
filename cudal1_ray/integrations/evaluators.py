"""Where candidates are evaluated: on this machine's device, or by a server."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import httpx

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.evaluation.hardware import require_device
from cudal1_ray.problems import Problem

if TYPE_CHECKING:
    from cudal1_ray.evaluation.pool import EvaluatorPool

# Requests to a server at once; it queues them for its own evaluators.
_IN_FLIGHT = 16
# Seconds of one answer; the slowest candidates of KernelBench take some minutes.
_TIMEOUT_S = 600.0


class CandidateEvaluator(Protocol):
    """Evaluates many candidates."""

    def evaluate_all(self, pairs: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """Return the verdicts of (problem, candidate's text) pairs, in their order."""

    def close(self) -> None:
        """End what was started; calling it twice is fine."""


class LocalEvaluator:
    """Evaluates on this machine's device, several candidates side by side.

    Its processes start with the first candidate, so that an object of a trainer can be made before the trainer's
    workers are.

    Args:
        config: the evaluation; see `cudal1_ray.evaluation_config`.

    Raises:
        UserError (at the first candidate): for a device that this machine does not have.
    """

    def __init__(self, config: EvaluationConfig) -> None:
        self._config = config
        self._pool: EvaluatorPool | None = None

    def require_device(self) -> None:
        """Raise UserError where this machine does not have the device."""
        require_device(self._config.device)

    def evaluate_all(self, pairs: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        from cudal1_ray.evaluation.pool import EvaluatorPool

        if self._pool is None:
            self._pool = EvaluatorPool(self._config)
        work = [(str(number), problem, code) for number, (problem, code) in enumerate(pairs)]
        verdicts = dict(self._pool.evaluate_all(work))
        return [verdicts[identity] for identity, _, _ in work]

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class RemoteEvaluator:
    """Evaluates through the `/v1/evaluate` endpoint of `cudal1 serve`, which owns the device.

    Args:
        url: the server's, such as "http://gpu-host:8000".
        key: API key; empty where the server takes requests without one.

    Raises:
        UserError: for an address or a key that can be none; while evaluating, naming the server and its answer, when it
            cannot be reached or refuses.
    """

    def __init__(self, url: str, key: str = "") -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        try:
            self._client = httpx.Client(base_url=server_root(url), headers=headers, timeout=_TIMEOUT_S)
        except httpx.InvalidURL as error:
            raise UserError(f"{url}: no address of a server ({error}); give one such as http://gpu-host:8000") from None
        except UnicodeEncodeError:
            raise UserError("key: holds letters beyond ASCII; give the API key alone") from None

    def evaluate_all(self, pairs: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        with ThreadPoolExecutor(_IN_FLIGHT) as threads:
            return list(threads.map(self._evaluate, *zip(*pairs, strict=True))) if pairs else []

    def _evaluate(self, problem: Problem, code: str) -> Verdict:
        body = {"problem": problem.source, "candidate": code, "problem_id": problem.problem_id}
        try:
            response = self._client.post("/v1/evaluate", json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UserError(f"{self._client.base_url}: no answer ({error}); is `cudal1 serve` running there?") from None
        if response.status_code != 200:
            raise UserError(f"{self._client.base_url}: {response.status_code}: {_message(response)}")
        try:
            return Verdict.from_dict(response.json())
        except ValueError:
            raise UserError(f"{self._client.base_url}: answered, but not as `cudal1 serve` does") from None

    def close(self) -> None:
        self._client.close()


def server_root(url: str) -> str:
    """Return the address of a `cudal1 serve` without the `/v1` that OpenAI's clients want at its end.

    Raises:
        UserError: for an address that is none of HTTP.
    """
    if not url.startswith(("http://", "https://")):
        raise UserError(f"{url}: no address of a server; give one such as http://gpu-host:8000")
    return url.rstrip("/").removesuffix("/v1")


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
