"""The console's numbers: looks at a broker at times that a test sets, what pages make of them, and their file."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.console.rings import HOUR
from kafkalite.console.sampler import FILE, Sampler, require_writable
from kafkalite.console.server import ConsoleServer
from kafkalite.errors import StartupError
from kafkalite.model import TopicPartition
from kafkalite.web.server import parse_address
from tests.integration.test_console import LOOPBACK, ask, data

pytestmark = pytest.mark.integration

ORDERS = TopicPartition("orders", 0)
NOW = int(time.time() * 1000)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as running:
        with Client(running.bootstrap_servers) as client:
            client.admin.create_topic("orders", 1)
        yield running


def looks(client: Client, sampler: Sampler, count: int = 14, end_ms: int = NOW) -> None:
    """Ten records come between two looks, of which the group reads nine."""
    for step in range(count):
        client.produce("orders", 0, [b"x"] * 10)
        client.groups.commit("billing", {ORDERS: 9 * (step + 1)})
        sampler.sample(end_ms - (count - 1 - step) * HOUR.step_ms)
        assert sampler.failure == ""


def test_what_was_seen_is_told_on_every_page(broker: Broker) -> None:
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK]) as server, Client(broker.bootstrap_servers) as client:
        now = int(time.time() * 1000)
        sampler = server.sampler
        sampler.stop()
        with Client(broker.bootstrap_servers) as own:
            fresh = Sampler(own)
            looks(client, fresh, end_ms=now)
        sampler.rings, sampler.latest = fresh.rings, fresh.latest
        home = data(server, "/")
        assert (home["sample"]["topics"], home["sample"]["groups"], home["sample"]["offline"]) == (1, 1, 0)
        assert (home["sample"]["rate_in"], home["sample"]["rate_out"]) == (2.0, 1.8)
        assert home["sample"]["bytes"] > 0
        assert [(row["group"], row["trouble"], row["lag"]) for row in home["groups"]] == [("billing", "rising", 14)]
        written, read = home["charts"][0]["lines"]
        assert [value for value in written["values"] if value is not None] == [2.0] * 13
        assert [value for value in read["values"] if value is not None] == [1.8] * 13
        page = ask(server, "/groups/billing").text
        titles = re.findall(r'<title id="[^"]+">([^<]+)</title>', page)
        assert [title.split(" in the last hour")[0] for title in titles] == [
            "Lag",
            "Age of the oldest unread message",
            "Messages consumed",
        ]
        assert "orders 14 last, 1 to 14" in titles[0]
        assert re.search(r'<path class="line line-0" d="M7[0-9.]+ [0-9.]+L', page)
        assert "Bytes on disk" in ask(server, "/topics/orders?window=day").text
        assert ask(server, "/topics/orders?window=year").status == 400
        found = data(server, "/search?q=OR")
        assert ([row["name"] for row in found["topics"]], found["groups"]) == (["orders"], [])
        assert [row["group"] for row in data(server, "/search?q=bill")["groups"]] == ["billing"]


def test_numbers_are_there_again_after_a_restart(broker: Broker, tmp_path: Path) -> None:
    with Client(broker.bootstrap_servers) as client:
        first = Sampler(client.twin(), tmp_path)
        looks(client, first)
        first.stop()
        topic_id = client.topic("orders").topic_id.hex()
        key = ("lag", "billing", "orders", topic_id)
        again = Sampler(client.twin(), tmp_path)
        again.sample(NOW + 60_000)
        series = again.rings.get(*key)
        assert series is not None
        window = series.window(HOUR, NOW + 60_000)
        assert [value for value in window if value == value] == [float(n) for n in [*range(1, 15), 14]]
        assert [value == value for value in window[-12:]] == [False] * 11 + [True]
        again.stop()


def test_a_place_for_numbers_is_made_and_one_that_is_no_file_of_ours_is_refused(tmp_path: Path) -> None:
    require_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / FILE).mkdir()
    with pytest.raises(StartupError, match=r"--state-dir .*: cannot write: Is a directory"):
        ConsoleServer("127.0.0.1:1", [LOOPBACK], state=tmp_path)


def test_numbers_of_another_cluster_or_of_a_damaged_file_are_not_taken(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(broker.bootstrap_servers) as client:
        first = Sampler(client.twin(), tmp_path)
        looks(client, first, 2)
        first.stop()
        with Broker() as other, Client(other.bootstrap_servers) as stranger:
            sampler = Sampler(stranger.twin(), tmp_path)
            sampler.sample(NOW)
            assert sampler.rings.get("total-in") is None
            assert "is from another cluster" in caplog.text
            sampler.stop()
        (tmp_path / FILE).write_bytes(b"nonsense")
        sampler = Sampler(client.twin(), tmp_path)
        sampler.sample(NOW)
        assert "is discarded" in caplog.text
        assert sampler.failure == ""
        sampler.stop()
    assert not (tmp_path / f"{FILE}.new").exists()


def test_a_recreated_topic_has_a_separate_series(broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as client:
        sampler = Sampler(client.twin())
        looks(client, sampler, 3, NOW - 60_000)
        before = client.topic("orders").topic_id.hex()
        client.admin.delete_topic("orders")
        client.admin.create_topic("orders", 1)
        client.produce("orders", 0, [b"x"])
        for step in range(2):
            sampler.sample(NOW + step * HOUR.step_ms)
        after = client.refresh(["orders"]).topics[0].topic_id.hex()
        fresh = sampler.rings.get("in", "orders", after)
        assert after != before
        assert fresh is not None
        assert [value for value in fresh.window(HOUR, NOW + 5000) if value == value] == [0.0]
        sampler.stop()


def test_a_cluster_that_is_away_leaves_a_gap_and_a_sentence(tmp_path: Path) -> None:
    with ConsoleServer(
        "127.0.0.1:1", [parse_address("http://127.0.0.1:0", 0)], timeout_s=1.0, state=tmp_path
    ) as server:
        server.sampler.sample(NOW)
        assert "127.0.0.1" in server.sampler.failure
        assert data(server, "/search?q=x")["topics"] == []
    assert list(tmp_path.iterdir()) == []
