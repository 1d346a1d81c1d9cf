"""`cudal1 optimize FILE`: one module made faster, here or by a server, and the winner saved beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from cudal1_ray.errors import UserError
from cudal1_ray.problems import Problem, parse_problem

Emit = Callable[[dict[str, Any]], None]


def optimize_file(
    file: str, overrides: list[str], server: str = "", key_file: str = "", console: Console | None = None
) -> int:
    """Works on one module, tells how it goes, and saves what was found as <file>_fast.py.

    Returns:
        0 when something faster was found and saved; 1 when not.

    Raises:
        UserError: naming file, setting or server at fault.
    """
    console = console or Console(highlight=False)
    path = Path(file)
    problem = _read(path)
    tell = Teller(console)
    if server:
        if overrides:
            raise UserError(f"{overrides[0]}: settings are the server's own where there is one; leave it out")
        result = optimize_there(problem.source, server, _key(key_file), tell)
    else:
        result = _here(problem, overrides, tell)
    return _report(result, path, console)


class Teller:
    """Events as lines for a person."""

    def __init__(self, console: Console):
        self._console, self._accepted, self._seen = console, 0, 0

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "candidate" and event["status"] != "known":
            self._seen += 1
            self._accepted += event["status"] == "accepted"
        elif kind == "round":
            best = f"best so far {event['best_speedup']:.2f}x" if event["best_speedup"] else "nothing right yet"
            count = f"{self._accepted} of {self._seen}"
            self._console.print(f"round {event['round']}/{event['rounds']}: {count}, {best}")
        elif kind == "confirmation":
            again = f"{event['speedup']:.2f}x ({event['speedup_low']:.2f} to {event['speedup_high']:.2f})"
            self._console.print(f"measured again: {event['first']:.2f}x, now {again}")
        elif kind == "time_limit":
            self._console.print("the time is up")


def optimize_there(source: str, server: str, key: str, tell: Emit) -> dict[str, Any]:
    """Posts a module to a server and follows its job; reconnects where it was when the stream breaks.

    Raises:
        UserError: when the server does not answer, refuses, or fails at the job.
    """
    import httpx

    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx.Client(base_url=server.rstrip("/"), headers=headers, timeout=60.0) as http:
            job = _accepted(http.post("/v1/optimize", json={"source": source}), server)
            last = 0
            while True:
                for event in _events(http, job["id"], last, server):
                    last = event["number"]
                    tell(event)
                job = _accepted(http.get(f"/v1/optimize/{job['id']}"), server)
                if job["status"] not in ("queued", "running"):
                    break
    except httpx.HTTPError as error:
        raise UserError(f"--server {server}: {error or type(error).__name__}; is `cudal1 serve` running?") from None
    if job["status"] != "finished":
        raise UserError(f"--server {server}: the job {job['status']}: {job['error'] or 'by somebody with this key'}")
    return job["result"]


def _events(http: Any, job_id: str, last: int, server: str) -> Iterator[dict[str, Any]]:
    import httpx

    headers = {"last-event-id": str(last)}
    with http.stream("GET", f"/v1/optimize/{job_id}/events", headers=headers, timeout=None) as stream:
        if stream.status_code != 200:
            stream.read()
            _accepted(stream, server)
        try:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[len("data: ") :])
        except httpx.RemoteProtocolError:  # the stream broke; the job may well go on
            return


def _accepted(answer: Any, server: str) -> dict[str, Any]:
    try:
        said = answer.json()
    except ValueError:
        raise UserError(f"--server {server}: answered {answer.status_code}, and not as `cudal1 serve` does") from None
    if answer.status_code >= 400:
        message = said.get("error", {}).get("message") or said
        raise UserError(f"--server {server}: {message}")
    return said


def _here(problem: Problem, overrides: list[str], tell: Emit) -> dict[str, Any]:
    from cudal1_ray.prompting import PromptTooLong
    from cudal1_ray.serving import load_serving_config
    from cudal1_ray.serving.local import optimize_here
    from cudal1_ray.serving.optimizer import ModuleFault

    try:
        return optimize_here(load_serving_config(overrides), problem, tell)
    except (ModuleFault, PromptTooLong) as error:
        raise UserError(str(error)) from None


def _read(path: Path) -> Problem:
    try:
        return parse_problem(path.read_text(), "module", origin=str(path), name=path.stem)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give a Python file with Model and get_inputs()") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file; give a Python file with Model and get_inputs()") from None


def _key(key_file: str) -> str:
    if not key_file:
        return ""
    try:
        return Path(key_file).read_text().split()[0]
    except (OSError, IndexError):
        raise UserError(f"--key-file {key_file}: holds no key; `cudal1 serve --add-key NAME` prints one") from None


def _report(result: dict[str, Any], path: Path, console: Console) -> int:
    counts = (
        f"{result['candidates']} candidates, {result['accepted']} right and different, in {result['spent_s']:.0f} s"
    )
    if not result["found"]:
        console.print(f"nothing faster found ({counts})")
        return 1
    target = path.with_name(f"{path.stem}_fast.py")
    target.write_text(result["code"].rstrip("\n") + "\n")
    interval = f"95% interval {result['speedup_low']:.2f} to {result['speedup_high']:.2f}"
    console.print(f"[bold]{result['speedup']:.2f}x[/] against {result['against']} on {result['device']} ({interval})")
    console.print(f"{result['reference_ms']:.4f} ms before, {result['runtime_ms']:.4f} ms now; {counts}")
    if result["analysis"]:
        console.print(f"why, in the policy's words: {result['analysis']}", markup=False, soft_wrap=True)
    console.print(
        f"saved as {target}. ModelNew takes what Model takes, in its constructor and its call:\n"
        f"  from {target.stem} import ModelNew\n"
        f"  model = ModelNew(*init_inputs); model.load_state_dict(old_model.state_dict())",
        markup=False,
        soft_wrap=True,
    )
    return 0
