"""The pages build into a site that is whole, and that needs nothing from the net."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.unit.docs.pages import PROJECT

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.slow_s(8)


def build(docs: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """As ``make docs`` builds them."""
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(docs / "site" / "mkdocs.yml")]
    return subprocess.run([*argv, "--site-dir", str(site)], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(PROJECT / "docs", folder)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def browser_page(site: Path) -> Iterator[tuple[Page, list[str]]]:
    """A page in a browser, and the addresses that it asked for besides files."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium runs it")
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: None if request.url.startswith("file:") else asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        yield page, asked
        browser.close()


def test_nothing_of_a_page_is_fetched_from_the_net(site: Path) -> None:
    fetched = re.compile(r"<(?:script|img|iframe)[^>]*\ssrc=.?https?://|<link[^>]*rel=.?stylesheet[^>]*https?://")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    assert not [page.name for page in pages if fetched.search(page.read_text())]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gone](gone.md)", "contains a link 'gone.md', but the target is not found"),
        ("[gone](serving.md#gone)", "does not contain an anchor '#gone'"),
        ("![gone](results/gone.png)", "contains a link 'results/gone.png', but the target is not found"),
    ],
)
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, text: str, said: str) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(PROJECT / "docs", docs, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    with (docs / "limits.md").open("a") as page:
        page.write(f"\n{text}\n")
    built = build(docs, tmp_path / "site")
    assert built.returncode != 0
    assert said in built.stderr


def test_a_page_that_is_in_no_menu_fails_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(PROJECT / "docs", docs, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (docs / "forgotten.md").write_text("# Forgotten\n")
    built = build(docs, tmp_path / "site")
    assert built.returncode != 0
    assert "forgotten.md" in built.stderr


def test_search_works_from_a_folder_and_asks_nobody(browser_page: tuple[Page, list[str]]) -> None:
    page, asked = browser_page
    page.keyboard.press("/")
    page.keyboard.type("conditional write champion")
    found = page.locator(".md-search-result__item").first
    found.wait_for(timeout=20_000)
    assert "champion" in found.inner_text()
    found.locator("a").first.click()
    page.wait_for_url(re.compile(r"\.html"))
    assert asked == []


def test_pictures_of_the_overview_are_drawn(browser_page: tuple[Page, list[str]], site: Path) -> None:
    page, _ = browser_page
    page.goto((site / "index.html").as_uri())
    widths = page.eval_on_selector_all("article img", "pictures => pictures.map(picture => picture.naturalWidth)")
    assert widths
    assert all(width > 500 for width in widths)
