"""Every actor of a run: started side by side, replaced when one dies, stopped together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import ray

from cudal1_ray.actors.config import check_placement
from cudal1_ray.actors.confirmations import config_of_members
from cudal1_ray.actors.evaluation import CompilerActor, EvaluatorActor
from cudal1_ray.actors.evaluation_queue import EvaluationQueue
from cudal1_ray.actors.exemplars import ExemplarActor
from cudal1_ray.actors.fleet import Fleet
from cudal1_ray.actors.learner import LearnerGroup
from cudal1_ray.actors.member import MethodCall
from cudal1_ray.actors.placement import actor_options, check_capacity
from cudal1_ray.actors.rollout import RolloutFleet
from cudal1_ray.actors.rollout_member import RolloutActor
from cudal1_ray.actors.work_queue import WorkQueue
from cudal1_ray.config import Config, started_cluster
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.hardware import Machine
from cudal1_ray.evaluation.opening.folder import require_closed_folder
from cudal1_ray.learning import encode_prompt, load_tokenizer, thought_prefix
from cudal1_ray.rollout import AdapterShape, derive_seed
from cudal1_ray.training.run_folder import RunFolder

# Prompts whose tokens are remembered, since a prompt is counted, sent to an engine and trained on; 80 kB each at 2,200
# tokens.
CACHED_PROMPTS = 1024


class Crew:
    """Rollout engines, compilers, evaluators, the exemplar buffer and the learner of one run.

    Args:
        config: the run's configuration.
        run: its folder; the policy to start from is at `run.policy` already.
        adapter_folder: adapter that the learner starts with; None: a fresh one, where adapters train.

    Attributes:
        config: the same, its cluster with the actors that the run starts.
        serves_adapters: engines take the learner's adapters alone; else whole weights, adapters merged.
        no_adapter_reason: why they do not, where they were asked to.

    Raises:
        FleetLost: when a role does not start, with the cause.
    """

    def __init__(self, config: Config, run: RunFolder, adapter_folder: Path | None = None):
        cluster, policy_path = started_cluster(config), str(run.policy.resolve())
        self.config = replace(config, cluster=cluster)
        self.evaluate_during_generation = cluster.evaluate_during_generation
        evaluation = config.evaluation
        if not evaluation.compile_cache:  # what a compiler has built, evaluators find; so does the run that continues
            evaluation = replace(evaluation, compile_cache=str((run.path / "extensions").resolve()))
        if not evaluation.problem_cache:
            evaluation = replace(evaluation, problem_cache=_opened_problems(run))
        of_members = config_of_members(evaluation, cluster.evaluator.count)
        check_placement(config.cluster, config.rollout, evaluation)
        check_capacity(cluster)
        self.learner = LearnerGroup(
            config.learner,
            replace(config.policy, adapter="" if adapter_folder is None else str(adapter_folder.resolve())),
            policy_path,
            cluster.learner,
            config.seed,
            rollout=config.rollout,
            shares_gpu=cluster.shared_gpu,
        )

        policy = config.policy
        # Merged into fp32 weights an adapter loses nothing, and a CPU then generates three times as fast
        # (benchmarks/results/adapter-sync); merged into bfloat16 most of a small update rounds away.
        separate = policy.lora_rank > 0 and config.rollout.dtype != "float32"
        adapter = AdapterShape(policy.lora_rank, policy.lora_alpha) if separate else None

        def start_engine(number: int):
            options = actor_options(cluster.rollout)
            # Engines that drew from one seed would answer the same prompt alike.
            rollout = replace(config.rollout, seed=derive_seed(config.seed, "engine", number) >> 33)
            return ray.remote(RolloutActor).options(**options).remote(rollout, policy_path, adapter)

        def start_compiler(_: int):
            return ray.remote(CompilerActor).options(**actor_options(cluster.compiler)).remote(evaluation)

        def start_evaluator(_: int):
            return ray.remote(EvaluatorActor).options(**actor_options(cluster.evaluator)).remote(of_members)

        def start_exemplars(_: int):
            options = actor_options(cluster.exemplars)
            folder = str(run.exemplars.resolve())
            return ray.remote(ExemplarActor).options(**options).remote(folder, config.exemplars)

        limit = cluster.max_replacements
        engines = Fleet("rollout", start_engine, cluster.rollout, limit, bring_up=lambda: self.rollouts.bring_up())
        rollout = config.rollout
        self.rollouts = RolloutFleet(engines, workers=rollout.tensor_parallel, sleeps=rollout.sleep_mode)
        self._architecture = evaluation.cuda_arch_list
        self.machine: Machine | None = None  # of the evaluators, once they have started
        self.compilers = Fleet("compiler", start_compiler, cluster.compiler, limit, bring_up=self._of_compilers)
        self.evaluators = Fleet("evaluator", start_evaluator, cluster.evaluator, limit)
        self.exemplars = Fleet("exemplars", start_exemplars, cluster.exemplars, limit)
        self.serves_adapters, self.no_adapter_reason = False, ""  # of the engines, once they are up
        self.compilations = WorkQueue(self.compilers, "compile")
        self.evaluations = EvaluationQueue(self.evaluators, evaluation)
        self.tokenizer = load_tokenizer(policy_path)  # while the actors start
        encode = functools.partial(
            encode_prompt, self.tokenizer, chat=policy.chat, template=policy.chat_template_kwargs
        )
        self._encode = functools.lru_cache(maxsize=CACHED_PROMPTS)(encode)
        self.thought_prefix = thought_prefix(self.tokenizer, policy.chat, policy.chat_template_kwargs)

    def wait_until_ready(self, waiting_for: Callable[[str], None] = lambda role: None) -> None:
        """Block until every actor has started; all have been starting since the constructor.

        Args:
            waiting_for: is called with the role that is waited for next.
        """
        waiting_for("learner")
        self.learner.wait_until_ready()
        engines = self.rollouts.fleet
        for fleet in (self.compilers, self.evaluators, self.exemplars, engines):
            if fleet.members:
                waiting_for(fleet.name)
                fleet.wait_until_ready()
        if engines.members:
            self.serves_adapters, self.no_adapter_reason = engines.call_all("serves_adapters")[0]
        self.rollouts.rest()  # on a shared GPU their memory is the learner's until prompts come
        self.machine = next(iter(self.evaluators.call_all("machine")), None)
        if self.config.evaluation.device != "cpu" and not self._architecture:
            self._architecture = next(iter(self.evaluators.call_all("architecture")), "")
            self.compilers.call_all("build_for", self._architecture)

    def _of_compilers(self) -> tuple[MethodCall, ...]:
        """Return the calls that bring a compiler up to date which replaces another."""
        return (MethodCall("build_for", (self._architecture,)),) if self._architecture else ()

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        return self._encode(text)

    def count_tokens(self, text: str) -> int:
        return len(self.encode_prompt(text))

    def ask_exemplars(self, method: str, *args):
        """Call the exemplar actor; a replacement (which reopens the saved buffer) is asked again if it dies."""
        while True:
            if values := self.exemplars.call_all(method, *args):
                return values[0]

    def publish(self, policy_version: int, during_generation: bool = False) -> float:
        """Send the learner's weights to every engine, the adapters alone where engines serve them; return the seconds
        it took. Without an engine nothing is gathered.
        """
        if not self.rollouts.fleet.members:
            return 0.0
        weights = self.learner.publish(adapters=self.serves_adapters)
        return self.rollouts.load_weights(weights, policy_version, during_generation)

    @property
    def replacements(self) -> dict[str, Sequence[str]]:
        """Return the causes of death, by role, of the members replaced so far."""
        fleets = (self.rollouts.fleet, self.compilers, self.evaluators, self.exemplars)
        return {fleet.name: tuple(fleet.replacements) for fleet in fleets if fleet.replacements}

    def stop(self) -> None:
        for fleet in (self.rollouts.fleet, self.compilers, self.evaluators, self.exemplars):
            fleet.stop()
        self.learner.stop()


def _opened_problems(run: RunFolder) -> str:
    """Return the folder beside the run in which the runs there keep their opened problems; empty where a folder cannot
    be closed to others, so that each process opens them itself.
    """
    folder = run.path.resolve().parent / ".opened-problems"
    try:
        require_closed_folder(folder)
    except UserError:
        return ""
    return str(folder)
