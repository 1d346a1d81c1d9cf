"""Pictures of the page for the documentation, and the jobs that its tests play back.

A job is recorded from a real server (`cudal1 serve`) that works on it with a real policy; pictures are taken in a real
browser of what the page shows of it.

    python -m tests.serving.page_pictures won
    python -m tests.serving.page_pictures won --record runs/demo --problem diag_matmul_1 --rounds 4 --samples 8
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from cudal1_ray.problems import ProblemsConfig, load_problems
from cudal1_ray.serving.config import ServingConfig
from tests.ports import free_port
from tests.serving.browser import launched
from tests.serving.page_site import RECORDED, Playback, Site, recorded

START_TIMEOUT_S = 280.0
JOB_TIMEOUT_S = 900.0


class Server:
    """`cudal1 serve` in a process of its own, for as long as the block lasts."""

    def __init__(self, policy: str, folder: Path, *settings: str):
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = folder / "server.log"
        self._command = [sys.executable, "-m", "cudal1_ray.cli", "serve", f"policy={policy}"]
        self._command += [f"port={self.url.rpartition(':')[2]}", f"optimize.jobs_dir={folder / 'jobs'}", *settings]

    def __enter__(self) -> Server:
        with open(self._log, "w") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_TIMEOUT_S
        while "answers at" not in self._log.read_text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise SystemExit(f"the server did not start:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=400)


def source_of(problem_id: str) -> str:
    return next(p for p in load_problems(ProblemsConfig()) if p.problem_id == problem_id).source


def record(server: Server, source: str, rounds: int, samples: int, target: Path) -> None:
    """Return all events of a job, as JSON."""
    with httpx.Client(base_url=server.url, timeout=JOB_TIMEOUT_S) as http:
        body = {"source": source, "rounds": rounds, "samples_per_round": samples}
        job = http.post("/v1/optimize", json=body).raise_for_status().json()
        with http.stream("GET", f"/v1/optimize/{job['id']}/events") as stream:
            events = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]
        done = http.get(f"/v1/optimize/{job['id']}").json()
    if done["status"] != "finished":
        raise SystemExit(f"the job {done['status']}: {done['error']}")
    kept = {name: done[name] for name in ("source", "settings", "result")} | {"events": events}
    target.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    print(f"{target}: {len(events)} events, found {done['result']['found']}, {done['result'].get('speedup', 0):.2f}x")


def pictures(name: str, out: Path) -> None:
    """Write what the page shows of a recorded job, light and dark; the server and its job store are real ones."""
    job = recorded(name)
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        config = ServingConfig()
        config.optimize.jobs_dir = f"{folder}/jobs"
        site = Site(config, Playback(**{name: job}))
        site.start()
        tab = browser.new_page(viewport={"width": 1120, "height": 1640}, device_scale_factor=1.25)
        tab.goto(site.url)
        source = {"name": "module.py", "mimeType": "text/x-python", "buffer": job["source"].encode()}
        tab.locator("#file").set_input_files(source)
        tab.get_by_label("Rounds").fill(str(job["settings"]["rounds"]))
        tab.get_by_label("Candidates a round").fill(str(job["settings"]["samples_per_round"]))
        tab.get_by_role("button", name="Make it faster").click()
        tab.locator("#diff .cm-editor").first.wait_for(timeout=60_000)
        for scheme in ("light", "dark"):
            tab.emulate_media(color_scheme=scheme)
            tab.evaluate("scrollTo(0, 0); document.activeElement.blur(); document.fonts.ready")
            tab.wait_for_timeout(500)  # transitions of colours
            save(tab.screenshot(caret="initial"), out / f"page-{scheme}.png")
        site.stop()


def save(png: bytes, target: Path) -> None:
    """Save a picture with few colours: enough for a page, in a third of the size."""
    import io

    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(192, dither=Image.Dither.NONE)
    picture.save(target, optimize=True)
    print(f"{target}: {picture.width} x {picture.height}, {target.stat().st_size >> 10} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["won", "nothing"], help="the recorded job")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of the pictures")
    parser.add_argument("--record", metavar="POLICY", help="record the job anew, by a server with this policy")
    parser.add_argument("--problem", default="diag_matmul_1", help="a bundled problem")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("settings", nargs="*", metavar="key=value", help="for the server")
    arguments = parser.parse_args()
    if arguments.record is None:
        pictures(arguments.name, arguments.out)
        return
    with tempfile.TemporaryDirectory() as folder:
        with Server(arguments.record, Path(folder), *arguments.settings) as server:
            target = RECORDED / f"{arguments.name}.json"
            record(server, source_of(arguments.problem), arguments.rounds, arguments.samples, target)


if __name__ == "__main__":
    main()
