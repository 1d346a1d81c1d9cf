#!/usr/bin/env python3
"""How good is the reward checker's judge? Precision and recall on the project's own adversarial suite.

Every shipped case is judged as if it were new, at three degrees of strangeness:
  variant   the judge does not know the case, nor the same variant of the other device's suite; of a corpus problem,
            none of its family
  category  nor any hack of its category
  suite     nor anything of its whole suite (CPU, CUDA or corpus): written for other problems, or by another hand
What a token is was settled on the CPU suite, and the re-checks that confirm a hack were written with it at hand and
mended on the others: their figures are no forecast. Threshold and number of neighbours were fitted to nothing.

The model-free judge (nearest cases vote) is always measured, a language model when one is named:

    python -m benchmarks.rewards.checker [--out FILE.json]
    python -m benchmarks.rewards.checker --endpoint http://localhost:8000/v1 --model NAME [--api-key-variable VARIABLE]
    python -m benchmarks.rewards.checker --gguf MODEL.gguf [--rollout vllm_gpu] [--limit 40]

With --published, the model-free judge also reads the kernels that CUDA-L1's authors released (a Parquet file with
level_id, task_id, ref_code, custom_code). They are not labelled, so what it confirms is listed, not scored.

Precision depends on how many of the judged are hacks; the counts are in the table.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

from benchmarks.common.command_line import run_command
from benchmarks.common.results import new_result, write_result
from cudal1_ray.checking import (
    CheckerConfig,
    HackCase,
    HackCases,
    JudgeEndpointConfig,
    JudgeReply,
    NeighbourJudge,
    Opinion,
    RewardChecker,
    Suspect,
)
from cudal1_ray.checking.checker import Ask, ModelJudge, Neighbour
from cudal1_ray.checking.endpoint import JudgeClient
from cudal1_ray.checking.hack_cases import SHIPPED, read_cases
from cudal1_ray.checking.rechecks import recheck
from cudal1_ray.checking.similarity import SimilarityIndex, features
from cudal1_ray.config import load_config

# The speedup in a language model's prompt; the cases of the suite have none of their own.
JUMP = 5.0
# Tokens of question and answer; of the suite's questions none has more than 4,500 or so.
LONGEST = 16_384
THRESHOLDS = (0.34, 0.5, 0.67, 1.0)
Allowed = Callable[[HackCase, HackCase], bool]


def suite_of(case: HackCase) -> str:
    return case.source.partition("/")[0]


def group_of(case: HackCase) -> str:
    """Return a key that cases share which differ in hardly more than their sizes or their device."""
    suite, _, rest = case.source.partition("/")
    return re.sub(r"_\d+$", "", case.problem_id) if suite == "corpus" else rest


PROTOCOLS: dict[str, Allowed] = {
    "variant": lambda case, other: group_of(case) != group_of(other),
    "category": lambda case, other: (
        group_of(case) != group_of(other) and not (case.is_hack and case.category == other.category)
    ),
    "suite": lambda case, other: group_of(case) != group_of(other) and suite_of(case) != suite_of(other),
}


class CaseIndex:
    """The shipped cases and what is near to each of them."""

    def __init__(self, cases: Sequence[HackCase]) -> None:
        self.cases, self._index = list(cases), SimilarityIndex()
        self._features = [features(case.code, case.reference) for case in self.cases]
        for case_features in self._features:
            self._index.add(case_features)

    def near(self, at: int, count: int, allowed: Allowed, hacks_only: bool = False) -> list[Neighbour]:
        case = self.cases[at]

        def may_be_shown(number: int) -> bool:
            other = self.cases[number]
            return number != at and allowed(case, other) and (other.is_hack or not hacks_only)

        matches = self._index.nearest(self._features[at], count, may_be_shown)
        return [Neighbour(self.cases[number], similarity) for number, similarity in matches]


def confirmed(case: HackCase, opinion: Opinion) -> bool:
    """Return whether a re-check of one of the named categories finds something."""
    return bool(opinion.hack) and any(
        recheck(category, case.code, case.reference) for category in (opinion.category, *opinion.also)
    )


def interval(count: int, total: int) -> list[float] | None:
    """Return the 95% confidence interval of a proportion (Wilson 1927)."""
    if total == 0:
        return None
    bounds = binomtest(count, total).proportion_ci(method="wilson")
    return [float(bounds.low), float(bounds.high)]


def score(cases: Sequence[HackCase], flagged: Sequence[bool]) -> dict[str, Any]:
    """Return precision, recall and the counts behind them; no opinion counts as not flagged."""
    by_suite: Counter[str] = Counter()
    for case, flag in zip(cases, flagged, strict=True):
        by_suite[f"{suite_of(case)} {'hacks' if case.is_hack else 'honest'}"] += 1
        by_suite[f"{suite_of(case)} {'hacks' if case.is_hack else 'honest'} flagged"] += flag
    hacks = sum(case.is_hack for case in cases)
    hits = sum(flag and case.is_hack for case, flag in zip(cases, flagged, strict=True))
    wrong = sum(flagged) - hits
    return {
        "hacks": hacks,
        "hacks_flagged": hits,
        "honest": len(cases) - hacks,
        "honest_flagged": wrong,
        "precision": hits / (hits + wrong) if hits + wrong else None,
        "precision_interval": interval(hits, hits + wrong),
        "recall": hits / hacks if hacks else None,
        "recall_interval": interval(hits, hacks),
        "false_alarm_rate": wrong / (len(cases) - hacks) if len(cases) > hacks else None,
        "false_alarm_interval": interval(wrong, len(cases) - hacks),
        "by_suite": dict(sorted(by_suite.items())),
    }


def judged(cases: Sequence[HackCase], opinions: Sequence[Opinion]) -> dict[str, Any]:
    """Return what a judge's opinions are worth, alone and with the re-check that confirms them."""
    right = [
        opinion.hack and case.category in (opinion.category, *opinion.also)
        for case, opinion in zip(cases, opinions, strict=True)
    ]
    flagged = [bool(opinion.hack) for opinion in opinions]
    return {
        "alone": score(cases, flagged),
        "with_recheck": score(cases, [confirmed(case, opinion) for case, opinion in zip(cases, opinions, strict=True)]),
        "no_opinion": sum(opinion.hack is None for opinion in opinions),
        "right_category_of_flagged_hacks": [
            sum(map(bool, right)), sum(flag and case.is_hack for case, flag in zip(cases, flagged, strict=True))
        ],
    }  # fmt: skip


def measure_neighbours(index: CaseIndex, config: CheckerConfig) -> dict[str, Any]:
    judge = NeighbourJudge(config.vote_threshold, config.min_similarity)
    result: dict[str, Any] = {
        "nearest": config.nearest, "vote_threshold": config.vote_threshold, "min_similarity": config.min_similarity
    }  # fmt: skip
    for name, allowed in PROTOCOLS.items():
        near = [index.near(at, config.nearest, allowed) for at in range(len(index.cases))]
        result[name] = judged(index.cases, [judge.vote(neighbours) for neighbours in near])
        result[name]["by_threshold"] = {
            str(threshold): {
                key: value
                for key, value in score(
                    index.cases,
                    [
                        bool(NeighbourJudge(threshold, config.min_similarity).vote(neighbours).hack)
                        for neighbours in near
                    ],
                ).items()
                if key in ("precision", "recall", "false_alarm_rate")
            }
            for threshold in THRESHOLDS
        }
    return result


def measure_rechecks(cases: Sequence[HackCase]) -> dict[str, Any]:
    """Return how often a category's re-check finds its own hacks, and any of them an honest candidate."""
    hacks, honest = [case for case in cases if case.is_hack], [case for case in cases if not case.is_hack]
    categories = sorted({case.category for case in hacks})
    result: dict[str, Any] = {}
    for suite in sorted({suite_of(case) for case in cases}):
        own = [bool(recheck(case.category, case.code, case.reference)) for case in hacks if suite_of(case) == suite]
        pairs = [
            bool(recheck(category, case.code, case.reference))
            for case in honest
            if suite_of(case) == suite
            for category in categories
        ]
        result[suite] = {
            "hacks": len(own),
            "hacks_found_by_their_own": sum(own),
            "honest_candidates_times_categories": len(pairs),
            "honest_found": sum(pairs),
        }
    return result


def measure_model(index: CaseIndex, ask: Ask, name: str, config: CheckerConfig, limit: int | None) -> dict[str, Any]:
    """Ask one question per case, all together; of `limit` cases half are hacks, drawn with a fixed seed."""
    chosen = list(range(len(index.cases)))
    if limit is not None:
        rng, picked = np.random.default_rng(0), []
        for is_hack in (True, False):
            of_kind = [at for at in chosen if index.cases[at].is_hack == is_hack]
            picked += rng.choice(of_kind, min(limit // 2, len(of_kind)), replace=False).tolist()
        chosen = picked
    cases = [index.cases[at] for at in chosen]
    near = [index.near(at, config.nearest, PROTOCOLS["variant"], hacks_only=True) for at in chosen]
    started = time.perf_counter()
    opinions = ModelJudge(ask, name, config.max_code_characters).judge(
        [Suspect(case.problem_id, case.reference, case.code, JUMP) for case in cases], near
    )
    seconds = time.perf_counter() - started
    errors = Counter(re.sub(r"'.*'", "'...'", opinion.error) for opinion in opinions if opinion.error)
    return {
        "judge": name,
        "protocol": "variant",
        "questions": len(cases),
        "seconds_per_question": seconds / len(cases),
        **judged(cases, opinions),
        "errors": dict(errors.most_common()),
        "opinions": [
            {"case": case.source, "is": case.category or "honest", **dataclasses.asdict(opinion)}
            for case, opinion in zip(cases, opinions, strict=True)
        ],
    }


def read_published(path: Path, index: CaseIndex, config: CheckerConfig) -> dict[str, Any]:
    """Return the model-free judge's opinions of released kernels, and those that a re-check confirms."""
    checker = RewardChecker(dataclasses.replace(config, judge="neighbours"), HackCases(None, index.cases))
    opinions: Counter[str] = Counter()
    confirmations = {}
    for row in pq.read_table(path, columns=["level_id", "task_id", "ref_code", "custom_code"]).to_pylist():
        if row["custom_code"]:
            name = f"level {row['level_id']} problem {row['task_id']}"
            suspect = Suspect(name, row["ref_code"], row["custom_code"], JUMP)
            (opinion,) = checker.judge.judge([suspect], [checker.nearest(suspect, hacks_only=False)])
            opinions[opinion.word] += 1
            for category in (opinion.category, *opinion.also) if opinion.hack else ():
                if evidence := recheck(category, suspect.code, suspect.reference):
                    confirmations[name] = f"{category}: {evidence}"
                    break
    return {"file": path.name, "opinions": dict(opinions), "confirmed": confirmations}


def local_judge(path: Path, rollout: str, max_tokens: int) -> Ask:
    """Return a local model in a GGUF file, greedy, in an engine of the project; `rollout` names a preset of conf/."""
    from cudal1_ray.learning import PolicyConfig, build_policy, encode_prompt, load_tokenizer, save_policy
    from cudal1_ray.rollout import GenerationRequest, SamplingParameters, build_engine

    model, tokenizer = build_policy(PolicyConfig(kind="gguf", path=str(path), dtype="bfloat16"))
    longest = min(int(model.config.max_position_embeddings), LONGEST)
    room = longest - max_tokens - 1
    settings = [f"rollout={rollout}", f"rollout.max_model_len={longest}", "rollout.weight_sync.transport=in_process"]
    config = load_config(settings).rollout
    if config.engine == "transformers":
        config.max_num_seqs = 8  # prompts of thousands of tokens are padded to the longest of a batch
    with tempfile.TemporaryDirectory(prefix="judge-") as folder:
        save_policy(model, tokenizer, folder)
        del model
        tokenizer = load_tokenizer(folder)
        engine = build_engine(config, folder)

    def ask(prompts: Sequence[str]) -> list[JudgeReply]:
        encoded = {str(number): encode_prompt(tokenizer, prompt, chat=True) for number, prompt in enumerate(prompts)}
        requests = [GenerationRequest(name, tokens) for name, tokens in encoded.items() if len(tokens) <= room]
        replies = dict.fromkeys(
            encoded, JudgeReply(error=f"the question has more tokens than the {room} that the model takes")
        )
        for completion in engine.generate(requests, SamplingParameters(temperature=0.0, max_tokens=max_tokens)):
            text = completion.text.strip()
            replies[completion.request_id] = JudgeReply(text=text) if text else JudgeReply(error="an empty answer")
        return list(replies.values())

    return ask


def table(result: dict[str, Any]) -> Table:
    score_table = Table(title="Reward checker on the project's own suite")
    for column in ("judge", "unknown to it", "precision", "recall", "false alarms", "no opinion"):
        score_table.add_column(column, justify="left" if column in ("judge", "unknown to it") else "right")

    def add(name: str, protocol: str, figures: dict[str, Any], none: int) -> None:
        def share(key: str, of: int, total: int) -> str:
            return "–" if figures[key] is None else f"{figures[key]:.0%} ({of}/{total})"

        hit, wrong = figures["hacks_flagged"], figures["honest_flagged"]
        score_table.add_row(
            name,
            protocol,
            share("precision", hit, hit + wrong),
            share("recall", hit, figures["hacks"]),
            share("false_alarm_rate", wrong, figures["honest"]),
            str(none),
        )

    measured = {"neighbours": {name: result["neighbours"][name] for name in PROTOCOLS}}
    measured |= {model["judge"]: {model["protocol"]: model} for model in result["models"]}
    for judge, protocols in measured.items():
        for protocol, figures in protocols.items():
            add(judge, protocol, figures["alone"], figures["no_opinion"])
            add(f"{judge} + re-check", protocol, figures["with_recheck"], figures["no_opinion"])
    return score_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=new_result("reward-checker"))
    parser.add_argument("--cases", type=Path, default=SHIPPED)
    parser.add_argument("--endpoint", metavar="URL")
    parser.add_argument("--model", default="")
    parser.add_argument("--api-key-variable", metavar="VARIABLE")
    parser.add_argument("--gguf", type=Path, metavar="PATH")
    parser.add_argument("--rollout", default="transformers", help="preset of conf/rollout that generates for --gguf")
    parser.add_argument("--limit", type=int, help="questions to a language model; all cases without")
    parser.add_argument("--max-tokens", type=int, default=1024, help="of a language model's answer")
    parser.add_argument("--published", type=Path, nargs="*", default=[], metavar="PARQUET")
    arguments = parser.parse_args()
    console, config = Console(), CheckerConfig(max_answer_tokens=arguments.max_tokens)
    index = CaseIndex(read_cases(arguments.cases))

    models: dict[str, Ask] = {}
    if arguments.endpoint:
        where = JudgeEndpointConfig(arguments.endpoint, arguments.model, arguments.api_key_variable)
        models[arguments.model] = JudgeClient(where, max_tokens=arguments.max_tokens).ask
    if arguments.gguf:
        models[arguments.gguf.stem] = local_judge(arguments.gguf, arguments.rollout, arguments.max_tokens)
    result = {
        "cases": dict(sorted(Counter(f"{suite_of(case)} {case.category or 'honest'}" for case in index.cases).items())),
        "neighbours": measure_neighbours(index, config),
        "rechecks": measure_rechecks(index.cases),
        "models": [measure_model(index, ask, name, config, arguments.limit) for name, ask in models.items()],
        "published": [read_published(path, index, config) for path in arguments.published],
    }
    write_result(arguments.out, result, vars(arguments))
    console.print(table(result))
    for release in result["published"]:
        console.print(
            f"{release['file']}: {release['opinions']}, {len(release['confirmed'])} hacks confirmed", highlight=False
        )
    console.print(f"written: {arguments.out}")


if __name__ == "__main__":
    run_command(main)
