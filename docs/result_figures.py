"""The measured figures that README and the results page show, each made of the newest result of its subject."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/ is no part of the installed package

from benchmarks.common.results import FOLDER, latest_result, read_result  # noqa: E402


@dataclass(frozen=True)
class Figure:
    """One measured figure: a label, `subject/device` or `subject/device/key` in benchmarks/results, and the text made
    of the metrics of the newest result (that has the key).
    """

    label: str
    source: str
    text: Callable[[Any], str]
    hardware: str

    def row(self, folder: str) -> tuple[str, str, str, str]:
        path = latest_result(*self.source.split("/"))
        file = path.relative_to(FOLDER).as_posix()
        return self.label, self.text(read_result(path)["metrics"]), self.hardware, f"[{file}]({folder}{file})"


def _stage(content: Any, stage: str) -> str:
    train = content["stages"][stage]["train"]
    copies = f", copies {train['copied']:.0%}" if train.get("copied") else ""
    return f"{train['geomean']:.2f}x, success {train['success_rate']:.0%}{copies}"


def _ratio(row: Any) -> str:
    low, high = row["speedup_ratio_low"], row["speedup_ratio_high"]
    return f"{row['speedup_ratio']:.2f} times ({'one seed' if low is None else f'95% {low:.2f} to {high:.2f}'})"


def _gain_over(stage: str) -> Callable[[Any], str]:
    def text(content: Any) -> str:
        pair = (stage, "contrastive", "train")
        (row,) = [row for row in content["comparisons"] if (row["first"], row["second"], row["split"]) == pair]
        return f"{_ratio(row)}; {_ratio(row['copies_fail'])} with copies as failures"

    return text


def _of_stage(stage: str) -> Callable[[Any], str]:
    return lambda content: _stage(content, stage)


def _held_out(content: Any) -> str:
    stages = [content["stages"][name]["held_out"] for name in ("sft", "contrastive")]
    tuned, last = (f"{stage['success_rate']:.0%} of samples" for stage in stages)
    return f"{tuned}, {last}"


def _plain(content: Any) -> str:
    (row,) = [row for row in content["contrastive_over_plain_grpo"] if row["split"] == "train"]
    seeds = len(row["per_seed"])
    return (
        f"{_stage(content, 'plain_grpo')}; contrastive at {row['ratio']:.2f} times it ({seeds} seed{'s' * (seeds > 1)})"
    )


def _learner(content: Any) -> str:
    sides = content["results"][0]["sides"]
    ours, other = sides["learner"], sides["padded loop"]
    return (
        f"{ours['tokens_per_s']:,.0f} tokens/s, {ours['mfu']:.1%} MFU; padded Transformers loop "
        f"{other['tokens_per_s']:,.0f}"
    )


def _sync(content: Any) -> str:
    packed, single = (result["median_s"]["total"] for result in content["results"])
    return f"{packed:.3f} s; parameter by parameter {single:.3f} s"


def _throughput(content: Any) -> str:
    per_hour = [content["ours"][name]["per_hour"] for name in ("cold", "warm", "known")]
    return "{:,.0f}, {:,.0f}, {:,.0f} candidates an hour".format(*per_hour)


def _per_process(content: Any) -> str:
    other = content["process_per_candidate"]
    return "{:,.0f}, {:,.0f} candidates an hour".format(*(other[kind]["per_hour"] for kind in ("cold", "warm")))


def _references(content: Any) -> str:
    rows = content["rows"]["references"]
    accepted = sum(row["status"] == "accepted" for row in rows)
    return f"{content['references_s'] / 60:.1f} minutes; {accepted} of {len(rows)} accepted"


def _of_a_policy(content: Any) -> str:
    return "{:,.0f}, {:,.0f} candidates an hour".format(*(content[sizes]["per_hour"] for sizes in ("today", "paper")))


def _cost(*rows: str) -> Callable[[Any], str]:
    def text(content: Any) -> str:
        return ", ".join(f"{content['summary'][row]['median_s']:.2g} s" for row in rows)

    return text


def _levels(what: str) -> Callable[[Any], str]:
    return _cost(f"{what} level1", f"{what} level2")


def _adversarial(content: Any) -> str:
    suite = content["adversarial"]
    return f"{suite['credited']} of {suite['judged']} credited"


def _honest(content: Any) -> str:
    honest = content["honest"]
    return f"{honest['accepted']} of {honest['judged']} accepted"


def _repeat(content: Any) -> str:
    return f"{content['within_2%']} of {content['pairs']} repetitions"


def _overlap(content: Any) -> str:
    return f"{content['ratio']:.2f} times the steps per hour"


def _buffer(content: Any) -> str:
    return f"{content['rows'][0]['figure']:,.0f} exemplars/s inserted, {content['exemplars']:,} held"


def _serving(content: Any) -> str:
    ratio = content["ratio"]
    ours, other = (content["servers"][server]["ttft_ms_p99"] for server in ("cudal1", "vllm"))
    return (
        f"{ratio['geometric_mean']:.0%} of vLLM's server (95% {ratio['low']:.0%} to {ratio['high']:.0%}); "
        f"p99 to the first token {ours:.0f} ms, vLLM's {other:.0f} ms"
    )


def _job(content: Any) -> str:
    result, kinds = content["result"], content["of_policy"].values()
    written, right = (sum(kind[key] for kind in kinds) for key in ("candidates", "accepted"))
    return (
        f"{content['job_s']:.0f} s; {right} of the policy's {written} candidates accepted, "
        f"the known CUDA kernel confirmed at {result['speedup']:.2f}x"
    )


def _self_noise(content: Any) -> str:
    return f"{content['within_3%']:.0%} of {content['measurements']} measurements"


def _right_own(content: Any) -> str:
    samples = content["samples"]
    own, new, all_ = samples["with_own_kernel"], samples["with_own_kernel_no_copy"], samples["samples"]
    last = content["samples_by_third"][-1]
    return (
        f"{own / all_:.0%} of {all_} samples, {new / all_:.0%} without copies; "
        f"last third {last['with_own_kernel'] / last['samples']:.0%}"
    )


def _faster_problems(content: Any) -> str:
    problems = content["problems"]
    return f"{problems['best_above_1.3']} of {problems['asked']} problems asked"


def _by_policy(split: str, exemplars: bool) -> Callable[[Any], str]:
    """Return a text of the samples right on a split: of the base model, and of the last policy of stage 3."""

    def text(content: Any) -> str:
        rows = [row for row in content["assessed"] if (row["split"], row["exemplars"]) == (split, exemplars)]
        newest = max(row["policy"] for row in rows if row["policy"].startswith("contrastive"))
        steps = content["steps"][-1]["step"] if newest.endswith("final") else int(newest.rpartition("-")[2])
        named = {"base": "base model", newest: f"after {steps} steps"}
        of = {row["policy"]: row for row in rows}
        parts = [f"{name} {of[policy]['accepted']} of {of[policy]['samples']}" for policy, name in named.items()
                 if policy in of]  # fmt: skip
        return ", ".join(parts) + (f", {of[newest]['copies']} of these copies" if exemplars else "")

    return text


def _assessed(stage: str) -> Callable[[Any], str]:
    def text(content: Any) -> str:
        rows = {row["split"]: row for row in content["assessments"] if row["stage"] == stage}
        train, held_out = rows["train"], rows["held_out"]
        return (
            f"{train['accepted']} of {train['samples']} training problems, {held_out['accepted']} of "
            f"{held_out['samples']} held out"
        )

    return text


CPU2, H100, H200, H100_H200 = "2 CPU cores", "H100", "H200", "H100, then H200"
FIGURES = {
    "learning": [
        Figure("Demo after stage 1, fine-tuning: geometric mean speedup", "learning/cpu", _of_stage("sft"), CPU2),
        Figure("Demo after stage 2, self-supervised: geometric mean speedup", "learning/cpu",
               _of_stage("self_supervised"), CPU2),
        Figure("Demo after stage 3, contrastive RL: geometric mean speedup", "learning/cpu",
               _of_stage("contrastive"), CPU2),
        Figure("Control: weights of stage 2, exemplars of stage 3", "learning/cpu",
               _of_stage("self_supervised_with_exemplars"), CPU2),
        Figure("Demo after stage 3, no exemplars in the prompt", "learning/cpu",
               _of_stage("contrastive_without_exemplars"), CPU2),
        Figure("Stage 3 over its control", "learning/cpu", _gain_over("self_supervised_with_exemplars"), CPU2),
        Figure("Stage 3 over stage 1", "learning/cpu", _gain_over("sft"), CPU2),
        Figure("Plain GRPO in place of stage 3", "learning/cpu/contrastive_over_plain_grpo", _plain, CPU2),
        Figure("Held out, accepted: after stage 1, after stage 3", "learning/cpu", _held_out, CPU2),
    ],
    "kernelbench": [
        Figure(
            "1.5 B base model: accepted own kernels", "kernelbench-training/h100/assessments",
            _assessed("untrained"), H100,
        ),
        Figure("1.5 B policy after stage 1: accepted own kernels", "kernelbench-training/h100/assessments",
               _assessed("sft"), H100),
        Figure("Steps 1 to 23 of stage 3: accepted own kernels", "kernelbench-training/h100/assessed", _right_own,
               H100_H200),
        Figure("Problems with an own kernel above 1.3x, no copy", "kernelbench-training/h100/assessed",
               _faster_problems, H100_H200),
        Figure("Training problems, exemplars in the prompt: accepted", "kernelbench-training/h100/assessed",
               _by_policy("train", True), H100),
        Figure("Training problems, no exemplars: accepted", "kernelbench-training/h100/assessed",
               _by_policy("train", False), H100),
        Figure("Held-out problems, no exemplars: accepted", "kernelbench-training/h100/assessed",
               _by_policy("held_out", False), H100_H200),
    ],
    "evaluator": [
        Figure("Adversarial candidates, static checks off", "adversarial/h100", _adversarial, H100),
        Figure("Honest candidates", "adversarial/h100/honest", _honest, H100),
        Figure("Same candidate within 2% again, measured alone", "evaluator-repeat-certain/h200", _repeat, H200),
        Figure("Same candidate within 2% again, in a manifest", "evaluator-repeat/h200", _repeat, H200),
        Figure("Reference against itself within 3%", "evaluator-noise/cpu", _self_noise, "2 busy CPU cores"),
        Figure(
            "Time for a candidate of an opened problem, levels 1, 2", "evaluator-cost/h100/problems_s",
            _levels("problems known right"), H100,
        ),
        Figure(
            "Time for a candidate that fails at import, at construction", "evaluator-cost/h100/failing_s",
            _cost("failing import level1", "failing construction level1"), H100,
        ),
        Figure(
            "Time to open a problem, levels 1, 2", "evaluator-cost/h100/problems_s",
            _levels("problems opening"), H100,
        ),
        Figure(
            "Time for a candidate in a new process, levels 1, 2", "evaluator-cost/h100/other_way_s",
            _levels("other_way"), H100,
        ),
        Figure(
            "Candidates of a 1.5 B policy: current, paper's sizes", "evaluator-phases/h200/today",
            _of_a_policy, H200,
        ),
        Figure("All 250 references as candidates, nothing opened before", "evaluator-cost/h200/references_s",
               _references, H200),
        Figure("Throughput: empty, full compile cache, opened problems", "evaluator-throughput/h200",
               _throughput, H200),
        Figure(
            "Throughput of a new process per candidate: empty, full cache", "evaluator-throughput/h200/ratio_warm",
            _per_process, H200,
        ),
    ],
    "system": [
        Figure("Learner, 1.5 B, sequences up to 4k tokens", "learner/h200", _learner, H200),
        Figure("New weights to the engine, 1.5 B, CUDA IPC", "weight-sync/h200", _sync, H200),
        Figure("New weights to the engine, 7 B, NCCL from 2 ranks", "weight-sync-nccl-7b/h200", _sync, "4 H200"),
        Figure("Staleness 1 against 0, three steps of each", "pipeline/h200", _overlap, "4 H200"),
        Figure("Exemplar buffer", "exemplars/cpu", _buffer, CPU2),
        Figure("Serving, tokens/s at equal concurrency, 1.5 B", "serving/h200", _serving, H200),
        Figure("Serving, tokens/s at equal concurrency, a small model", "serving/cpu", _serving, CPU2),
        Figure("A job of `/v1/optimize`, two rounds of eight samples", "optimize-job/h200", _job, H200),
    ],
}  # fmt: skip
