"""Rollout on vLLM's low-level engine: requests are added, steps are driven from here, completions leave as they end.

Written to what vLLM 0.26 (GPU) and 0.27 (CPU) have in common.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cudal1_ray.rollout import vllm_adapters
from cudal1_ray.rollout.config import RolloutConfig
from cudal1_ray.rollout.decoding import cut_at_stop, end_token_ids
from cudal1_ray.rollout.engine import ScoredSequence, WeightUpdateError
from cudal1_ray.rollout.lifecycle import PausableEngine
from cudal1_ray.rollout.types import (
    AdapterShape,
    Completion,
    GenerationRequest,
    SamplingParameters,
    derive_seed,
    version_segments,
)
from cudal1_ray.rollout.vllm_arguments import engine_arguments, register_architectures
from cudal1_ray.rollout.vllm_environment import applied, vllm_environment
from cudal1_ray.rollout.weight_transfer import WeightUpdater, run_phase
from cudal1_ray.uncollected import imported_to_stay, uncollected

if TYPE_CHECKING:
    import torch

    from cudal1_ray.rollout.transports import WeightOffer


@dataclass(frozen=True)
class _RequestLabel:
    """One completion under way, and the policy version it began with."""

    request_id: str
    index: int
    policy_version: int = 0  # known once vLLM has the request


class VllmEngine(PausableEngine):
    """`RolloutEngine` on vLLM.

    Steps are taken by whichever `generate` or `score` is being advanced, and serve the requests of all of them.
    """

    def __init__(self, config: RolloutConfig, model_path: str, adapter: AdapterShape | None = None):
        super().__init__(config, adapter)
        self._calls = 0
        self._mailboxes: dict[str, deque] = {}  # where each unfinished request's output goes
        self._runs: list[dict[str, Any]] = []  # vLLM's request id -> label, of each call under way
        self._cuts: dict[str, list[tuple[int, int]]] = {}  # see `version_segments`; of those that saw an update
        with uncollected(), applied(vllm_environment(config)):
            with imported_to_stay():
                import vllm.v1.engine.llm_engine  # noqa: F401

                register_architectures(config, model_path)
            if adapter is not None:
                self.no_adapter_reason = vllm_adapters.refusal(config, model_path, adapter)
                self.adapter = None if self.no_adapter_reason else adapter
            self._engine = _build(config, model_path, self.adapter)
        self._threads = OmpThreads() if config.device == "cpu" else None
        self._tokenizer = self._engine.get_tokenizer()
        self._end_ids = list(end_token_ids(model_path, self._tokenizer))
        self._updater = WeightUpdater(self._rpc, config.weight_sync, self.adapter)
        self._lora = {} if self.adapter is None else {"lora_request": vllm_adapters.request()}
        self._asleep = False

    def close(self) -> None:
        if self._engine is None:
            return
        import torch
        from vllm.distributed import destroy_distributed_environment, destroy_model_parallel

        self._close()
        with self._lock:
            self._mailboxes.clear()
            engine, self._engine = self._engine, None
            engine.engine_core.shutdown()
            del engine
        if self._threads is not None:
            self._threads.release()
        destroy_model_parallel()
        destroy_distributed_environment()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _generate(self, requests: tuple[GenerationRequest, ...], sampling: SamplingParameters) -> Iterator[Completion]:
        work = []
        for request in requests:
            for index in range(sampling.n):
                params = self._params(
                    max_tokens=min(sampling.max_tokens, self._room(request)),
                    temperature=sampling.temperature,
                    top_p=sampling.top_p,
                    seed=self._seed(sampling.seed, request.request_id, index),
                    stop=list(sampling.stop) or None,
                    stop_token_ids=self._end_ids,
                    detokenize=bool(sampling.stop),
                    logprobs=0,
                )
                label = _RequestLabel(request.request_id, index)
                work.append((label, request.prompt_token_ids, params))
        for request_label, output in self._run(work):
            result = output.outputs[0]
            token_ids = tuple(result.token_ids)
            segments = version_segments(
                [(0, request_label.policy_version), *self._cuts.pop(output.request_id, ())], len(token_ids)
            )
            text = self._tokenizer.decode(token_ids, skip_special_tokens=True)
            if (cut := cut_at_stop(text, sampling.stop)) is not None:
                text = cut
            logprobs = tuple(result.logprobs.logprobs)
            yield Completion(
                request_label.request_id,
                request_label.index,
                token_ids,
                logprobs,
                text,
                min(version for _, version in segments),
                result.finish_reason,
                segments if len(segments) > 1 else (),
            )

    def _seed(self, seed: int | None, request_id: str, index: int) -> int | None:
        """Return the completion's own seed; None where drawing is left to the engine's random state."""
        return None if seed is None or not self._config.seed_completions else derive_seed(seed, request_id, index)

    def _score(self, sequences: Sequence[ScoredSequence]) -> list[tuple[float, ...]]:
        scores: list[tuple[float, ...]] = [()] * len(sequences)
        work = []
        for i, (prompt, completion) in enumerate(sequences):
            if completion:
                params = self._params(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
                work.append((i, (*prompt, *completion), params))
        for i, output in self._run(work):
            scores[i] = tuple(output.prompt_logprobs.logprobs[-len(sequences[i][1]) :])
        return scores

    def sleep(self) -> None:
        if self._config.sleep_mode and not self._asleep:
            self._check_usable()
            with self._lock:
                self._engine.sleep(level=1)  # level 2 would forget the buffers that no weight update brings back
                self._asleep = True

    def wake(self) -> None:
        if self._asleep:
            self._check_usable()
            with self._lock:
                self._engine.wake_up()
                self._asleep = False

    def _abort(self, request_ids: frozenset[str]) -> None:
        for labels in self._runs:
            given_up = [
                key
                for key, label in list(labels.items())  # its thread may be handing out what has finished
                if isinstance(label, _RequestLabel) and label.request_id in request_ids
            ]
            for key in given_up:
                labels.pop(key, None)
            self._forget(given_up)

    def _cut_completions(self) -> None:
        for state in self._engine.output_processor.request_states.values():
            key = getattr(state, "external_req_id", state.request_id)
            if key in self._mailboxes and state.detokenizer is not None:
                self._cuts.setdefault(key, []).append((state.detokenizer.num_output_tokens(), self.policy_version))

    def _forget(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._mailboxes.pop(key, None)
            self._cuts.pop(key, None)
        self._engine.abort_request(list(keys))

    def _replace_weights(self, weights: Mapping[str, torch.Tensor] | WeightOffer) -> None:
        from cudal1_ray.rollout.transports import offer_of

        self._updater.update(offer_of(weights) if isinstance(weights, Mapping) else weights, self.last_sync_s)

    def _run(self, work: Sequence[tuple[Any, Sequence[int], Any]]) -> Iterator[tuple[Any, Any]]:
        """Run (label, token ids, vLLM parameters); yield (label, vLLM's output) as they finish."""
        from vllm.inputs import TokensPrompt

        mailbox: deque = deque()
        labels: dict[str, Any] = {}
        try:
            with self._exclusive():
                self._check_usable()
                self._calls += 1
                self._runs.append(labels)
                for k, (label, token_ids, params) in enumerate(work):
                    request_id = f"{self._calls}-{k}"
                    self._engine.add_request(
                        request_id, TokensPrompt(prompt_token_ids=list(token_ids)), params, **self._lora
                    )
                    if isinstance(label, _RequestLabel):
                        label = replace(label, policy_version=self.policy_version)
                    labels[request_id], self._mailboxes[request_id] = label, mailbox
            while labels:
                with self._step_allowed() as allowed:
                    if allowed and not mailbox:
                        self._step()
                while mailbox:
                    output = mailbox.popleft()
                    if (label := labels.pop(output.request_id, None)) is not None:  # else given up meanwhile
                        yield label, output
        finally:
            self._runs = [run for run in self._runs if run is not labels]
            if labels and not self._unusable:
                with self._lock:
                    self._forget(list(labels))

    def _step(self) -> None:
        try:
            if self._threads is not None:
                self._threads.apply()
            outputs = self._engine.step()
        except BaseException as error:
            self._poison("step", error)
            raise
        for output in outputs:
            if output.finished and (mailbox := self._mailboxes.pop(output.request_id, None)) is not None:
                mailbox.append(output)

    def _params(self, **fields: Any):
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(n=1, flat_logprobs=True, output_kind=RequestOutputKind.FINAL_ONLY, **fields)

    def _drop_caches(self) -> None:
        def drop() -> None:
            # Requests under way are put back into the queue: their tokens stay, their KV cache is computed anew.
            if not self._engine.reset_prefix_cache(reset_running_requests=True):
                raise WeightUpdateError("vLLM refused to drop its prefix cache")

        timeout_s = self._config.weight_sync.drop_caches_timeout_s
        self.last_sync_s["drop_caches"] = run_phase("drop_caches", drop, timeout_s)

    def _rpc(self, method: str, arguments: dict[str, Any]) -> Any:
        return self._engine.collective_rpc(method, kwargs=arguments)


class OmpThreads:
    """Keeps the number of OpenMP threads the same in whichever thread takes a step.

    OpenMP holds that number per calling thread, and vLLM's attention aborts where it differs from the one that its
    plan was made for. vLLM also replaces `torch.set_num_threads` by a refusal, for good.
    """

    def __init__(self) -> None:
        import torch

        self._count, self._set = torch.get_num_threads(), torch._C.set_num_threads
        self._applied = threading.local()

    def apply(self) -> None:
        if not getattr(self._applied, "done", False):
            self._set(self._count)
            self._applied.done = True

    def release(self) -> None:
        import torch

        torch.set_num_threads = self._set


def _build(config: RolloutConfig, model_path: str, adapter: AdapterShape | None):
    """Return vLLM's engine. The environment must be set."""
    import torch

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    arguments = EngineArgs(
        **engine_arguments(config, model_path),
        **({} if adapter is None else vllm_adapters.engine_arguments(config, model_path, adapter)),
        disable_log_stats=True,
        enable_sleep_mode=config.sleep_mode,
        logprobs_mode="processed_logprobs",
    )
    engine = LLMEngine.from_engine_args(arguments)
    if adapter is not None:
        engine.collective_rpc("begin_adapter", kwargs={"rank": adapter.rank})
    if config.device == "cpu" and config.tensor_parallel == 1:
        from cudal1_ray.rollout.vllm_cpu_sampler import install

        engine.collective_rpc(install)
    return engine
