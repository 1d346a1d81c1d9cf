"""A table's folder of tiny runs, as `benchmarks.paper.run` leaves it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from benchmarks.paper import arms, records
from cudal1_ray.config import load_config, to_yaml
from cudal1_ray.evaluation import Verdict
from cudal1_ray.problems import load_problems
from cudal1_ray.prompting import Answer, Prompt
from cudal1_ray.rollout import Completion
from cudal1_ray.training.rollout_table import write_rollouts
from cudal1_ray.training.sampling import EvaluatedSample

CODE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * {}\n"


def row(problem: str, speedup: float, split: str = "train", stage: str = "contrastive", **fields) -> dict:
    fields = {"own_kernel": speedup > 0, "degenerate": False, "index": 0, "code": ""} | fields
    return {"stage": stage, "split": split, "problem_id": problem, "speedup": speedup, **fields}


def write_lines(file: Path, rows: list[dict]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluated_sample(problem: str, speedup: float, number: int, exemplar_ids: tuple[str, ...] = ()) -> EvaluatedSample:
    low, high = 0.9 * speedup, 1.1 * speedup
    verdict = Verdict(problem, "accepted" if speedup else "rejected", credited_speedup=speedup, own_kernel=True)
    verdict = Verdict(**{**vars(verdict), "speedup": speedup, "speedup_low": low, "speedup_high": high})
    answer = Answer(CODE.format(number), "It is fused.", "Fuse.", "")
    completion = Completion("r", 0, (1,), (0.0,), "", 3, "stop")
    return EvaluatedSample(0, number, Prompt(problem, "", exemplar_ids), (1,), completion, answer, verdict)


GAINS = {"stage1": 1.0, "bucket": 2.0}


@cache
def bundled() -> tuple[list[str], str]:
    """Return the ids of two bundled problems, and the settings of a run on them."""
    config = load_config(["problems.sizes=published"])
    return [problem.problem_id for problem in load_problems(config.problems)][:2], to_yaml(config)


def write_table(
    folder: Path, gains: dict[str, float] = GAINS, seeds: tuple[int, ...] = (1, 2), at: float = 1.0
) -> Path:
    """Write the run of each arm and seed; the arm's gain is its samples' speedup, and half of those held out fail."""
    (first, second), settings = bundled()
    for seed in seeds:
        for arm, gain in gains.items():
            run = folder / arms.run_name(arm, seed)
            (run / "rollouts").mkdir(parents=True, exist_ok=True)
            (run / "config.yaml").write_text(settings)
            stage = arms.ARMS[arm].stage
            policy = f"{stage}-final" if stage else arm
            rows = [row(p, gain, stage=stage) for p in (first, second) for _ in range(2)]
            rows += [row("h", 0.0, "held_out", stage), row("h", gain, "held_out", stage)]
            file = "assessments.jsonl" if stage else "assessments_asked.jsonl"
            write_lines(run / file, rows if stage else [line | {"policy": policy, "exemplars": False} for line in rows])
            write_lines(run / "verdicts.jsonl", [])
            environment = {"processor": "a CPU", "gpus": "NVIDIA H100 80GB HBM3, 580.1"}
            write_lines(run / "environment.jsonl", [{"environment": environment}])
            record = {"seed": seed, "policy": policy, "start": arms.ARMS[arm].start, "at": at}
            records.note_arm(run, arm, record | {"training_minutes": 1.0, "assessment_minutes": 0.5})
            if stage:
                steps = (1, 2) if stage == "contrastive" else (1,)
                write_lines(
                    run / "metrics.jsonl",
                    [{"stage": stage, "step": n, "evaluations": 1.5, "grad_norm": 0.5} for n in steps],
                )
            if stage == "contrastive":
                speedups = ((first, 1.5 + seed), (first, 0.0), (second, 1.2))
                samples = [evaluated_sample(problem, gained, 7 + n) for n, (problem, gained) in enumerate(speedups)]
                for step in (1, 2):
                    write_rollouts(run / "rollouts", stage, step, samples, [1.0] * 3, [0.0] * 3)
    names = dict.fromkeys(arms.run_name(arm, seed) for arm in gains for seed in seeds)
    write_lines(folder / "attempts.jsonl", [{"run": name, "at": at} for name in names])
    return folder
