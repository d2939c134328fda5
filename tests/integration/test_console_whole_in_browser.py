"""The console as one works with it: all of it by keyboard alone, and a topic watched that is written fast."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.console.server import ConsoleServer
from kafkalite.model import TopicPartition
from tests.integration.test_console import LOOPBACK
from tests.kit.harness.browser import Tab, needs_browser, started_browser
from tests.kit.harness.console_scene import fill
from tests.kit.processes.broker import wait_until

_, pytestmark = needs_browser()

TABS_MAX = 150
FOCUSED = """() => {
  const one = document.activeElement;
  const label = one.getAttribute('aria-label') || (one.labels && one.labels.length && one.labels[0].textContent);
  return one === document.body ? '' : `${one.tagName} ${(label || one.textContent || '').trim()}`;
}"""
NOTE_MICE = """
addEventListener('pointerdown', () => { sessionStorage.mice = 1 + Number(sessionStorage.mice || 0); }, true);
addEventListener('mousedown', () => { sessionStorage.mice = 1 + Number(sessionStorage.mice || 0); }, true);
"""
WATCHED_S = float(os.environ.get("KAFKALITE_WATCHED_S", "30"))
"""How long the topic is watched that is written fast; ten minutes by hand."""
RATE = 50_000
BROWSER_MAX = 300 * 2**20


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as running:
        with Client(running.bootstrap_servers) as client:
            fill(client)
        yield running


@pytest.fixture(scope="module")
def url(broker: Broker) -> Iterator[str]:
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK]) as server:
        wait_until(lambda: server.sampler.latest is not None, 60, "the first look")
        yield server.url


class Keys:
    """A visitor without a mouse: what he wants he reaches by Tab, where no key leads to it."""

    def __init__(self, page: Any) -> None:
        self._page = page

    def to(self, tag: str, name: str) -> None:
        """Moves the focus to the next element of that kind whose label begins so."""
        seen = []
        for _ in range(TABS_MAX):
            self._page.keyboard.press("Tab")
            seen.append(self._page.evaluate(FOCUSED))
            if seen[-1].upper().startswith(f"{tag.upper()} ") and seen[-1].partition(" ")[2].startswith(name):
                outline = self._page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline != "none", f"the focus on {name} is not seen"
                return
        raise AssertionError(f"Tab does not lead to {tag} {name}: {seen}")

    def follow(self, name: str, heading: str) -> None:
        """A link, and what it leads to."""
        self.to("A", name)
        self.press("Enter")
        self._page.get_by_role("heading", level=1, name=heading, exact=True).wait_for()

    def press(self, *keys: str) -> None:
        for key in keys:
            self._page.keyboard.press(key)

    def write(self, text: str) -> None:
        self._page.keyboard.type(text)


def test_one_walk_through_all_of_it_by_keyboard_alone(browser_tab: Tab, broker: Broker) -> None:
    """Find a topic, filter, open a message, follow its event, open its letter, redrive it, move the group."""
    page, keys = browser_tab.page, Keys(browser_tab.page)
    with Client(broker.bootstrap_servers) as client:
        page.goto("/")
        keys.press("g", "t")
        page.wait_for_url("**/topics")
        keys.press("/")
        keys.write("orders")
        keys.press("Enter")
        page.wait_for_url("**/topics?q=orders*")
        keys.follow("orders", "orders")
        keys.follow("Newest messages", "Messages of orders")
        keys.follow("0-2", "orders-0-2")
        keys.press("]")
        page.get_by_role("heading", level=1, name="orders-0-3").wait_for()
        keys.press("[")
        page.get_by_role("heading", level=1, name="orders-0-2").wait_for()
        keys.press("g", "f")
        page.wait_for_url("**/track")
        keys.press("/")
        keys.write("c-2")
        keys.press("Enter")
        page.get_by_role("heading", name="Outcomes").wait_for()
        keys.press("g", "l")
        page.get_by_role("heading", level=1, name="Dead letters").wait_for()
        keys.follow("dlq.billing.orders", "dlq.billing.orders")
        keys.to("INPUT", "All dead letters on this page")
        keys.press("Space")
        end = client.end_offset("orders", 0)
        keys.to("BUTTON", "Redrive")
        keys.press("Enter")
        page.get_by_role("row", name="letters sent 1").wait_for()
        assert [raw for chunk in client.read("orders", 0, end) for raw in chunk.columns.values] == [b'{"id": 2}']
        keys.press("g", "g")
        page.get_by_role("heading", level=1, name="Groups").wait_for()
        keys.follow("billing", "billing")
        keys.follow("Reset offsets", "Reset the offsets of billing")
        keys.to("SELECT", "To")
        keys.write("earliest")
        keys.to("BUTTON", "Show what would change")
        keys.press("Enter")
        page.get_by_role("cell", name="3 to be read again").wait_for()
        keys.to("BUTTON", "Reset the offsets")
        keys.press("Enter")
        page.get_by_role("status").filter(has_text="reset").wait_for()
        assert client.groups.committed("billing")[TopicPartition("orders", 0)].offset == 0
    assert page.evaluate("sessionStorage.mice || 0") == 0
    assert browser_tab.trouble == []


@pytest.fixture
def browser_tab(url: str) -> Iterator[Tab]:
    with started_browser() as browser, Tab(browser, url) as tab:
        tab.context.add_init_script(NOTE_MICE)
        yield tab


@pytest.mark.timeout(300 + WATCHED_S)
def test_a_topic_that_is_written_fast_does_not_fill_the_browser(browser_tab: Tab, broker: Broker) -> None:
    stop, sent = threading.Event(), [0]

    def write() -> None:
        values = [b"%d" % number for number in range(RATE // 20)]
        began = time.monotonic()
        with Client(broker.bootstrap_servers) as client:
            while not stop.is_set():
                client.produce("fast", sent[0] % 2, values)
                sent[0] += 1
                stop.wait(max(began + sent[0] / 20 - time.monotonic(), 0))

    with Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("fast", 2, configs={"retention.bytes": str(64 * 2**20)})
    page = browser_tab.page
    page.goto("/topics/fast/tail")
    writer = threading.Thread(target=write)
    writer.start()
    largest, ends = 0, time.monotonic() + WATCHED_S
    try:
        said = page.get_by_text(re.compile(r"shown · [1-9][0-9,]* skipped"))
        said.wait_for()
        while time.monotonic() < ends:
            page.wait_for_timeout(1000)
            largest = max(largest, renderers())
        told = said.inner_text()
    finally:
        stop.set()
        writer.join()
    rows = page.get_by_role("region", name="Messages").get_by_role("rowheader").count()
    print(f"{sent[0] * (RATE // 20)} records in {WATCHED_S:g} s, the browser had {largest >> 20} MiB at most: {told}")
    assert rows <= 500
    assert largest < BROWSER_MAX, f"{largest >> 20} MiB"
    assert browser_tab.trouble == []


def renderers() -> int:
    """Bytes that the tab's process has for itself."""
    sizes = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "--type=renderer" in process.cmdline():
                sizes.append(process.memory_full_info().uss)
        except psutil.Error:
            continue
    return max(sizes, default=0)
