#!/usr/bin/env python3
"""`cudal1 serve` beside vLLM's own OpenAI server: output tokens/s at equal concurrency, and a long load.

Both serve the same model with the same engine settings; vLLM's own benchmark client asks them in turns (ABAB), each
alone on the machine. The ratio is of rounds side by side, its interval from their spread.

    python -m benchmarks.serving.endpoint [--policy runs/demo] [--rounds 6] [key=value ...]
    python -m benchmarks.serving.endpoint --together --policy FOLDER --device h200 serving=one_gpu
    python -m benchmarks.serving.endpoint --load --clients 64 --minutes 5

Both write into benchmarks/results/serving/, each its own part. psutil is needed besides the package.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from benchmarks.common.command_line import run_command
from benchmarks.common.results import new_result, write_result
from benchmarks.serving.common import NAME, Server, demo_policy, settings_of, start_ours, start_vllm, vllm_client
from cudal1_ray.analysis.statistics import geometric_ratio
from cudal1_ray.serving import load_serving_config
from cudal1_ray.serving.served_policy import find_policy

START = {"cudal1": start_ours, "vllm": start_vllm}
# Seconds between two readings of memory.
SAMPLE_S = 2.0
# Share of the load run that memory may take to reach its level.
SETTLE = 0.2


def compare(
    policy: Path, rounds: int, load: dict[str, int], together: bool, overrides: list[str], console: Console
) -> Iterator[dict[str, Any]]:
    """Measure rounds of both servers in turns, each alone on the machine, or both up at once and one of them idle;
    yield after each round the figures of all so far.
    """
    config = load_serving_config(settings_of(policy, overrides))
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        up: dict[str, Server] = {}
        for name in START if together else ():  # side by side
            up[name] = START[name](policy, overrides)
            stack.callback(up[name].stop)
        for server in up.values():
            server.wait_until_up()
        for number in range(1, rounds + 1):
            for name in START if number % 2 else reversed(START):  # neither is always the first
                with nullcontext(up[name]) if together else running(name, policy, overrides) as server:
                    idle = idle_cpu(server)
                    result = vllm_client(server, policy, config, load, seed=number)
                row = {"server": name, "round": number, "tokens_per_s": result["output_throughput"], "idle_cores": idle}
                row |= {"server_cpu_s_per_1000_tokens": 1000 * result["server_cpu_s"] / result["total_output_tokens"]}
                row |= {"client_cores": result["client_cores"], "ttft_ms": [1000 * wait for wait in result["ttfts"]]}
                rows.append(row)
                console.print(
                    f"round {number}: {name} {row['tokens_per_s']:,.0f} tokens/s, "
                    f"{row['server_cpu_s_per_1000_tokens']:.3f} CPU s per 1000 tokens, {idle:.3f} cores while idle, "
                    f"{row['client_cores']:.2f} cores of the client"
                )
            yield {"load": load, "servers_up": "both" if together else "one"} | summary(rows)


@contextmanager
def running(name: str, policy: Path, overrides: list[str]) -> Iterator[Server]:
    server = START[name](policy, overrides)
    try:
        server.wait_until_up()
        yield server
    finally:
        server.stop()


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return figures per server, and the ratio: geometric mean over rounds with its 95% t-interval, in logarithms."""
    servers: dict[str, Any] = {}
    for name in START:
        mine = [row for row in rows if row["server"] == name]
        waits = np.concatenate([row["ttft_ms"] for row in mine])
        servers[name] = {
            "tokens_per_s": [round(row["tokens_per_s"], 1) for row in mine],
            "tokens_per_s_median": statistics.median(row["tokens_per_s"] for row in mine),
            "server_cpu_s_per_1000_tokens": statistics.median(row["server_cpu_s_per_1000_tokens"] for row in mine),
            "idle_cores": statistics.median(row["idle_cores"] for row in mine),
            "client_cores": statistics.median(row["client_cores"] for row in mine),
            "ttft_ms_p50": float(np.percentile(waits, 50)),
            "ttft_ms_p99": float(np.percentile(waits, 99)),
        }
    ratios = np.divide(servers["cudal1"]["tokens_per_s"], servers["vllm"]["tokens_per_s"])
    mean, interval = geometric_ratio(ratios)
    ratio: dict[str, Any] = {"geometric_mean": mean, "rounds": len(ratios)}
    if interval:
        ratio |= {"low": interval[0], "high": interval[1]}
    return {"servers": servers, "ratio": ratio}


def idle_cpu(server: Server, seconds: float = 5.0) -> float:
    """Return the cores that an idle server uses."""
    before = server.cpu_s()
    time.sleep(seconds)
    return (server.cpu_s() - before) / seconds


async def stream(http: httpx.AsyncClient, prompt: str, tokens: int) -> tuple[int, float]:
    """Stream one completion: its tokens, and the time to the first of them, s. Raises when anything is amiss."""
    body = {"model": NAME, "prompt": prompt, "max_tokens": tokens, "stream": True, "ignore_eos": True}
    body |= {"stream_options": {"include_usage": True}, "temperature": 1.0}
    started, first, last = time.monotonic(), 0.0, ""
    async with http.stream("POST", "/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            raise RuntimeError(f"{answer.status_code}: {(await answer.aread())[:200]!r}")
        usage = None
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                first = first or time.monotonic() - started
                last = line[6:]
                if '"usage":{' in last:
                    usage = json.loads(last)["usage"]
    if last != "[DONE]" or usage is None or usage["completion_tokens"] != tokens:
        raise RuntimeError(f"a stream ended early: {usage}, {last[:200]}")
    return usage["completion_tokens"], first


async def hammer(server: Server, clients: int, minutes: float, tokens: int) -> dict[str, Any]:
    """Run `clients` at once, each with one stream after the other, and return what memory did meanwhile."""
    deadline = time.monotonic() + 60 * minutes
    waits: list[float] = []
    errors: list[str] = []
    written = 0

    async def client(number: int, http: httpx.AsyncClient) -> None:
        nonlocal written
        turn = 0
        while time.monotonic() < deadline:
            turn += 1
            try:
                count, first = await stream(http, f"client {number} asks for the {turn}th time: import torch", tokens)
                written += count
                waits.append(first)
            except (httpx.HTTPError, RuntimeError) as error:
                errors.append(f"{type(error).__name__}: {error}")

    samples: list[tuple[float, dict[str, float]]] = []

    async def watch() -> None:
        started = time.monotonic()
        while time.monotonic() < deadline:
            samples.append((time.monotonic() - started, await asyncio.to_thread(server.resident_mib)))
            await asyncio.sleep(SAMPLE_S)

    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=server.url, timeout=300, limits=limits) as http:
        await asyncio.gather(watch(), *(client(number, http) for number in range(clients)))
    return {
        "clients": clients,
        "minutes": minutes,
        "streams": len(waits),
        "errors": len(errors),
        "first_errors": errors[:5],
        "tokens_per_s": written / (60 * minutes),
        "ttft_ms_p50": 1000 * float(np.percentile(waits, 50)),
        "ttft_ms_p99": 1000 * float(np.percentile(waits, 99)),
        "memory": memory_trend(samples),
    }


def memory_trend(samples: list[tuple[float, dict[str, float]]]) -> dict[str, Any]:
    """Return the least-squares slope of settled resident memory over time, its 95% interval, and which process grew.

    Neighbouring samples are alike, so the line goes through the means of ten stretches, not through the samples.
    """
    later = samples[int(len(samples) * SETTLE) :]
    settled = np.array([(second, sum(mib.values())) for second, mib in later])
    stretches = np.array([part.mean(axis=0) for part in np.array_split(settled, min(10, len(settled)))])
    begun, settling, ended = samples[0][1], later[0][1], later[-1][1]
    fit = stats.linregress(stretches[:, 0] / 60, stretches[:, 1])
    half = float(stats.t.ppf(0.975, len(stretches) - 2) * fit.stderr)
    return {
        "resident_mib_start": float(stretches[0, 1]),
        "resident_mib_end": float(stretches[-1, 1]),
        "slope_mib_per_minute": float(fit.slope),
        "slope_low": float(fit.slope) - half,
        "slope_high": float(fit.slope) + half,
        "processes": {
            name: [round(at.get(name, 0.0), 1) for at in (begun, settling, ended)]
            for name in sorted({*begun, *settling, *ended})
        },
        "samples": [[round(second, 1), round(sum(mib.values()), 1)] for second, mib in samples],
    }


def show_comparison(comparison: dict[str, Any], console: Console) -> None:
    table = Table("server", "tokens/s", "CPU s per 1000 tokens", "cores while idle", "time to first token p50", "p99")
    for name, figures in comparison["servers"].items():
        waits = (f"{figures['ttft_ms_p50']:.0f} ms", f"{figures['ttft_ms_p99']:.0f} ms")
        spent = (f"{figures['server_cpu_s_per_1000_tokens']:.3f}", f"{figures['idle_cores']:.3f}")
        table.add_row(name, f"{figures['tokens_per_s_median']:,.0f}", *spent, *waits)
    console.print(table)
    ratio = comparison["ratio"]
    interval = f" (95% interval {ratio['low']:.3f} to {ratio['high']:.3f})" if "low" in ratio else ""
    console.print(f"tokens/s of vLLM's own server: {ratio['geometric_mean']:.1%}{interval}")


def show_load(figures: dict[str, Any], console: Console) -> None:
    memory = figures["memory"]
    console.print(
        f"{figures['clients']} clients for {figures['minutes']:g} min: {figures['streams']} streams, "
        f"{figures['errors']} errors, {figures['tokens_per_s']:,.0f} tokens/s, "
        f"first token p50 {figures['ttft_ms_p50']:.0f} ms, p99 {figures['ttft_ms_p99']:.0f} ms"
    )
    console.print(
        f"resident memory of all processes {memory['resident_mib_start']:,.0f} to "
        f"{memory['resident_mib_end']:,.0f} MiB, slope {memory['slope_mib_per_minute']:+.2f} MiB/min "
        f"(95% interval {memory['slope_low']:+.2f} to {memory['slope_high']:+.2f})"
    )
    for name, (begun, settled, ended) in memory["processes"].items():
        if ended - begun > 1.0:
            console.print(f"  {name}: {begun:,.0f} MiB at first, {settled:,.0f} settled, {ended:,.0f} at the end")
    for error in figures["first_errors"]:
        console.print(error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", help="a run, a checkpoint or a model folder; else the demo's policy, untrained")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--requests", type=int, default=512, help="per round")
    parser.add_argument("--input-len", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("--output-len", type=int, default=128, help="tokens of a completion")
    parser.add_argument(
        "--together", action="store_true", help="both servers stay up: quicker, one idles beside the other"
    )
    parser.add_argument("--load", action="store_true", help="the long load instead of the comparison")
    parser.add_argument("--on", default="cudal1", choices=["cudal1", "vllm"], help="the server that gets the long load")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--device", default="cpu", help="in the file's name")
    parser.add_argument("--out", type=Path, help="default: a new file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of conf/serving")
    arguments = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of `finally`: servers are not left behind
    console = Console()
    started_with = os.getloadavg()[0]
    out = arguments.out or new_result("serving-load" if arguments.load else "serving", arguments.device)

    def keep(figures: dict[str, Any]) -> None:
        write_result(out, figures | {"load_average_before": started_with}, vars(arguments))

    with tempfile.TemporaryDirectory(prefix="serving-") as folder:
        policy = find_policy(arguments.policy).folder if arguments.policy else demo_policy(Path(folder))
        if arguments.load:
            server = START[arguments.on](policy, arguments.overrides)
            try:
                server.wait_until_up()
                figures = asyncio.run(hammer(server, arguments.clients, arguments.minutes, arguments.output_len))
            finally:
                exit_code = server.stop()
            keep(figures | {"exit_code": exit_code})
            show_load(figures, console)
        else:
            load = {name: getattr(arguments, name) for name in ("concurrency", "requests", "input_len", "output_len")}
            for figures in compare(policy, arguments.rounds, load, arguments.together, arguments.overrides, console):
                keep(figures)  # a benchmark that is stopped loses the round under way alone
            show_comparison(figures, console)
    console.print(f"written: {out}")
    return 1 if arguments.load and figures["errors"] else 0


if __name__ == "__main__":
    run_command(main)
