"""Pictures of the console for its documentation, and of every page for people to look at.

    python -m tests.kit.processes.console_pictures docs/console      the three of the documentation
    python -m tests.kit.processes.console_pictures DIR --all         every page: light, dark and on a phone

A broker with a shop of some hours (tests/kit/harness/console_shop.py), the console, Debian's chromium.
"""

from __future__ import annotations

import contextlib
import random
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from kafkalite.avro.client import RegistryClient
from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.console.clusters import ClusterEntry
from kafkalite.console.server import ConsoleServer
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.web.server import parse_address
from tests.kit.harness.browser import started_browser
from tests.kit.harness.console_scene import register_some
from tests.kit.harness.console_shop import EVENT, fail_some, fill_shop, lived

DOCUMENTED = {
    "overview": "/",
    "group": "/groups/warehouse",
    "track": f"/track?id={EVENT}&topics=orders,payments,mails,dlq.*&in=header:correlation-id&groups=1",
}
PAGES = (
    *DOCUMENTED.values(),
    "/topics",
    "/topics?q=nothing-like-it",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages/0/0",
    "/groups",
    "/groups/analytics?window=day",
    "/groups/search-index",
    "/letters",
    "/letters/dlq.billing.payments",
    "/policies",
    "/policies/billing",
    "/transactions",
    "/brokers",
    "/brokers/1",
    "/rights",
    "/subjects",
    "/subjects/orders-value",
    "/search?q=or",
    "/produce",
    "/nowhere",
)
SIZE = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}


def take(browser: Any, url: str, directory: Path, *, every: bool) -> None:
    """All pictures."""
    if not every:
        with contextlib.closing(browser.new_context(base_url=url, color_scheme="light", viewport=SIZE)) as context:
            page = context.new_page()
            for name, path in DOCUMENTED.items():
                page.goto(f"{url}{path}")
                page.screenshot(path=directory / f"{name}.png")
        return
    for scheme, size in (("light", SIZE), ("dark", SIZE), ("light", PHONE)):
        with contextlib.closing(browser.new_context(color_scheme=scheme, viewport=size)) as context:
            page = context.new_page()
            for number, path in enumerate(PAGES):
                page.goto(f"{url}{path}")
                name = re.sub(r"[^a-z0-9]+", "-", path.partition("?")[0].strip("/")) or "overview"
                page.screenshot(path=directory / f"{number:02d}-{name}-{scheme}-{size['width']}.png", full_page=True)


def main(directory: Path, *, every: bool) -> None:
    """Makes the scene, and takes the pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    here = [parse_address("http://127.0.0.1:0", 0)]
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory(prefix="shop-"))
        settings = {"log.dirs": data, "flush.on.acks.all": "false", "offsets.topic.num.partitions": "2"}
        broker = stack.enter_context(Broker(settings))
        client = stack.enter_context(Client(broker.bootstrap_servers))
        fill_shop(client)
        fail_some(broker.bootstrap_servers)
        registry = stack.enter_context(RegistryServer(broker.bootstrap_servers, port=0))
        register_some(registry.url)
        with RegistryClient(registry.url) as asked:
            asked.register("payments-value", '{"type":"record","name":"Payment","fields":[]}')
        entries = [
            ClusterEntry("shop", broker.bootstrap_servers, None, registry.url, "green"),
            ClusterEntry("live", "127.0.0.1:1", None, None, "red"),
        ]
        server = ConsoleServer("", here, clusters=entries, timeout_s=5.0)
        stack.enter_context(lived(client, server.sampler, random.Random(7)))
        server.sampler.stop()  # what it has seen stays
        stack.enter_context(server)
        take(stack.enter_context(started_browser()), f"{server.url}/c/shop", directory, every=every)


if __name__ == "__main__":
    main(Path(sys.argv[1]), every="--all" in sys.argv[2:])
