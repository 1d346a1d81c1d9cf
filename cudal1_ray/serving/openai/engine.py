"""vLLM's asynchronous engine, and vLLM's own handlers of OpenAI's protocol on top of it.

Of vLLM's many routes only those that are promised are mounted: what is not there need not be defended. Written to
what vLLM 0.26 (GPU) and 0.27 (CPU) have in common.
"""

from __future__ import annotations

import asyncio
import json
import time
import traceback
import uuid
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from cudal1_ray.rollout.decoding import end_token_ids
from cudal1_ray.rollout.vllm_arguments import engine_arguments
from cudal1_ray.rollout.vllm_environment import applied, vllm_environment
from cudal1_ray.serving.access.middleware import error_body, log_fault
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.serving.openai.body_checks import body_fault
from cudal1_ray.serving.weights.request_barrier import RequestBarrier
from cudal1_ray.serving.weights.versions import Weights
from cudal1_ray.uncollected import uncollected

# For policies without a chat template of their own: the messages, a line break between two, and nothing after the last.
# A single message is then the prompt that the policy was trained on.
PLAIN_CHAT = (
    "{{ bos_token or '' }}{% for message in messages %}{{ message['content'] }}"
    "{% if not loop.last and not message['content'].endswith('\\n') %}{{ '\\n' }}{% endif %}{% endfor %}"
)


@dataclass(frozen=True)
class GeneratedText:
    """One completion: its text without special tokens, and how many tokens it took."""

    text: str
    tokens: int


class OpenAIEngine:
    """Owns the engine. `start` before anything else; one event loop for all calls.

    Attributes:
        barrier: what generating requests pass on their way in; it knows which weights are served.
    """

    def __init__(self, config: ServingConfig, weights: Weights):
        self._config = config
        self.barrier = RequestBarrier(weights)
        self._client: Any = None
        self._updater: Any = None
        self._arguments: Namespace | None = None

    async def start(self) -> None:
        """Start vLLM, whose core is a process of its own and a child of this one."""
        threads = {"OMP_NUM_THREADS": str(self._config.replicas.threads)}
        with uncollected(), applied(vllm_environment(self._config.rollout) | threads):
            from vllm.config import StructuredOutputsConfig
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            arguments = engine_arguments(self._config.rollout, self.barrier.weights.folder)
            # The name in vLLM's errors and metrics, which is the folder's path where there is none.
            arguments["served_model_name"] = self._config.policy.name
            # Left to vLLM, each structure is checked by a backend that takes it, and built by that of the first one.
            arguments["structured_outputs_config"] = StructuredOutputsConfig(backend="guidance")
            self._client = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments, enable_log_requests=False))
            self._arguments = self._frontend_arguments()
        self._tokenizer = self._client.get_tokenizer()
        self._end_ids = list(end_token_ids(self.barrier.weights.folder, self._tokenizer))
        self._updater = self._make_updater(asyncio.get_running_loop())

    def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            client.shutdown()

    async def check(self, timeout_s: float) -> None:
        """Ask vLLM's core for an answer. Raises what vLLM raises once it has died; RuntimeError when it is silent.

        A core that loads weights is busy, and well. Between two steps it answers, and a long prompt is a long step.
        """
        if self._client is None:
            raise RuntimeError("the engine is not running")
        await self._client.check_health()
        if self.barrier.broken:
            raise RuntimeError(self.barrier.broken)
        if self.barrier.updating:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._client.is_paused()
        except TimeoutError:
            if not self.barrier.updating:  # it has begun since
                raise RuntimeError(f"the engine has not answered for {timeout_s:g} s") from None

    async def change_weights(self, weights: Weights) -> float:
        """Put other weights of the same model into the running engine; return the seconds it took, waiting included.

        Requests under way end first, within `weights.finish_timeout_s`; those that come meanwhile wait.
        No request fails. After a failed update none is let in any more, and `check` raises.

        Raises:
            WeightUpdateError: naming the phase. The folder should have been checked before it gets here.
        """
        started = time.monotonic()
        await self.barrier.change(weights, self._load, self._config.weights.finish_timeout_s)
        return time.monotonic() - started

    async def _load(self, weights: Weights) -> None:
        """Load weights. Requests that are still running keep their tokens, which the new weights read again."""
        from cudal1_ray.rollout.transports import offer_of_folder

        offer = offer_of_folder(weights.folder)
        await self._client.pause_generation(mode="keep", clear_cache=False)
        await asyncio.to_thread(self._updater.update, offer, {})
        await self._client.reset_prefix_cache(reset_running_requests=True)
        await self._client.resume_generation()

    def _make_updater(self, loop: asyncio.AbstractEventLoop) -> Any:
        """Return the phases of an update, which wait in a thread, over vLLM's asynchronous client, which lives on the
        loop.
        """
        from cudal1_ray.rollout.weight_transfer import WeightUpdater

        def rpc(method: str, arguments: dict[str, Any]) -> Any:
            call = self._client.collective_rpc(method, kwargs=arguments)
            return asyncio.run_coroutine_threadsafe(call, loop).result()

        return WeightUpdater(rpc, self._config.rollout.weight_sync)

    async def mount(self, app: FastAPI) -> None:
        """Add `/v1/models`, `/v1/models/NAME`, `/v1/completions` and `/v1/chat/completions`, with vLLM's answers to bad
        requests.
        """
        from vllm.entrypoints.openai.api_server import init_app_state
        from vllm.entrypoints.openai.chat_completion.api_router import create_chat_completion
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.entrypoints.openai.completion.api_router import create_completion
        from vllm.entrypoints.openai.completion.protocol import CompletionRequest
        from vllm.entrypoints.openai.models.api_router import show_available_models
        from vllm.entrypoints.serve.utils.api_utils import validate_json_request
        from vllm.entrypoints.serve.utils.server_utils import (
            exception_handler,
            http_exception_handler,
            validation_exception_handler,
        )

        with applied(vllm_environment(self._config.rollout)):
            await init_app_state(self._client, app.state, self._arguments, await self._client.get_supported_tasks())
        app.state.args = self._arguments
        is_json = [Depends(validate_json_request)]

        async def show_models(request: Request) -> Response:
            """Return vLLM's answer to `/v1/models`, with the version of the weights."""
            listed = json.loads((await show_available_models(request)).body)
            weights = self.barrier.weights
            for model in listed["data"]:
                model |= {"policy_version": weights.version, "weights": weights.source}
            return JSONResponse(listed)

        async def show_model(request: Request, name: str) -> Response:
            """Return the entry of `/v1/models` with this name, which vLLM has no route for."""
            listed = json.loads((await show_models(request)).body)
            for model in listed["data"]:
                if model["id"] == name:
                    return JSONResponse(model)
            raise HTTPException(404, f"the model {name!r:.200} is not served here; /v1/models lists those that are")

        async def complete(request: CompletionRequest, raw_request: Request) -> Response:
            return await self._refused(request) or await create_completion(request, raw_request)

        async def chat(request: ChatCompletionRequest, raw_request: Request) -> Response:
            return await self._refused(request) or await create_chat_completion(request, raw_request)

        # These classes are imported here: FastAPI cannot find them by the names that the annotations are kept as.
        complete.__annotations__["request"], chat.__annotations__["request"] = CompletionRequest, ChatCompletionRequest
        app.add_api_route("/v1/models", show_models, methods=["GET"])
        app.add_api_route("/v1/models/{name:path}", show_model, methods=["GET"])
        app.add_api_route("/v1/completions", complete, methods=["POST"], dependencies=is_json)
        app.add_api_route("/v1/chat/completions", chat, methods=["POST"], dependencies=is_json)
        app.exception_handler(HTTPException)(http_exception_handler)
        app.exception_handler(RequestValidationError)(validation_exception_handler)
        for error in (vllm_error(), ValueError, TypeError, OverflowError, NotImplementedError):
            app.exception_handler(error)(exception_handler)
        app.exception_handler(Exception)(unexpected)

    async def _refused(self, request: Any) -> Response | None:
        """Return the answer to a body that asks for what cannot be done; None where it can."""
        fault = await body_fault(request, self._client.vllm_config, self._tokenizer)
        return Response(error_body(400, fault), status_code=400, media_type="application/json") if fault else None

    async def write(self, prompt: Sequence[int], n: int, temperature: float, seed: int) -> list[GeneratedText]:
        """Return `n` completions of one tokenised prompt, each with a seed of its own.

        A prompt that leaves no room for an answer gives none.
        """
        room = self._config.rollout.max_model_len - 1 - len(prompt)
        length = min(self._config.prompting.max_completion_tokens, room)
        if length < 1:
            return []
        async with self.barrier.passed():
            tasks = [asyncio.create_task(self._complete(prompt, length, temperature, seed + i)) for i in range(n)]
            try:
                return await asyncio.gather(*tasks)
            finally:  # a cancelled caller takes its requests along
                for task in tasks:
                    task.cancel()

    async def _complete(self, prompt: Sequence[int], length: int, temperature: float, seed: int) -> GeneratedText:
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            temperature=temperature,
            seed=seed,
            max_tokens=length,
            stop_token_ids=self._end_ids,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        text, tokens = "", 0
        request_id = f"optimize-{uuid.uuid4().hex}"
        async for output in self._client.generate(TokensPrompt(prompt_token_ids=list(prompt)), sampling, request_id):
            text, tokens = output.outputs[0].text, len(output.outputs[0].token_ids)
        return GeneratedText(text, tokens)

    def _frontend_arguments(self) -> Namespace:
        from vllm.entrypoints.openai.cli_args import make_arg_parser
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        arguments = make_arg_parser(FlexibleArgumentParser()).parse_args([])
        arguments.model = self._config.policy.name  # shown to clients instead of the path
        arguments.served_model_name = [self._config.policy.name]
        arguments.disable_log_stats = False
        arguments.enable_log_requests = False
        if getattr(self._client.get_tokenizer(), "chat_template", None) is None:
            arguments.chat_template = PLAIN_CHAT
        return arguments


async def unexpected(request: Request, error: Exception) -> Response:
    """Answer an exception: one of vLLM's validators is the body's fault, any other is ours."""
    files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    if any(file.endswith("/protocol.py") for file in files):
        status, message = 400, f"a field of the body is of the wrong type ({error})"
    else:
        status, message = 500, log_fault(request.url.path, error)
    return Response(error_body(status, message), status_code=status, media_type="application/json")


def vllm_error() -> type[Exception]:
    """Return the root of vLLM's own exceptions: registered by itself, since the handler of `Exception` also logs a
    stack.
    """
    import vllm.exceptions

    return getattr(vllm.exceptions, "VLLMError", vllm.exceptions.VLLMValidationError)
