"""The documentation's site in a real browser, Debian's chromium, from files: search, both colour schemes, a phone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.version import VERSION
from tests.kit.harness.browser import Tab, needs_browser, started_browser

axe_module, pytestmark = needs_browser()

ROOT = Path(__file__).resolve().parents[2]
DOCS = ("README", "failures", "benchmarks", "configuration")
REFERENCE = ("commands", "kafkalite.failures")
PAGES = (
    "index.html",
    "search.html",
    *(f"docs/{name}.html" for name in DOCS),
    *(f"reference/{name}.html" for name in REFERENCE),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "tools.site.build", "--out", str(out)], cwd=ROOT, check=True, timeout=500)
    return out / VERSION


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started_browser() as started:
        yield started


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_and_as_wide_as_the_window(site: Path, browser: Any, scheme: str, width: int) -> None:
    with Tab(browser, site.as_uri(), color_scheme=scheme, viewport={"width": width, "height": 900}) as tab:
        for name in PAGES:
            tab.page.goto((site / name).as_uri())
            assert tab.page.evaluate("document.documentElement.scrollWidth") == width, name
            found = axe_module.Axe().run(tab.page).response["violations"]
            assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], name
            background = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (background == "rgb(255, 255, 255)") == (scheme == "light"), name
        assert [each for each in tab.trouble if not each.startswith("file:")] == []


def test_search_finds_a_page_without_a_server(site: Path, browser: Any) -> None:
    with Tab(browser, site.as_uri()) as tab:
        tab.page.goto((site / "index.html").as_uri())
        tab.page.locator("input[name=q]:visible").fill("redrive")
        tab.page.keyboard.press("Enter")
        tab.page.locator("#search-results li a[href*='failures']").first.click()
        assert "failures" in tab.page.url
