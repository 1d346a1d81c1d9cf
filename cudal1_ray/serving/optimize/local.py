"""One module made faster in this process: the same rounds as the server's, without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.hardware import Machine, describe_machine
from cudal1_ray.evaluation.stated_rules import rules_in_force
from cudal1_ray.exemplars import ExemplarBuffer
from cudal1_ray.files import read_json_lines
from cudal1_ray.learning.tokenizer import encode_prompt, thought_prefix
from cudal1_ray.problems import Problem
from cudal1_ray.prompting import PromptBuilder
from cudal1_ray.prompting.related import RelatedKernels, related_kernels
from cudal1_ray.rollout.endpoint import WrittenText
from cudal1_ray.serving.config import ENDPOINT, ServingConfig
from cudal1_ray.serving.optimize.evaluators import ThreadedEvaluators
from cudal1_ray.serving.optimize.jobs import JobSettings
from cudal1_ray.serving.optimize.known_problems import KnownProblems
from cudal1_ray.serving.optimize.rounds import Optimizer, SpeedupGoals
from cudal1_ray.serving.optimize.text_policy import EndpointPolicy, LocalPolicy, TextPolicy
from cudal1_ray.serving.optimize.winner import optimize
from cudal1_ray.serving.served_policy import run_of


class LocalTools(ThreadedEvaluators):
    """A policy and evaluators of this process, the latter called from threads."""

    def __init__(self, config: ServingConfig, policy: TextPolicy):
        super().__init__(config.evaluation)
        self._policy = policy

    async def write(self, prompt: str, n: int, temperature: float, seed: int) -> list[WrittenText]:
        texts = await self._policy.write([(prompt, seed)] * n, temperature)
        return [text for text in texts if text is not None]

    async def close(self) -> None:
        self._evaluators.close()
        await self._policy.close()


def speedup_goals(config: ServingConfig) -> SpeedupGoals:
    """Return what the configuration counts as faster."""
    settings = config.optimize
    return SpeedupGoals(
        settings.temperature,
        settings.min_speedup,
        settings.confirm,
        settings.seed,
        config.prompting.include_analysis,
        config.evaluation.against,
        tuple(settings.baselines),
    )


def encoder(config: ServingConfig, folder: str) -> tuple[Callable[[str], tuple[int, ...]], str]:
    """Return a function from the text of a prompt to its token ids, exactly as in training, and the mark of a thought
    that every completion continues; see `thought_prefix`.

    Args:
        folder: the model folder with the tokenizer.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat, template = config.policy.chat, config.policy.chat_template_kwargs
    return lambda text: encode_prompt(tokenizer, text, chat, template), thought_prefix(tokenizer, chat, template)


def related_as_trained(config: ServingConfig) -> RelatedKernels | None:
    """Return the kernels of related problems that prompts show, of the problems that the policy was trained on; None
    where the configuration names none.

    Those are the training problems of the run whose policy is served, else of `optimize.known_run`.

    Raises:
        UserError: naming `prompting.related_from`, when there is no corpus, or no run with problems.
    """
    if not (source := config.prompting.related_from):
        return None
    run = run_of(Path(config.policy.path)) or Path(config.optimize.known_run)
    file = run / "problems.jsonl"
    if not file.is_file():
        raise UserError(
            f"prompting.related_from={source}: which problems are related is read from {file.name} of the run that "
            f"trained the policy, and {config.policy.path} is in no run that has it; give optimize.known_run=RUN, or "
            "prompting.related_from='' to do without"
        )
    problems = (Problem(**row) for row in read_json_lines(file))
    return related_kernels(config.prompting, [problem for problem in problems if not problem.held_out])


def prompt_builder(
    config: ServingConfig, count_tokens: Callable[[str], int], machine: Machine, related: RelatedKernels | None
) -> PromptBuilder:
    """Return a builder of the prompts that training showed, with the rules that are enforced here and, of related
    kernels, the speedups that this device measured.
    """
    kernels = related.as_measured_on(machine.device) if related else None
    return PromptBuilder(config.prompting, count_tokens, machine, rules_in_force(config.evaluation), kernels)


def optimize_here(config: ServingConfig, problem: Problem, emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Work on one problem until its rounds or its time are used up; `emit` receives the events.

    Raises:
        ModuleFault, PromptTooLong: the module cannot be worked on.
        UserError: engine or evaluator cannot be had on this machine.
    """
    return asyncio.run(_optimize_here(config, problem, emit))


async def _optimize_here(
    config: ServingConfig, problem: Problem, emit: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    options = config.optimize
    prior = KnownProblems(options.known_run, options.known_exemplars, config.exemplars).of(problem.source)
    settings = JobSettings(options.rounds, options.samples_per_round, options.time_limit_s, options.max_tokens)
    related = related_as_trained(config)
    policy = await asyncio.to_thread(open_policy, config)
    tools = await asyncio.to_thread(LocalTools, config, policy)
    try:
        machine = describe_machine(config.evaluation.device)
        prompts = prompt_builder(config, policy.count_tokens, machine, related)
        optimizer = Optimizer(
            problem,
            settings,
            speedup_goals(config),
            tools,
            prompts,
            config.exemplars,
            ExemplarBuffer(),
            emit,
            prior=prior,
        )
        return await optimize(optimizer)
    finally:
        await tools.close()


def open_policy(config: ServingConfig) -> TextPolicy:
    """Return the policy that the configuration names: the model in an engine here, or the server with it."""
    longest = config.prompting.max_completion_tokens
    if config.policy.path == ENDPOINT:
        return EndpointPolicy(config.policy, longest)
    policy = config.policy
    return LocalPolicy(config.rollout, policy.path, policy.chat, longest, policy.chat_template_kwargs)
