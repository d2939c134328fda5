"""What operators do at the console, in a real browser: transactions are ended, groups moved by a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.client import Client
from kafkalite.console.server import ConsoleServer
from kafkalite.model import TopicPartition
from tests.integration.test_console import LOOPBACK
from tests.kit.harness.browser import Tab, needs_browser, started_browser
from tests.kit.harness.console_scene import fill
from tests.kit.harness.forgotten_transaction import broker_that_forgot
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from kafkalite.broker import Broker

axe_module, pytestmark = needs_browser()

PAGES = ("/transactions", "/transactions/moves/0/0/abort", "/groups/billing/reset", "/brokers", "/replicas", "/quorum")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_that_forgot(tmp_path_factory.mktemp("data"), fill) as running:
        yield running


@pytest.fixture(scope="module")
def url(broker: Broker) -> Iterator[str]:
    with (
        ConsoleServer(broker.bootstrap_servers, [LOOPBACK], metrics=broker.metrics_urls) as server,
        Client(broker.bootstrap_servers) as client,
    ):
        wait_until(lambda: server.sampler.latest is not None, 60, "the first look")

        def drawn() -> bool:
            client.produce("orders", 1, [b"x"])
            return server.sampler.rings.get("latency-p99", "produce") is not None

        wait_until(drawn, 120, "two reads of the metrics, with requests between them")
        yield server.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started_browser() as started:
        yield started


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_nothing_scrolls_sideways_at_200_percent(
    browser: Any, url: str, scheme: str, tmp_path: Path
) -> None:
    axe = axe_module.Axe()
    with Tab(browser, url, color_scheme=scheme, viewport={"width": 640, "height": 512}) as tab:
        for number, path in enumerate(PAGES):
            tab.page.goto(path)
            for summary in tab.page.locator("details:not([open]) > summary").all():
                summary.click()
            found = axe.run(tab.page)
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"
            wide = tab.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is {wide} pixels too wide"
            tab.page.screenshot(path=tmp_path / f"{number}-{scheme}.png", full_page=True)
        assert tab.trouble == []


def test_a_group_is_moved_by_lines_and_by_a_chosen_file(browser: Any, broker: Broker, url: str, tmp_path: Path) -> None:
    place = TopicPartition("orders", 0)
    with Tab(browser, url) as tab, Client(broker.bootstrap_servers) as client:
        page = tab.page
        page.goto("/groups/billing/reset")
        page.get_by_text("From a file").focus()
        page.keyboard.press("Enter")
        page.get_by_role("textbox", name="CSV lines").focus()
        page.keyboard.type("orders,0,1")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Show what would change"
        page.keyboard.press("Enter")
        page.get_by_role("cell", name="2 to be read again").wait_for()
        assert client.groups.committed("billing")[place].offset == 3
        page.get_by_role("button", name="Reset the offsets").focus()
        page.keyboard.press("Enter")
        page.get_by_role("status").wait_for()
        assert client.groups.committed("billing")[place].offset == 1
        (tmp_path / "offsets.csv").write_text("billing,orders,0,2\n")
        page.goto("/groups/billing/reset")
        page.get_by_text("From a file").click()
        page.get_by_label("or choose a file").set_input_files(tmp_path / "offsets.csv")
        page.wait_for_function("document.querySelector('textarea').value.startsWith('billing')")
        page.get_by_role("button", name="Show what would change").last.click()
        page.get_by_role("cell", name="1 skipped").wait_for()
        assert tab.trouble == []


def test_a_transaction_that_hangs_is_aborted_by_keyboard(browser: Any, broker: Broker, url: str) -> None:
    with Tab(browser, url) as tab, Client(broker.bootstrap_servers) as client:
        page = tab.page
        page.goto("/transactions")
        page.get_by_role("link", name="Abort in moves-0").focus()
        page.keyboard.press("Enter")
        page.get_by_role("textbox", name="Type moves-0").focus()
        page.keyboard.type("moves-0")
        page.keyboard.press("Enter")
        page.get_by_role("status").wait_for()
        assert client.transactions.open_in(TopicPartition("moves", 0)) == ()
        assert tab.trouble == []
