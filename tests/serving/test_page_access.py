"""The page with the keyboard alone, on a narrow and on a dark screen, and for users who only watch."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from tests.serving.browser import PATIENCE_MS, Watched
from tests.serving.page_steps import EXAMPLES, NOTHING, WON, events_of, expect, start


def focused(tab: Any) -> dict[str, Any]:
    """Return what has the focus, inside shadow roots too, and whether that can be seen."""
    tab.wait_for_timeout(200)  # an editor shows a moment later that it has it
    return tab.evaluate(
        """() => {
          let element = document.activeElement;
          while (element.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
          const around = [element, element.closest(".cm-editor")].filter(Boolean).map((one) => getComputedStyle(one));
          const shown = around.some((style) => style.outlineStyle !== "none" && style.outlineWidth !== "0px");
          return {id: element.id, label: element.getAttribute("aria-label") ?? element.textContent, shown};
        }"""
    )


def test_page_when_used_by_keys_alone_works_and_shows_the_focus(site, tab):
    tab.goto("/")
    expect(tab.locator("#jobs-hint")).to_contain_text("None yet")
    tab.keyboard.press("Tab")
    assert focused(tab)["label"] == "Skip to the content" and focused(tab)["shown"]
    tab.keyboard.press("Enter")
    assert focused(tab)["id"] == "content"
    tab.keyboard.press("Tab")
    assert focused(tab)["id"] == "example" and focused(tab)["shown"]
    tab.keyboard.press("a")  # the first example begins with it
    visited = []
    for _ in range(4):
        tab.keyboard.press("Tab")
        visited.append(focused(tab))
    assert [stop["label"] for stop in visited[:2]] == ["Open a file", "Module source"] and visited[3]["id"] == "rounds"
    assert all(stop["shown"] for stop in visited)
    expect(tab.locator("#editor .cm-content")).to_contain_text("torch.diag")
    for _ in range(2):
        tab.keyboard.press("Shift+Tab")
    site.work.allowed = len(events_of(WON)) // 2
    tab.keyboard.press("Control+Enter")
    expect(tab.locator("#job-title")).to_be_focused()
    expect(tab.locator("#job-status")).to_have_text("running")
    expect(tab.locator(".marks .mark").first).to_be_visible()

    stops = []
    for _ in range(12):
        tab.keyboard.press("Tab")
        stops.append(focused(tab))
        if stops[-1]["id"] == "chart-svg":
            break
    assert {"job-link", "job-cancel", "chart-svg"} <= {stop["id"] for stop in stops}
    assert all(stop["shown"] for stop in stops)
    chosen = tab.locator("#chart-svg").get_attribute("aria-activedescendant")
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowRight")
    moved = tab.locator("#chart-svg").get_attribute("aria-activedescendant")
    assert moved and tab.locator(f"#{moved}").get_attribute("aria-selected") == "true" and (moved != chosen or chosen)
    expect(tab.locator("#detail .where")).to_have_text("Round 1, candidate 2")
    site.work.allowed = 10**9
    expect(tab.locator("#outcome .big")).to_be_visible()
    expect(tab.locator("#detail .where")).to_have_text("Round 1, candidate 2")  # what one reads is not taken away
    for _ in range(20):
        tab.keyboard.press("Tab")
        if focused(tab)["id"] == "download":
            break
    with tab.expect_download():
        tab.keyboard.press("Enter")


@pytest.mark.parametrize(
    "scheme, width",
    [
        ("light", 1280),
        ("dark", 360),
        pytest.param("light", 360, marks=pytest.mark.long),
        pytest.param("dark", 1280, marks=pytest.mark.long),
    ],
)
def test_page_when_checked_by_axe_has_no_finding_and_nothing_overflows(browser, site, scheme, width):
    Axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe
    size = {"width": width, "height": 800}
    watched = Watched(browser, site.url, color_scheme=scheme, viewport=size, reduced_motion="reduce")
    tab = watched.tab

    def check(where: str) -> None:
        tab.wait_for_timeout(100)
        issues = Axe().run(tab).response["violations"]
        assert not issues, json.dumps([(v["id"], [n["html"][:200] for n in v["nodes"]]) for v in issues], indent=1)
        wide = tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{where}: {wide} pixels wide"

    tab.goto("/")
    tab.get_by_label("Example").select_option(label=EXAMPLES["won"])
    check("start")
    start(tab, WON)
    expect(tab.locator("#diff .cm-editor").first).to_be_visible()
    tab.get_by_text("The same as a table").click()
    check("winner")
    start(tab, NOTHING)
    expect(tab.locator("#outcome h2")).to_be_visible()
    check("nothing")
    assert tab.evaluate("getComputedStyle(document.querySelector('button.small')).transitionDuration") == "0s"
    watched.close()


def test_colours_when_none_is_chosen_follow_the_system(browser, site):
    watched = Watched(browser, site.url, color_scheme="dark")
    tab = watched.tab

    def brightness() -> int:
        return max(map(int, re.findall(r"\d+", tab.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]))

    tab.goto("/")
    expect(tab.get_by_role("button", name="Colours: as the system")).to_be_visible()
    assert brightness() < 60
    tab.emulate_media(color_scheme="light")
    assert brightness() > 200
    for name in ("light", "dark"):
        tab.locator("#theme").click()
        expect(tab.get_by_role("button", name=f"Colours: {name}")).to_be_visible()
    assert brightness() < 60
    tab.reload()
    assert brightness() < 60
    tab.locator("#theme").click()
    assert brightness() > 200
    watched.close()


def test_rounds_when_they_come_appear_one_by_one(site, tab):
    """Points appear one by one, without a reload, in the order in which they were evaluated."""
    site.work.allowed = 0
    start(tab, WON)
    marks = 0
    for number, event in enumerate(events_of(WON)[:8], start=1):
        site.work.allowed = number
        marks += event["type"] in ("candidate", "exemplar")
        expect(tab.locator(".marks .mark")).to_have_count(marks)
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while tab.locator("#progress").evaluate("bar => bar.value") != marks:
        assert time.monotonic() < deadline
