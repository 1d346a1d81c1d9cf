"""`cudal1 collect`: candidates for stage 1 from any policy, every one through the evaluator, as a Parquet corpus.

The paper's stage 1 (arXiv 2507.14111, section 2.1) asks several models for each problem, up to 20 attempts, until two
candidates are accepted. Every attempt is a line of <out>.jsonl, so that the same command goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from cudal1_ray.analysis.techniques import find_techniques
from cudal1_ray.config import Config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import Verdict
from cudal1_ray.evaluation.hardware import describe_machine
from cudal1_ray.evaluation.reasons import MOMENTARY, PROBLEM_FAULTS
from cudal1_ray.evaluation.stated_rules import rules_in_force
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, exemplar_id, select
from cudal1_ray.files import JsonLines, claim_file, read_json_lines, replacing
from cudal1_ray.problems import Problem, load_problems
from cudal1_ray.prompting import Prompt, PromptBuilder, PromptTooLong, parse_answer
from cudal1_ray.prompting.related import related_kernels
from cudal1_ray.rollout import derive_seed
from cudal1_ray.rollout.endpoint import WrittenText
from cudal1_ray.serving.optimize.evaluators import Evaluators
from cudal1_ray.serving.optimize.rounds import together
from cudal1_ray.serving.optimize.text_policy import EndpointPolicy, LocalPolicy, TextPolicy
from cudal1_ray.wording import counted

# As an attempt's line begins; see `Collection`.
_ROW_BEGINS = b'{"problem": "'


def collect(config: Config, console: Console | None = None) -> int:
    """Ask until every training problem has its successes or its attempts, and write the accepted candidates.

    Returns:
        0; 130 when interrupted, with everything evaluated so far written.

    Raises:
        UserError: naming the setting, the problem or the server at fault; what was evaluated before is kept.
    """
    console = console or Console(highlight=False, markup=False)
    check_collection(config)
    problems = [problem for problem in load_problems(config.problems) if problem.split == "train"]
    if not problems:
        raise UserError(f"problems.source={config.problems.source}: it has no training problem")
    out = Path(config.collect.out).expanduser()
    attempts_file = out.with_suffix(".jsonl")
    if out.exists() and not attempts_file.exists():
        raise UserError(f"collect.out={config.collect.out}: is there, and was not collected here; give another name")
    attempts_file.parent.mkdir(parents=True, exist_ok=True)
    with open(attempts_file, "ab") as lock:
        if not claim_file(lock):
            raise UserError(f"collect.out={config.collect.out}: another command collects there; give another name")
        _check_attempts(attempts_file, config)  # before the last line without its end is cut off
        return _collect_into(out, JsonLines(attempts_file), problems, config, console)


def _check_attempts(path: Path, config: Config) -> None:
    """Raise UserError where a file holds anything but attempts of this command, which leaves it as it is."""
    tail = path.read_bytes().rpartition(b"\n")[2]
    if tail[: len(_ROW_BEGINS)] != _ROW_BEGINS[: len(tail)] or not all(map(_is_attempt, read_json_lines(path))):
        raise UserError(f"collect.out={config.collect.out}: {path} has other lines than attempts; give another name")


def _is_attempt(row: dict[str, Any]) -> bool:
    try:
        Verdict.from_dict(row["verdict"])
    except (KeyError, ValueError):
        return False
    return all(isinstance(row.get(name), str) for name in ("problem", "code", "analysis", "design", "policy"))


def check_collection(config: Config) -> None:
    """Check that the settings name training problems, a table and a policy that writes. Neither a file nor a server is
    looked for.

    Raises:
        UserError: naming the setting at fault.
    """
    if config.problems.split == "held_out":
        raise UserError("problems.split=held_out: candidates are collected for training problems alone")
    config.problems.require_paths()
    if Path(config.collect.out).suffix != ".parquet":
        raise UserError(f"collect.out={config.collect.out}: must end in .parquet")
    if config.policy.kind == "scratch":
        raise UserError("policy.kind=scratch: an untrained policy writes no candidates; use policy=endpoint or a model")
    if config.policy.kind == "endpoint":
        config.policy.require_server()


def _collect_into(out: Path, attempts: JsonLines, problems: Sequence[Problem], config: Config, console: Console) -> int:
    """Collect into a table and its attempts, which no other command writes now; see `collect`."""
    try:
        asyncio.run(_collect(config, problems, attempts, console))
        code = 0
    except KeyboardInterrupt:
        console.print("interrupted; the same command goes on")
        code = 130
    finally:
        count = write_table(out, problems, list(attempts))
        where = f": {out}" if count else "; no table is written"
        console.print(f"{count} accepted of {counted(len(attempts), 'candidate')}{where}")
    return code


async def _collect(config: Config, problems: Sequence[Problem], attempts: JsonLines, console: Console) -> None:
    collection = Collection(config, problems, attempts, console)
    if not collection.open:  # neither an engine nor an evaluator starts for nothing
        return
    evaluators = await asyncio.to_thread(Evaluators, config.evaluation)
    try:
        policy = await asyncio.to_thread(_open_policy, config)
        try:
            await collection.run(policy, evaluators)
        finally:
            await policy.close()
    finally:
        evaluators.close()


def _open_policy(config: Config) -> TextPolicy:
    policy, longest = config.policy, config.prompting.max_completion_tokens
    if policy.kind == "endpoint":
        return EndpointPolicy(policy, longest)
    return LocalPolicy(config.rollout, policy.path, policy.chat, longest, policy.chat_template_kwargs)


class Collection:
    """One collection under way: rounds in which every problem that is still open is asked once more.

    Attributes:
        open: the problems that have neither their successes nor all their attempts yet, by id.
    """

    _policy: TextPolicy
    _evaluators: Evaluators
    _prompts: PromptBuilder

    def __init__(self, config: Config, problems: Sequence[Problem], attempts: JsonLines, console: Console) -> None:
        self._config, self._settings = config, config.collect
        self._problems, self._attempts, self._console = problems, attempts, console
        self.open = {problem.problem_id: problem for problem in problems}
        self._asked: Counter[str] = Counter()
        self._successes: dict[str, set[str]] = defaultdict(set)
        self._buffer = ExemplarBuffer()
        self._verdicts: dict[str, Verdict] = {}  # by exemplar id
        for row in attempts:
            self._count(row)

    async def run(self, policy: TextPolicy, evaluators: Evaluators) -> None:
        """Ask until no problem is open."""
        self._policy, self._evaluators = policy, evaluators
        evaluation = self._config.evaluation
        machine, rules = describe_machine(evaluation.device), rules_in_force(evaluation)
        related = related_kernels(self._config.prompting, self._problems, machine.device)
        self._prompts = PromptBuilder(self._config.prompting, policy.count_tokens, machine, rules, related)
        while self.open:
            prompts = [(problem, prompt) for problem in self.open.values() if (prompt := self._prompt(problem))]
            self.open = {problem.problem_id: problem for problem, _ in prompts}
            requests = [
                (problem, prompt, again)
                for again in range(self._settings.at_once)
                for problem, prompt in prompts
                if self._asked[problem.problem_id] + again < self._settings.attempts
            ]
            if self._policy.holds_device:  # nothing is measured while the policy computes on the same device
                seed = derive_seed(self._config.seed, "round", len(self._attempts)) >> 33
                texts = [(prompt.text, seed) for _, prompt, _ in requests]
                completions = await self._policy.write(texts, self._settings.temperature)
                evaluations = [
                    self._evaluate(*each[:2], text) for each, text in zip(requests, completions, strict=True)
                ]
                await together(evaluations)
            else:
                seeds = [self._seed(problem, again) for problem, _, again in requests]
                await together([self._attempt(*each[:2], seed) for each, seed in zip(requests, seeds, strict=True)])

    def _prompt(self, problem: Problem) -> Prompt | None:
        try:
            if not self._settings.show_earlier:
                return self._prompts.one_shot(problem)
            rng = np.random.default_rng(self._seed(problem))
            return self._prompts.contrastive(
                problem, select(self._buffer, problem.problem_id, self._config.exemplars, rng)
            )
        except PromptTooLong as error:
            self._console.print(f"left out: {error}")
            return None

    def _seed(self, problem: Problem, offset: int = 0) -> int:
        """Return the seed of the attempt that is `offset` after a problem's next one; no earlier attempt had it."""
        return derive_seed(self._config.seed, problem.problem_id, self._asked[problem.problem_id] + offset) >> 33

    async def _attempt(self, problem: Problem, prompt: Prompt, seed: int) -> None:
        (text,) = await self._policy.write([(prompt.text, seed)], self._settings.temperature)
        await self._evaluate(problem, prompt, text)

    async def _evaluate(self, problem: Problem, prompt: Prompt, completion: WrittenText | None) -> None:
        text = completion.text if completion else ""
        answer = parse_answer(text, require_analysis=self._config.prompting.include_analysis)
        if answer.code is None:
            cut = completion is not None and completion.finish_reason == "length"
            detail = "cut at its token limit" if cut else answer.error
            verdict = Verdict.unparsable(problem.problem_id, detail)
        else:
            verdict = await self._verdict(problem, answer.code)
        row = {
            "problem": problem.problem_id,
            "code": answer.code or "",
            "analysis": answer.analysis,
            "design": answer.design,
            "policy": self._config.policy.model or self._config.policy.path,
            "tokens": completion.tokens if completion else 0,
            "exemplar_ids": list(prompt.exemplar_ids),
            "verdict": verdict.to_dict(),
        }
        self._attempts.append(row)
        self._count(row)
        outcome = f"accepted, {verdict.credited_speedup:.2f}x" if verdict.accepted else ", ".join(verdict.reasons)
        self._console.print(f"{problem.problem_id}: attempt {self._asked[problem.problem_id]}: {outcome}")

    async def _verdict(self, problem: Problem, code: str) -> Verdict:
        """Return the evaluator's verdict, once for each distinct candidate; a momentary one is asked for again."""
        identity = exemplar_id(problem.problem_id, code)
        if identity in self._verdicts:
            return self._verdicts[identity]
        best = self._buffer.best(problem.problem_id)
        evaluation = asyncio.to_thread(self._evaluators.evaluate, problem, code, best.speedup if best else 0.0)
        verdict = await evaluation
        self._keep(identity, verdict)
        return verdict

    def _keep(self, identity: str, verdict: Verdict) -> None:
        if not MOMENTARY & set(verdict.reasons):
            self._verdicts.setdefault(identity, verdict)

    def _count(self, row: dict[str, Any]) -> None:
        verdict, problem_id = Verdict.from_dict(row["verdict"]), row["problem"]
        self._asked[problem_id] += 1
        if row["code"]:
            self._keep(exemplar_id(problem_id, row["code"]), verdict)
        if verdict.accepted:
            exemplar = Exemplar.new(problem_id, row["code"], verdict.credited_speedup)
            self._buffer.insert([exemplar])
            self._successes[problem_id].add(exemplar.exemplar_id)
        enough = 0 < self._settings.successes <= len(self._successes[problem_id])
        unusable = PROBLEM_FAULTS & set(verdict.reasons)
        if enough or unusable or self._asked[problem_id] >= self._settings.attempts:
            self.open.pop(problem_id, None)


def write_table(out: Path, problems: Sequence[Problem], rows: Sequence[dict[str, Any]]) -> int:
    """Write the accepted candidates, each once, as a table that `sft.corpus` and `exemplars.seed_from` take.

    Returns:
        how many there are; without any, no file is written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    by_id = {problem.problem_id: problem for problem in problems}
    table: dict[str, dict[str, Any]] = {}
    for row in rows:
        verdict, problem = Verdict.from_dict(row["verdict"]), by_id.get(row["problem"])
        if not verdict.accepted or problem is None:
            continue
        code = row["code"]
        identity = exemplar_id(row["problem"], code)
        number = row["problem"].rpartition("-p")[2] if problem.level is not None else ""
        table.setdefault(
            identity,
            {
                "problem": row["problem"],
                "level": problem.level,
                "problem_id": int(number) if number.isdecimal() else None,
                "code": code,
                "language": language_of(code),
                "techniques": [technique.name for technique in find_techniques(code, problem.source)],
                "analysis": row["analysis"],
                "design": row["design"],
                "speedup": verdict.credited_speedup,
                "speedup_low": verdict.speedup_low,
                "speedup_high": verdict.speedup_high,
                "own_kernel": verdict.own_kernel,
                "status": verdict.status,
                "hardware": verdict.hardware,
                "policy": row["policy"],
            },
        )
    if table:
        types = {"level": pa.int64(), "problem_id": pa.int64(), "techniques": pa.list_(pa.string())}
        entries = list(table.values())
        columns = {name: pa.array([entry[name] for entry in entries], types.get(name)) for name in entries[0]}
        with replacing(out) as file:
            pq.write_table(pa.table(columns), file)
    return len(table)


def language_of(code: str) -> str:
    """Return what a candidate's own kernels are written in: triton, cuda, or pytorch where it has none."""
    if "@triton.jit" in code:
        return "triton"
    return "cuda" if "__global__" in code else "pytorch"
