"""The taskset in verifiers' own task and trace; seen with verifiers 0.4.0, whose pins exclude this project's lock."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("verifiers.v1", reason="verifiers 0.4 or later is not installed; seen with 0.4.0")

import verifiers.v1 as vf  # noqa: E402  (skipped above where it is not there)
from verifiers.v1.trace import TraceTask  # noqa: E402

from cudal1_ray import Evaluator, evaluation_config  # noqa: E402
from cudal1_ray.integrations.verifiers import KernelConfig, KernelTaskset  # noqa: E402
from cudal1_ray.problems import parse_problem  # noqa: E402
from tests.integrations.conftest import FAST, PROBLEM, SETTINGS, WRONG, completion  # noqa: E402


@pytest.fixture(scope="module")
def server():
    """Yield `/v1/evaluate` in front of a real evaluator on this CPU."""
    evaluator = Evaluator(evaluation_config(settings=SETTINGS))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            verdict = evaluator.evaluate(parse_problem(request["problem"], "problem"), request["candidate"])
            body = json.dumps(verdict.to_dict()).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
    evaluator.close()


@pytest.fixture(scope="module")
def task(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("problems")
    (folder / "diagonal.py").write_text(PROBLEM)
    (taskset_task,) = KernelTaskset(KernelConfig(path=str(folder), split="all", task={"url": server}))
    return taskset_task


def scored(task, reply: str):
    """Return the trace of one reply after the task has scored it."""
    trace_task = TraceTask(type=type(task).__name__, data=task.data, key=task.key)
    trace = vf.Trace(task=trace_task, agent=vf.AgentInfo(config=vf.AgentConfig()))
    trace.root_reply = reply
    asyncio.run(task.score(trace))
    return trace


def test_task_when_loaded_holds_the_prompt_and_the_problem(task):
    assert "class Model(nn.Module)" in task.data.prompt_text and task.data.problem == PROBLEM
    assert task.key == "diagonal"


def test_answer_when_fast_is_rewarded_and_others_are_not(task):
    fast, wrong, none = (scored(task, text) for text in (completion(FAST), completion(WRONG), "I cannot."))
    assert fast.reward > 0.0 == wrong.reward == none.reward
    assert fast.metrics["accepted"] == 1.0 and fast.metrics["speedup"] > 1.0 and wrong.metrics["accepted"] == 0.0
