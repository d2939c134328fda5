"""What the console changes, in Debian's chromium: by keyboard and button, and nothing that must not be happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.console.server import ConsoleServer
from kafkalite.web.server import parse_address
from tests.kit.harness.browser import CHROMIUM, Tab, started_browser
from tests.kit.harness.console_scene import HOSTILE, fill

pytest.importorskip("playwright.sync_api", reason="pip install -e .[browser]")
axe_module = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install -e .[browser]")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium"),
]

PAGES = (
    "/produce?like=orders-0-2",
    "/sent",
)
NARROW = {"width": 640, "height": 512}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as running:
        with Client(running.bootstrap_servers) as client:
            fill(client)
        yield running


@pytest.fixture(scope="module")
def url(broker: Broker) -> Iterator[str]:
    with ConsoleServer(broker.bootstrap_servers, [parse_address("http://127.0.0.1:0", 0)]) as server:
        yield server.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started_browser() as started:
        yield started


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_nothing_scrolls_sideways_at_200_percent(browser: Any, url: str, scheme: str) -> None:
    axe = axe_module.Axe()
    with Tab(browser, url, color_scheme=scheme, viewport=NARROW) as tab:
        for path in PAGES:
            tab.page.goto(path)
            found = axe.run(tab.page)
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"
            wide = tab.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is {wide} pixels too wide"
        assert tab.trouble == []


def test_a_copy_is_sent_by_keyboard(browser: Any, url: str) -> None:
    with Tab(browser, url) as tab:
        page = tab.page
        page.goto("/topics/orders/messages/0/2")
        page.get_by_role("link", name="Send a copy").focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", level=1, name="Send a record").wait_for()
        page.get_by_role("textbox", name="Value", exact=True).focus()
        page.keyboard.press("Control+A")
        page.keyboard.type('{"id": 20')
        page.get_by_role("button", name="Send").focus()
        page.keyboard.press("Enter")
        page.get_by_role("alert").wait_for()
        assert "no JSON" in page.get_by_role("alert").inner_text()
        page.get_by_role("textbox", name="Value", exact=True).focus()
        page.keyboard.press("Control+End")
        page.keyboard.type("}")
        page.get_by_role("button", name="Send").focus()
        page.keyboard.press("Enter")
        page.get_by_role("status").wait_for()
        assert page.get_by_role("status").inner_text() == "The record was sent; here it is."
        assert '"id": 20' in page.locator("pre").nth(1).inner_text()
        assert tab.trouble == []


def test_hostile_records_do_nothing_in_a_form_and_come_back_whole(browser: Any, broker: Broker, url: str) -> None:
    with Tab(browser, url) as tab, Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("again", 1)
        small = [offset for offset, raw in enumerate(HOSTILE) if len(raw) < 10_000][::3]
        for offset in small:
            tab.page.goto(f"/produce?like=hostile-0-{offset}&topic=again")
            tab.page.get_by_role("button", name="Send").click()
            tab.page.get_by_role("status").wait_for()
            assert tab.page.evaluate("window.harmed") is None
        values = [raw for chunk in client.read("again", 0) for raw in chunk.columns.values]
        assert values == [HOSTILE[offset] for offset in small]
        assert tab.trouble == []
