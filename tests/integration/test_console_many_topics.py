"""Pages of the console where there are too many topics to ask for all of them each time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from kafkalite.client import Client
from kafkalite.client.cluster import READ_COMMITTED, Cluster
from kafkalite.console import sampler
from kafkalite.console.brokers import Brokers
from kafkalite.console.groups import group_page, groups_page
from kafkalite.console.letters import letters_page
from kafkalite.console.masks import Masks
from kafkalite.console.policies import policies_page
from kafkalite.console.requests import Request
from kafkalite.console.sampler import Sampler
from kafkalite.console.server import ConsoleServer
from kafkalite.console.topics import topic_page, topics_page
from kafkalite.console.transactions import Transactions
from kafkalite.model import TopicPartition
from tests.integration.test_console import LOOPBACK, data
from tests.kit.harness.console_client import Visitor
from tests.kit.harness.console_scene import fill, fill_further
from tests.kit.harness.forgotten_transaction import broker_that_forgot
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from kafkalite.broker import Broker

pytestmark = pytest.mark.integration


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One in which `moves` has a transaction that its coordinator forgot, and `orders` one that is open."""
    with broker_that_forgot(tmp_path, filled) as running:
        yield running


def filled(client: Client) -> None:
    fill(client)
    fill_further(client)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "PARTITIONS_MANY", 2)


def asking(seen: Sampler, *values: str, **fields: str) -> Request:
    return Request({"QUERY_STRING": urlencode(fields)}, values, Masks(), topics=seen.topics)


@pytest.mark.usefixtures("many")
def test_lists_come_from_the_last_look_and_only_what_is_shown_is_asked_for(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = int(time.time() * 1000)
    with Client(broker.bootstrap_servers) as client, Client(broker.bootstrap_servers) as own:
        producer = client.producer(transactional_id="mover")
        producer.begin_transaction()
        producer.send("orders", 0, [b"x"])
        producer.flush()
        seen = Sampler(own)
        seen.sample(now)
        assert seen.failure == ""
        client.produce("orders", 1, [b"since then"])
        client.admin.delete_topic("hostile")

        def refused(self: Cluster) -> Any:
            raise AssertionError("all topics were asked for")

        with monkeypatch.context() as patched:
            patched.setattr(Cluster, "topics", refused)
            page = topics_page(client, asking(seen))
            assert [(row["name"], row["records"]) for row in page["topics"]] == [
                ("dlq.billing.orders", 1),
                ("kafkalite.failures.shipping", 9),
                ("moves", 2),
                ("orders", 7),
            ]
            assert topic_page(client, asking(seen, "orders"))["groups"][0]["group"] == "billing"
            assert [row["lag"] for row in groups_page(client, asking(seen))["groups"]] == [2]
            assert group_page(client, asking(seen, "billing"))["lag"] == 2
            assert Brokers(seen).list_page(client, asking(seen))["brokers"][0]["leads"] >= 6
            assert [row["name"] for row in letters_page(client, asking(seen))["topics"]] == ["dlq.billing.orders"]
            assert [row["group"] for row in policies_page(client, asking(seen))["groups"]] == ["shipping"]
            for sought in ("", "nobody"):
                page = Transactions(seen).page(client, asking(seen, q=sought))
                held = [(row["topic"], row["start"], row["id"], row["hangs"]) for row in page["held"]]
                assert held == [("moves", 0, "", True), ("orders", 4, "mover", False)]
                assert page["seen"] == now
        seen.renew()
        assert "hostile" not in seen.topics(client)
        seen.sample(now + 5000)
        assert "hostile" not in seen.topics(client)
        producer.abort_transaction()
        producer.close()
        seen.stop()


@pytest.mark.usefixtures("many")
def test_what_was_changed_here_is_listed_at_once(broker: Broker) -> None:
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK]) as server:
        wait_until(lambda: server.sampler.latest is not None, 60, "the first look")
        visitor = Visitor(server)
        for number in range(3):
            visitor.send("/new-topic", {"name": f"fresh-{number}", "count": 1})
            assert f"fresh-{number}" in [row["name"] for row in data(server, "/topics?q=fresh")["topics"]]


def test_of_named_topics_those_are_described_that_there_are(broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as client:
        found = client.described(["orders", "nowhere", "moves", "orders"])
        assert {name: len(row.partitions) for name, row in found.items()} == {"orders": 2, "moves": 1}
        assert client.described([]) == {}
        assert [row.group.group_id for row in client.groups.progress({"billing", "nobody"})] == ["billing"]
        (row,) = client.groups.progress(["billing"])
        assert row.committed == {TopicPartition("orders", 0): 3}


# --- a transaction that hangs is ended --------------------------------------------------------------------------------


def test_a_transaction_that_hangs_is_aborted_by_its_partitions_name(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    path, sentence = "/transactions/moves/0/0/abort", {"confirm": "moves-0"}
    with (
        caplog.at_level("INFO", logger="kafkalite.console"),
        ConsoleServer(broker.bootstrap_servers, [LOOPBACK]) as server,
        Client(broker.bootstrap_servers) as client,
    ):
        visitor = Visitor(server)
        wait_until(lambda: server.sampler.latest is not None, 60, "the first look")
        assert f'href="{path}"' in visitor.get("/transactions").text
        page = visitor.data(path)
        assert (page["name"], page["hangs"], page["id"]) == ("moves-0", True, "")
        assert "no coordinator knows its producer" in visitor.get(path).text
        producer = {"producer": str(page["producer"])}
        assert visitor.form(path, {**producer, "confirm": "moves"}).status == 400
        assert visitor.form(path, {"producer": "77", **sentence}).status == 409
        assert client.transactions.open_in(TopicPartition("moves", 0)) != ()
        assert visitor.form(path, {**producer, **sentence}).headers["location"] == "/transactions?done=aborted"
        assert client.transactions.open_in(TopicPartition("moves", 0)) == ()
        assert [chunk for chunk in client.read("moves", 0, isolation=READ_COMMITTED) if len(chunk.columns)] == []
        assert visitor.data("/transactions")["held"] == []
        assert visitor.form(path, {**producer, **sentence}).status == 409
        assert visitor.get(path).status == 404
        for wrong in ("/transactions/moves/x/0/abort", "/transactions/moves/7/0/abort", "/transactions/none/0/0/abort"):
            assert visitor.get(wrong).status == 404, wrong
    deeds = [record.__dict__["fields"] for record in caplog.records if record.message == "audit"]
    assert [(row["action"], row["target"], row["outcome"]) for row in deeds][:3] == [
        ("transactions.abort", "moves/0/0", "refused"),
        ("transactions.abort", "moves/0/0", "failed"),
        ("transactions.abort", "moves/0/0", "done"),
    ]


def test_one_that_does_not_hang_is_said_to_be_open(broker: Broker) -> None:
    with (
        ConsoleServer(broker.bootstrap_servers, [LOOPBACK]) as server,
        Client(broker.bootstrap_servers) as client,
        client.producer(transactional_id="mover") as producer,
    ):
        producer.begin_transaction()
        producer.send("orders", 1, [b"x"])
        producer.flush()
        text = Visitor(server).get("/transactions/orders/1/1/abort").text
        assert "The transaction does not hang: <code>mover</code> has it open" in text
        producer.abort_transaction()
