"""Prompts of a served policy: they show what those showed that it was trained on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.hardware import Machine
from cudal1_ray.evaluation.stated_rules import rules_in_force
from cudal1_ray.learning import train_tokenizer
from cudal1_ray.problems import ProblemsConfig, load_corpus, load_problems
from cudal1_ray.prompting import PromptBuilder, PromptingConfig, parse_answer, render_answer
from cudal1_ray.prompting.related import related_kernels
from cudal1_ray.serving import load_serving_config
from cudal1_ray.serving.openai.engine import GeneratedText
from cudal1_ray.serving.optimize.deployments import RemoteTools
from cudal1_ray.serving.optimize.local import encoder, prompt_builder, related_as_trained
from cudal1_ray.training.run_folder import RunFolder
from tests.policy_folder import make_policy_folder

GPU = Machine("NVIDIA H100 80GB HBM3", "80 GiB", on_gpu=True)
PROBLEMS = load_problems(ProblemsConfig())


@pytest.fixture
def run(tmp_path):
    """Return a run whose prompts show kernels of related problems, as far as serving looks into it."""
    entries = [entry for entry in load_corpus() if entry.expected == "accepted"]
    columns = {
        "problem": [e.problem_id for e in entries],
        "code": [e.code for e in entries],
        "speedup": [2.0] * len(entries),
        "speedups": pa.array([[(GPU.device, 1.75)]] * len(entries), pa.map_(pa.string(), pa.float64())),
    }
    pq.write_table(pa.table(columns), tmp_path / "kernels.parquet")
    folder = RunFolder(tmp_path / "mine")
    make_policy_folder(folder.checkpoints / "sft-final" / "policy")
    prompting = PromptingConfig(style="full", max_prompt_tokens=3000, related_from=str(tmp_path / "kernels.parquet"))
    settings = {"policy": {}, "prompting": asdict(prompting), "rollout": {"max_model_len": 4700}}
    (folder.path / "config.yaml").write_text(yaml.safe_dump(settings))
    folder.record_problems(PROBLEMS)
    return folder


def words(text: str) -> int:
    return len(text.split())


def test_prompt_when_training_showed_related_kernels_is_that_of_training(run):
    config = load_serving_config([f"policy={run.path}"])
    trained_on = [problem for problem in PROBLEMS if problem.split == "train"]
    settings = PromptingConfig(**yaml.safe_load((run.path / "config.yaml").read_text())["prompting"])
    related, rules = related_kernels(settings, trained_on, GPU.device), rules_in_force(config.evaluation)
    training = PromptBuilder(settings, words, GPU, rules, related)
    serving = prompt_builder(config, words, GPU, related_as_trained(config))
    for problem in PROBLEMS:
        text = training.one_shot(problem).text
        assert (
            "a kernel for another problem" in text
            and ": 1.75x there." in text
            and serving.one_shot(problem).text == text
        )
        module = replace(problem, problem_id="module-1", source=f"# mine\n{problem.source}")  # as a user posts it
        assert f"another problem, {problem.name}:" not in serving.one_shot(module).text


def test_related_kernels_when_the_policy_is_in_no_run_are_those_of_the_known_run_or_an_error(run, tmp_path):
    (run.path / "exemplars").mkdir()
    (run.path / "exemplars" / "manifest.json").write_text(json.dumps({}))
    policy = tmp_path / "elsewhere"
    (run.checkpoints / "sft-final" / "policy").rename(policy)
    overrides = [f"policy={policy}", f"prompting.related_from={tmp_path / 'kernels.parquet'}"]
    settings = load_serving_config([*overrides, f"optimize.known_run={run.path}"])
    assert related_as_trained(settings)(PROBLEMS[0])
    with pytest.raises(UserError, match="prompting.related_from=.*optimize.known_run=RUN"):
        related_as_trained(load_serving_config(overrides))
    assert related_as_trained(load_serving_config([f"policy={policy}"])) is None


def test_answer_when_the_template_opens_a_thought_that_never_ends_is_none_as_in_training(tmp_path, monkeypatch):
    tokenizer = train_tokenizer([PROBLEMS[0].source] * 3, vocab_size=512)
    tokenizer.chat_template = "{{ messages[0].content }}assistant:<think>\n"
    tokenizer.save_pretrained(tmp_path)
    draft = render_answer("a", "b", load_corpus()[0].code)
    texts = [draft, f"{draft}</think>{draft}"]

    async def write(prompt, n, temperature, seed):
        return [GeneratedText(text, 7) for text in texts]

    endpoint = SimpleNamespace(write=SimpleNamespace(remote=write))
    monkeypatch.setattr("ray.serve.get_deployment_handle", lambda name, app_name: endpoint)
    config = SimpleNamespace(policy=SimpleNamespace(chat=True, chat_template_kwargs={}))
    tools = RemoteTools("app", None, *encoder(config, str(tmp_path)))
    answers = asyncio.run(tools.write("go", 2, 1.0, 0))
    assert [parse_answer(answer.text).code is None for answer in answers] == [True, False]
    assert [answer.tokens for answer in answers] == [7, 7]
