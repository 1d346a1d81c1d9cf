"""A whole server for the tests of this folder: `cudal1 serve`, Ray Serve, vLLM, keys, over real connections."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from cudal1_ray.problems import ProblemsConfig, load_problems, parse_problem
from cudal1_ray.prompting import PromptBuilder, PromptingConfig, render_answer
from cudal1_ray.serving.access.keys import KeyFile
from cudal1_ray.serving.config import ServingConfig
from tests.measured_once import MEASURED_ONCE
from tests.ports import free_port
from tests.rollout.conftest import TinyModel
from tests.serving.browser import Watched, launched
from tests.serving.page_site import Playback, Site
from tests.serving.page_steps import NOTHING, WON

START_TIMEOUT_S = 600.0
MODEL_LEN = 1024
PROBLEM_ID = "diag_matmul_1"
# Whether a candidate is faster, not by how much: the gain of FAST is many times this.
COARSE = ["evaluation.timing.half_width=0.06", "evaluation.timing.budget_s=0.4", *MEASURED_ONCE]
FAST = """\
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, d, x):
        return torch.relu(d[:, None] * x) + 1.0
"""


def problem():
    return next(p for p in load_problems(ProblemsConfig()) if p.problem_id == PROBLEM_ID)


def make_skilled_model(path: Path) -> TinyModel:
    """Train a tiny policy that knows one answer to one prompt by heart: a real one, after seconds of training."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from cudal1_ray.learning.tokenizer import encode_prompt, train_tokenizer

    module_problem = parse_problem(problem().source, "module", origin="test")
    prompt = PromptBuilder(PromptingConfig(), lambda text: len(text) // 3).one_shot(module_problem).text
    answer = render_answer("A diagonal scales rows.", "Scale them.", FAST)
    tokenizer = train_tokenizer([prompt, answer] * 4, 640, MODEL_LEN)
    tokenizer.save_pretrained(path)
    start = encode_prompt(tokenizer, prompt, chat=False)
    ids = torch.tensor([[*start, *tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]])
    labels = ids.clone()
    labels[0, : len(start)] = -100
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=MODEL_LEN,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    optimiser, threads = torch.optim.AdamW(model.parameters(), lr=5e-3), torch.get_num_threads()
    torch.set_num_threads(1)  # on busy cores two threads are far slower than one
    for _ in range(300):
        loss = model(ids, labels=labels).loss
        if loss.item() < 1e-3:
            break
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 1e-2, f"the policy did not learn its answer: {loss.item()}"
    torch.set_num_threads(threads)
    model.eval().save_pretrained(path)
    return TinyModel(str(path), model)


@dataclass
class Server:
    """A running server; `settings` are the overrides it was started with."""

    process: subprocess.Popen
    url: str
    key: str
    other_key: str
    model: TinyModel
    log: Path
    settings: list[str] = field(default_factory=list)

    def get(self, path: str, key: str | None = None, **more) -> httpx.Response:
        return httpx.get(self.url + path, headers=bearer(key or self.key), timeout=300, **more)

    def post(self, path: str, key: str | None = None, **more) -> httpx.Response:
        return httpx.post(self.url + path, headers=bearer(key or self.key), timeout=300, **more)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def start_server(folder: Path, model: TinyModel, keys: KeyFile, key: str, other_key: str, *settings: str) -> Server:
    port = free_port()
    log = folder / "server.log"
    command = [sys.executable, "-m", "cudal1_ray.cli", "serve", f"policy={model.path}", f"port={port}"]
    command += [f"security.keys_file={keys.path}", f"optimize.jobs_dir={folder / 'jobs'}", "num_cpus=8", *settings]
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=dict(os.environ))
    deadline = time.monotonic() + START_TIMEOUT_S
    while "answers at" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"the server did not start:\n{log.read_text()[-4000:]}")
        time.sleep(0.2)
    return Server(process, f"http://127.0.0.1:{port}", key, other_key, model, log, list(settings))


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Yield one server for all tests. The last of them ends it."""
    pytest.importorskip("vllm")
    folder = tmp_path_factory.mktemp("serving")
    keys = KeyFile(folder / "keys.json")
    key, other_key = keys.add("alice"), keys.add("bob")
    (folder / "run").mkdir()  # a run that trains while its policy is served, for the tests of weight updates
    server = start_server(
        folder,
        make_skilled_model(folder / "tiny"),
        keys,
        key,
        other_key,
        f"rollout.max_model_len={MODEL_LEN}",
        "optimize.temperature=0.1",
        "optimize.baselines=[eager,tuned_eager]",
        "evaluation.required_sandbox=seccomp",
        *COARSE,
        "rollout.kv_cache_gib=0.05",
        "rollout.log_level=ERROR",
        "security.max_body_kib=64",
        "policy.name=tiny",
        f"weights.follow={folder / 'run'}",
        f"weights.roots=[{folder}]",
        f"weights.store_dir={folder / 'weights'}",
        "weights.admin_keys=[alice]",
        "weights.finish_timeout_s=240",
    )
    yield server
    if server.process.poll() is None:
        server.terminate()
        server.process.wait(timeout=400)


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def one_site(tmp_path_factory):
    """Yield the application and its job store with the page, without engines: jobs go on as recorded ones did."""
    config = ServingConfig()
    config.optimize.jobs_dir = str(tmp_path_factory.mktemp("page") / "jobs")
    site = Site(config, Playback(won=WON, nothing=NOTHING))
    site.start()
    yield site
    site.stop()


@pytest.fixture
def site(one_site):
    one_site.work = Playback(won=WON, nothing=NOTHING)
    one_site.forget_jobs()
    return one_site


@pytest.fixture
def watched(browser, site):
    watched = Watched(browser, site.url)
    yield watched
    watched.close()


@pytest.fixture
def tab(watched):
    return watched.tab
