"""The console's pages about Kafka 0.7 in a real browser: accessible, by keyboard, without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.console.server import ConsoleServer
from tests.integration.test_console import LOOPBACK
from tests.kit.harness.browser import Tab, needs_browser, started_browser
from tests.kit.harness.console_classic import classic_scene

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.kit.processes.zookeeper import ZooKeeper

axe_module, pytestmark = needs_browser()
pytestmark.append(pytest.mark.zookeeper)

PAGES = ("/classic", "/classic/topics/visits", "/classic/groups/reports", "/classic/groups/old", "/classic?q=none")


@pytest.fixture
def url(zookeeper: ZooKeeper, zookeeper_client: KazooClient) -> Iterator[str]:
    with (
        classic_scene(zookeeper_client, zookeeper.address) as scene,
        ConsoleServer(scene.broker.bootstrap_servers, [LOOPBACK], zookeeper=zookeeper.address) as server,
    ):
        yield server.url


def test_axe_finds_nothing_and_the_keys_lead_from_group_to_messages(url: str, tmp_path: Path) -> None:
    axe = axe_module.Axe()
    with started_browser() as browser:
        for scheme in ("light", "dark"):
            with Tab(browser, url, color_scheme=scheme, viewport={"width": 640, "height": 480}) as tab:
                for path in PAGES:
                    tab.page.goto(path)
                    assert axe.run(tab.page).response["violations"] == [], path
                    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
                    name = path.replace("/", "-").replace("?", "-")
                    tab.page.screenshot(path=tmp_path / f"{scheme}{name}.png", full_page=True)
                assert tab.trouble == []
        with Tab(browser, url) as tab:
            page = tab.page
            page.goto("/")
            page.keyboard.press("g")
            page.keyboard.press("z")
            page.wait_for_url("**/classic")
            page.get_by_role("link", name="reports").focus()
            page.keyboard.press("Enter")
            page.wait_for_url("**/classic/groups/reports")
            page.get_by_role("link", name="visits").first.focus()
            page.keyboard.press("Enter")
            page.get_by_role("link", name="Newest messages").focus()
            page.keyboard.press("Enter")
            page.wait_for_url("**/topics/visits/messages")
        with Tab(browser, url, java_script_enabled=False) as tab:
            for path in PAGES:
                answer = tab.page.goto(path)
                assert answer.status == 200
                assert tab.page.get_by_role("heading", level=1).count() == 1
