"""Changes through the console in Debian's chromium: by keyboard and button, and no forbidden change happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.console.server import ConsoleServer
from kafkalite.model import TopicPartition
from kafkalite.web.server import parse_address
from tests.kit.harness.browser import Tab, needs_browser, started_browser
from tests.kit.harness.console_scene import HOSTILE, fill

axe_module, pytestmark = needs_browser()

PAGES = (
    "/produce?like=orders-0-2",
    "/sent",
    "/topics/orders/tail",
    "/topics/orders/export",
    "/new-topic",
    "/topics/orders/alter",
    "/topics/orders/grow",
    "/topics/orders/trim?partition=0&before=2",
    "/topics/orders/delete",
    "/groups/billing/reset?to=earliest",
    "/groups/billing/delete",
    "/letters/dlq.billing.orders/0/0",
    "/jobs",
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
        assert "not valid JSON" in page.get_by_role("alert").inner_text()
        page.get_by_role("textbox", name="Value", exact=True).focus()
        page.keyboard.press("Control+End")
        page.keyboard.type("}")
        page.get_by_role("button", name="Send").focus()
        page.keyboard.press("Enter")
        page.get_by_role("status").wait_for()
        assert page.get_by_role("status").inner_text() == "The record was sent."
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


def test_a_group_is_moved_by_keyboard(browser: Any, broker: Broker, url: str) -> None:
    with Tab(browser, url) as tab, Client(broker.bootstrap_servers) as client:
        client.groups.commit("moved", {TopicPartition("orders", 0): 3})
        page = tab.page
        page.goto("/groups/moved")
        page.get_by_role("link", name="Reset offsets").focus()
        page.keyboard.press("Enter")
        page.get_by_role("combobox", name="To", exact=True).focus()
        page.keyboard.type("shift")
        page.keyboard.press("Tab")
        page.keyboard.type("-2")
        page.keyboard.press("Enter")
        page.get_by_role("cell", name="2 to be read again").wait_for()
        assert client.groups.committed("moved")[TopicPartition("orders", 0)].offset == 3
        page.get_by_role("button", name="Reset the offsets").focus()
        page.keyboard.press("Enter")
        page.get_by_role("status").wait_for()
        assert client.groups.committed("moved")[TopicPartition("orders", 0)].offset == 1
        assert tab.trouble == []


def test_a_letter_is_redriven_by_keyboard_and_its_job_watched(browser: Any, broker: Broker, url: str) -> None:
    with Tab(browser, url) as tab, Client(broker.bootstrap_servers) as client:
        before = client.end_offset("orders", 0)
        page = tab.page
        page.goto("/letters/dlq.billing.orders")
        page.get_by_role("checkbox", name="All dead letters on this page").focus()
        page.keyboard.press("Space")
        assert page.get_by_role("checkbox", name="Dead letter 0-0").is_checked()
        page.get_by_role("button", name="Redrive").focus()
        page.keyboard.press("Enter")
        page.get_by_role("status").filter(has_text="done").wait_for()
        page.get_by_role("row", name="letters sent 1").wait_for()
        values = [raw for chunk in client.read("orders", 0, before) for raw in chunk.columns.values]
        assert values == [b'{"id": 2}']
        assert tab.trouble == []


def test_a_topic_goes_only_by_its_name(browser: Any, broker: Broker, url: str) -> None:
    with Tab(browser, url) as tab, Client(broker.bootstrap_servers) as client:
        page = tab.page
        page.goto("/topics")
        page.get_by_role("link", name="New topic").click()
        page.get_by_role("textbox", name="Name").fill("short-lived")
        page.get_by_role("button", name="Create").click()
        page.get_by_role("status").wait_for()
        page.get_by_role("link", name="Delete", exact=True).click()
        field = page.get_by_role("textbox", name="Type short-lived")
        field.fill("short")
        page.get_by_role("button", name="Delete the topic permanently").click()
        page.get_by_role("heading", level=1, name="Bad Request").wait_for()
        page.go_back()
        field.fill("short-lived")
        page.get_by_role("button", name="Delete the topic permanently").click()
        page.get_by_role("status").filter(has_text="deleted").wait_for()
        client.refresh([])
        assert "short-lived" not in client.topics()


def test_an_export_is_downloaded(browser: Any, url: str) -> None:
    with Tab(browser, url) as tab:
        page = tab.page
        page.goto("/topics/hostile/export")
        page.get_by_role("combobox", name="Format").select_option("csv")
        page.get_by_role("button", name="Export").click()
        with page.expect_download() as waiting:
            page.get_by_role("link", name="Download hostile.csv").click()
        assert waiting.value.suggested_filename == "hostile.csv"
        assert waiting.value.path().stat().st_size > 100_000
        assert tab.trouble == []


def test_a_live_topic_shows_filters_pauses_and_rests(browser: Any, broker: Broker, url: str) -> None:
    with Tab(browser, url) as tab, Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("live", 1)
        page = tab.page
        page.goto("/topics/live/tail")
        rows = page.get_by_role("region", name="Messages").get_by_role("rowheader")
        page.get_by_text("live · 0 shown").wait_for()
        client.produce("live", 0, [raw for raw in HOSTILE if len(raw) < 1000])
        count = sum(len(raw) < 1000 for raw in HOSTILE)
        page.get_by_text(f"live · {count} shown").wait_for()
        assert (rows.count(), page.evaluate("window.harmed")) == (count, None)
        page.get_by_role("button", name="Pause").click()
        client.produce("live", 0, [b"while paused %d" % number for number in range(300)])
        page.get_by_text("paused").wait_for()
        assert rows.count() == count
        page.get_by_role("button", name="Resume").click()
        page.get_by_text(f"live · {count + 200} shown · 100 skipped").wait_for()
        page.get_by_role("searchbox", name="Contains").fill("needle")
        page.get_by_role("button", name="Clear").click()
        hide = "hidden => {Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
        page.evaluate(f"{hide}document.dispatchEvent(new Event('visibilitychange'))}}", True)
        page.get_by_text("idle").wait_for()
        client.produce("live", 0, [b"hay", b"a needle"])
        assert rows.count() == 0
        page.evaluate(f"{hide}document.dispatchEvent(new Event('visibilitychange'))}}", False)
        page.get_by_text("a needle").wait_for()
        assert rows.count() == 1
        assert tab.trouble == []


def test_with_twelve_live_tabs_the_thirteenth_page_comes(browser: Any, broker: Broker, url: str) -> None:
    with Tab(browser, url) as tab, Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("watched", 1)
        pages = [tab.page, *(tab.context.new_page() for _ in range(11))]
        for page in pages:
            page.goto("/topics/watched/tail")
        last = tab.context.new_page()
        last.goto("/topics/orders")
        last.get_by_role("heading", level=1, name="orders").wait_for()
        client.produce("watched", 0, [b"for all"])
        for page in pages:
            page.get_by_text("for all").wait_for()
        assert tab.trouble == []
