"""A page in a browser without a net: whatever it asks for, or complains about, ends the test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

CHROMIUM = shutil.which("chromium")
TURN_MS = 600
"""What a page takes for a turn."""


@contextmanager
def opened(path: Path) -> Iterator[Page]:
    """On a phone's screen. The page's time is the test's: a slow machine skips no turn."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium runs it")
    troubles: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.on("request", lambda request: None if request.url == path.as_uri() else troubles.append(request.url))
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.clock.install(time=0)
        page.goto(path.as_uri())
        # Later than whatever the page has by now; time runs until it is held.
        page.clock.pause_at(3600)
        yield page
        browser.close()
    assert [trouble for trouble in troubles if "Content Security Policy" not in trouble] == []
