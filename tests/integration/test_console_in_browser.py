"""The console in a real browser, Debian's chromium: accessible, by keyboard alone, without scripts, and unharmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.console.server import ConsoleServer
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.web.server import parse_address
from tests.kit.harness.browser import Tab, needs_browser, started_browser
from tests.kit.harness.console_scene import HOSTILE, fill, fill_further, register_some
from tests.kit.processes.broker import wait_until

axe_module, pytestmark = needs_browser()

PAGES = (
    "/",
    "/search?q=or",
    "/policies",
    "/policies/shipping",
    "/transactions",
    "/brokers",
    "/brokers/1",
    "/replicas",
    "/replicas?show=all",
    "/quorum",
    "/rights",
    "/subjects",
    "/subjects/orders-value",
    "/topics",
    "/topics?q=nothing-like-it",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages?partition=0&count=1",
    "/topics/orders/messages/0/2",
    "/topics/hostile/messages?count=20",
    "/groups",
    "/groups/billing",
    "/letters",
    "/letters/dlq.billing.orders",
    "/track",
    "/track?id=c-2&groups=1",
    "/nowhere",
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as broker:
        with Client(broker.bootstrap_servers) as client:
            fill(client)
            fill_further(client)
        with RegistryServer(broker.bootstrap_servers, port=0) as registry:
            register_some(registry.url)
            here = [parse_address("http://127.0.0.1:0", 0)]
            with ConsoleServer(broker.bootstrap_servers, here, registry=registry.url) as server:
                wait_until(lambda: server.sampler.latest is not None, 60, "the first look")
                yield server.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started_browser() as started:
        yield started


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_nothing_scrolls_sideways_at_200_percent(browser: Any, url: str, scheme: str) -> None:
    axe = axe_module.Axe()
    with Tab(browser, url, color_scheme=scheme, viewport={"width": 640, "height": 512}) as tab:
        for path in PAGES:
            tab.page.goto(path)
            found = axe.run(tab.page)
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"
            wide = tab.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is {wide} pixels too wide"
        assert tab.trouble == []


def test_an_event_is_found_by_keyboard_alone(browser: Any, url: str) -> None:
    with Tab(browser, url) as tab:
        page = tab.page
        page.goto("/topics")
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.type("orders")
        page.keyboard.press("Enter")
        page.wait_for_url("**/topics?q=orders")
        page.get_by_role("link", name="orders", exact=True).focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", level=1, name="orders").wait_for()
        page.get_by_role("link", name="Newest messages").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/topics/orders/messages")
        page.get_by_role("link", name="0-2", exact=True).focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", level=1, name="orders-0-2").wait_for()
        page.keyboard.press("]")
        page.get_by_role("heading", level=1, name="orders-0-3").wait_for()
        page.keyboard.press("g")
        page.keyboard.press("f")
        page.wait_for_url("**/track")
        page.keyboard.press("/")
        page.keyboard.type("c-2")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Outcomes").wait_for()
        assert page.get_by_role("cell", name="dead letter").count() == 2  # of billing and of shipping
        page.keyboard.press("g")
        page.keyboard.press("l")
        page.get_by_role("link", name="dlq.billing.orders").focus()
        page.keyboard.press("Enter")
        page.get_by_role("link", name="orders-0-2").wait_for()
        page.keyboard.press("g")
        page.keyboard.press("g")
        page.get_by_role("link", name="billing").focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", level=1, name="billing").wait_for()
        assert tab.trouble == []


def test_every_page_reads_without_scripts(browser: Any, url: str) -> None:
    with Tab(browser, url, java_script_enabled=False) as tab:
        for path in PAGES:
            tab.page.goto(path)
            assert tab.page.get_by_role("heading", level=1).inner_text()
        tab.page.goto("/topics/orders/messages")
        tab.page.get_by_role("combobox", name="From").select_option("oldest")
        tab.page.get_by_role("button", name="Show").click()
        assert tab.page.get_by_role("row").nth(1).get_by_role("link").inner_text() == "0-0"


def test_no_hostile_record_does_anything(browser: Any, url: str) -> None:
    with Tab(browser, url) as tab:
        for path in [
            "/topics/hostile/messages?count=200&from=oldest",
            *(f"/topics/hostile/messages/0/{offset}" for offset in range(len(HOSTILE))),
            "/letters/dlq.billing.orders",
        ]:
            tab.page.goto(path)
            assert tab.page.get_by_role("heading", level=1).count() == 1
            inside = "main script, main img, main iframe, main object, main style, main form[action^=http]"
            assert tab.page.locator(inside).count() == 0
            assert tab.page.evaluate("window.harmed") is None
            assert urlsplit(tab.page.url).netloc == urlsplit(url).netloc
        assert tab.trouble == []


def test_pictures_are_taken_for_people_to_look_at(browser: Any, url: str, tmp_path: Path) -> None:
    for scheme in ("light", "dark"):
        with Tab(browser, url, color_scheme=scheme, viewport={"width": 1280, "height": 800}) as tab:
            for number, path in enumerate(PAGES):
                tab.page.goto(path)
                picture = tmp_path / f"{number:02d}-{scheme}.png"
                tab.page.screenshot(path=picture, full_page=True)
                assert picture.stat().st_size > 1000


def test_a_tab_loads_beside_twelve_that_are_renewed(browser: Any, url: str) -> None:
    with Tab(browser, url) as tab:
        for _ in range(12):
            tab.context.new_page().goto("/")
        tab.page.goto("/groups/billing")
        assert tab.page.get_by_role("heading", level=1).inner_text() == "billing"
        # A part of the page is another one after a while: it was asked for again, and put in its place.
        tab.page.evaluate("document.getElementById('figures').dataset.seen = '1'")
        tab.page.wait_for_selector("#figures:not([data-seen])")
        assert tab.trouble == []


def test_names_are_found_as_they_are_typed(browser: Any, url: str) -> None:
    with Tab(browser, url) as tab:
        tab.page.goto("/")
        tab.page.keyboard.press("/")
        tab.page.keyboard.type("hos")
        tab.page.get_by_role("link", name="hostile", exact=True).click()
        tab.page.get_by_role("heading", level=1, name="hostile").wait_for()
        assert tab.trouble == []
