"""Debian's chromium, and tabs of it that keep note of what must not happen on a page."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

CHROMIUM = shutil.which("chromium")
WAIT_MS = 60_000


def needs_browser() -> tuple[Any, list[pytest.MarkDecorator]]:
    """Return axe and the marks of a file of tests in a browser; skip the file where the extra is not installed."""
    pytest.importorskip("playwright.sync_api", reason="pip install -e .[browser]")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install -e .[browser]")
    no_browser = pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")
    return axe, [pytest.mark.integration, pytest.mark.slow, no_browser]


@contextlib.contextmanager
def started_browser() -> Iterator[Any]:
    """Playwright's browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=WAIT_MS)
        yield started
        started.close()


class Tab:
    """A page of a browser, and everything that must not happen on it."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.context = browser.new_context(base_url=url, **options)
        self.context.set_default_timeout(WAIT_MS)
        self.page = self.context.new_page()
        self.trouble: list[str] = []
        host = urlsplit(url).netloc
        self.page.on("dialog", lambda dialog: (self.trouble.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("pageerror", lambda error: self.trouble.append(f"error {error}"))
        self.page.on(
            "console",
            lambda message: self.trouble.append(message.text) if "Content Security" in message.text else None,
        )
        self.page.on(
            "request",
            lambda request: (
                self.trouble.append(request.url) if urlsplit(request.url).netloc not in {host, ""} else None
            ),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.context.close()
