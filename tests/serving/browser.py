"""A real browser for the tests of the page, or the reason why there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PASTE = """(element, text) => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  element.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
}"""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_MS = 60_000  # machines may be busy; nothing here waits that long on an idle one


def chromium() -> str:
    """Skip the test where there is no browser, or nothing to drive it with."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((executable for name in NAMES if (executable := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    return path


@contextmanager
def launched() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as playwright:
        # Its sandbox wants user namespaces, which root in a container has not; it opens our own page only.
        browser = playwright.chromium.launch(executable_path=path, chromium_sandbox=os.geteuid() != 0)
        yield browser
        browser.close()


def editor(tab: Any) -> Any:
    """Return what is typed into, once it can have the focus: the page shows it when it has the server's settings."""
    content = tab.locator("#editor .cm-content")
    content.wait_for(state="visible")
    return content


def paste(tab: Any, source: str) -> None:
    """Paste into the editor, over whatever is there."""
    content = editor(tab)
    for _ in range(PATIENCE_MS // 50):  # a page that is still busy may not have taken all of the keys
        content.focus()
        tab.keyboard.press("Control+A")
        tab.keyboard.press("Delete")
        content.evaluate(PASTE, source)
        if tab.evaluate("sessionStorage.getItem('cudal1.draft')") == source:  # what the editor holds
            return
        tab.wait_for_timeout(50)
    raise AssertionError("the editor does not take what is pasted")


class Watched:
    """A page of a browser, and what went wrong in it: errors, refused resources, requests to anywhere else."""

    def __init__(self, browser: Any, url: str, **options: Any):
        self.context = browser.new_context(base_url=url, **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.url, self.faults = url, []
        self.tab = self.open()

    def open(self) -> Any:
        tab = self.context.new_page()
        tab.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        tab.on("console", self._console)
        tab.on("request", self._request)
        return tab

    def _console(self, message: Any) -> None:
        # Refusals and connections that break are logged by the browser itself: they are part of the tests.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.faults.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "blob:", "data:")):
            self.faults.append(f"asked elsewhere: {request.url}")

    def close(self) -> None:
        self.context.close()
        assert not self.faults, self.faults
