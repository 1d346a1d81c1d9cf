"""What tests of the page do again and again: the recorded jobs, and the way to one by the page."""

from __future__ import annotations

from typing import Any

from tests.serving.browser import PATIENCE_MS, paste
from tests.serving.page_site import OWN_OF_JOB_QUEUE, recorded

WON, NOTHING = recorded("won"), recorded("nothing")
EXAMPLES = {"won": "A diagonal matrix, multiplied as if it were full"}


def expect(target: Any) -> Any:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_MS)
    return expect(target)


def start(tab: Any, job: dict[str, Any]) -> str:
    """Start a job like a recorded one, by the page, and return its id."""
    tab.goto("/")
    paste(tab, job["source"])
    tab.get_by_label("Rounds").fill(str(job["settings"]["rounds"]))
    tab.get_by_label("Candidates a round").fill(str(job["settings"]["samples_per_round"]))
    tab.get_by_role("button", name="Make it faster").click()
    tab.wait_for_url("**/#job=*")
    return tab.url.partition("#job=")[2]


def events_of(job: dict[str, Any], kind: str = "") -> list[dict[str, Any]]:
    return [event for event in job["events"] if event["type"] not in OWN_OF_JOB_QUEUE and kind in ("", event["type"])]


def shot(speedup: float) -> str:
    return f"{speedup:.2f}×" if speedup < 10 else f"{speedup:.1f}×"
