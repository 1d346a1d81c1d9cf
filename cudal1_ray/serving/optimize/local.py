"""One module made faster in this process: the same rounds as the server's, without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cudal1_ray.evaluation import Verdict
from cudal1_ray.evaluation.machine import describe_machine
from cudal1_ray.evaluation.stated_rules import rules_in_force
from cudal1_ray.exemplars import ExemplarBuffer
from cudal1_ray.learning.tokenizer import encode_prompt
from cudal1_ray.problems import Problem
from cudal1_ray.prompting import PromptBuilder
from cudal1_ray.rollout import GenerationRequest, RolloutEngine, SamplingParameters, build_engine
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.serving.openai.engine import Written
from cudal1_ray.serving.optimize.evaluators import Evaluators
from cudal1_ray.serving.optimize.jobs import JobSettings
from cudal1_ray.serving.optimize.known_problems import KnownProblems
from cudal1_ray.serving.optimize.rounds import Aims, Optimizer
from cudal1_ray.serving.optimize.winner import optimize


class LocalTools:
    """An engine and evaluators of this process, called from threads."""

    def __init__(self, config: ServingConfig, encode: Callable[[str], tuple[int, ...]]):
        self._config, self._encode = config, encode
        self._engine: RolloutEngine = build_engine(config.rollout, config.policy.path)
        self._evaluators = Evaluators(config.evaluation)
        self._turn = asyncio.Lock()  # one generation at a time: the engine batches what it is given at once

    async def write(self, prompt: str, n: int, temperature: float, seed: int) -> list[Written]:
        tokens = self._encode(prompt)
        room = self._config.rollout.max_model_len - 1 - len(tokens)
        length = min(self._config.prompting.max_completion_tokens, room)
        if length < 1:
            return []
        sampling = SamplingParameters(n=n, temperature=temperature, max_tokens=length, seed=seed)

        def generate() -> list[Written]:
            written = self._engine.generate([GenerationRequest("module", tokens)], sampling)
            return [Written(one.text, len(one.token_ids)) for one in written]

        async with self._turn:
            return await asyncio.to_thread(generate)

    async def evaluate(self, problem: Problem, code: str, best_speedup: float) -> Verdict:
        return await asyncio.to_thread(self._evaluators.evaluate, problem, code, best_speedup)

    async def check(self, problem: Problem) -> Verdict:
        return await asyncio.to_thread(self._evaluators.check, problem)

    async def against(self, problem: Problem, code: str, baseline: str) -> Verdict:
        return await asyncio.to_thread(self._evaluators.against, problem, code, baseline)

    async def device_name(self) -> str:
        return await asyncio.to_thread(self._evaluators.device_name)

    def close(self) -> None:
        self._evaluators.close()
        self._engine.close()


def aims_of(config: ServingConfig) -> Aims:
    """What the configuration counts as faster."""
    wanted = config.optimize
    return Aims(
        wanted.temperature,
        wanted.min_speedup,
        wanted.confirm,
        wanted.seed,
        config.prompting.include_analysis,
        config.evaluation.against,
        tuple(wanted.baselines),
    )


def encoder(config: ServingConfig) -> Callable[[str], tuple[int, ...]]:
    """Text of a prompt -> token ids, exactly as in training."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(config.policy.path)
    return lambda text: encode_prompt(tokenizer, text, chat=config.policy.chat)


def optimize_here(config: ServingConfig, problem: Problem, emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Works on one problem until its rounds or its time are used up; `emit` is told how it goes.

    Raises:
        ModuleFault, PromptTooLong: the module cannot be worked on.
        UserError: engine or evaluator cannot be had on this machine.
    """
    encode = encoder(config)
    wanted = config.optimize
    known = KnownProblems(wanted.known_run, wanted.known_exemplars, config.exemplars).of(problem.source)
    settings = JobSettings(wanted.rounds, wanted.samples_per_round, wanted.time_limit_s, wanted.max_tokens)
    tools = LocalTools(config, encode)
    try:
        machine, rules = describe_machine(config.evaluation.device), rules_in_force(config.evaluation)
        prompts = PromptBuilder(config.prompting, lambda text: len(encode(text)), machine, rules)
        optimizer = Optimizer(
            problem,
            settings,
            aims_of(config),
            tools,
            prompts,
            config.exemplars,
            ExemplarBuffer(),
            emit,
            known=known,
        )
        return asyncio.run(optimize(optimizer))
    finally:
        tools.close()
