"""The page on the real server: Ray Serve, vLLM, the real optimizer and evaluator, followed in a real browser."""

from __future__ import annotations

import pytest

from tests.serving.browser import Watched, launched, paste
from tests.serving.conftest import FAST, problem

pytestmark = pytest.mark.long
JOB_MS = 280_000


def test_page_when_the_server_is_real_shows_a_module_made_faster(server):
    from playwright.sync_api import expect

    with launched() as browser:
        watched = Watched(browser, server.url)
        tab = watched.tab
        tab.goto("/")
        tab.get_by_label("API key").fill(server.other_key)
        tab.get_by_role("button", name="Use").click()
        paste(tab, problem().source)
        for label, value in (("Rounds", 1), ("Candidates a round", 2), ("Time limit, s", 599)):
            tab.get_by_label(label).fill(str(value))
        tab.get_by_role("button", name="Make it faster").click()
        expect(tab.locator("#outcome .big")).to_be_visible(timeout=JOB_MS)
        expect(tab.locator("#outcome")).to_contain_text("A diagonal scales rows.")
        expect(tab.locator("#diff")).to_contain_text(FAST.splitlines()[-1].strip())
        expect(tab.locator(".marks .mark.accepted")).not_to_have_count(0)
        with tab.expect_download() as download:
            tab.get_by_role("button", name="Download").click()
        assert download.value.path().read_text().strip() == FAST.strip()
        watched.close()
