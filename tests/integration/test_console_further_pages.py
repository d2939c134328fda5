"""Pages of the console about what a cluster keeps beside messages: brokers, transactions, rights, schemas, ledgers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.base.acls import Acl, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.client.cluster import PartitionDescription
from kafkalite.console.brokers import full_after_s
from kafkalite.console.clusters import read_clusters
from kafkalite.console.policies import graph, strategy_text
from kafkalite.console.replication import matters_of
from kafkalite.console.rings import NAN
from kafkalite.console.sampler import FILE
from kafkalite.console.server import ConsoleServer
from kafkalite.failures.rows import Row, State, encode_row
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.wire.record.columns import Record
from tests.integration.test_console import LOOPBACK, ask, data
from tests.kit.harness.console_scene import SCRIPT, STAMP, fill, fill_further, register_some
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration

RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "flush.on.acks.all": "false",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(RULES) as running:
        with Client(running.bootstrap_servers) as client:
            fill(client)
            fill_further(client)
        yield running


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[ConsoleServer]:
    with RegistryServer(broker.bootstrap_servers, port=0) as registry:
        register_some(registry.url)
        with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], registry=registry.url) as server:
            wait_until(lambda: server.sampler.latest is not None, 60, "the first look")
            yield server


def test_brokers_and_their_disks_and_settings(console: ConsoleServer) -> None:
    (row,) = data(console, "/brokers")["brokers"]
    assert (row["id"], row["controller"], row["behind"], row["failed"]) == (1, True, 0, 0)
    assert row["leads"] == row["keeps"] > 5
    broker = data(console, "/brokers/1")
    (disk,) = broker["disks"]
    assert disk["total"] > disk["usable"] > 0
    assert disk["bytes"] == row["bytes"] > 0
    assert "hostile" in [topic["name"] for topic in disk["topics"]]
    settings = {setting["name"]: setting for setting in broker["settings"]}
    assert settings["flush.on.acks.all"]["own"]
    assert not settings["num.partitions"]["own"]
    assert len(settings["num.partitions"]["doc"]) > 10
    page = ask(console, "/brokers/1").text
    assert "settings with their default" in page


def test_replicas_and_the_quorum(console: ConsoleServer) -> None:
    page = data(console, "/replicas")
    assert (page["partitions"], page["kinds"][0]) == ([], {"name": "behind", "count": 0})
    (first, second) = data(console, "/replicas?show=all&q=RDERS&page=1")["partitions"][1:]
    assert (first["topic"], first["partition"], first["replicas"], first["in_sync"]) == ("orders", 0, [1], [1])
    assert (second["partition"], second["matters"]) == (1, [])
    assert ask(console, "/replicas?show=else").status == 400
    quorum = data(console, "/quorum")
    assert (quorum["leader"], [row["node_id"] for row in quorum["voters"]], quorum["observers"]) == (1, [1], [])
    (voter,) = quorum["voters"]
    assert (voter["leader"], voter["broker"], voter["lag"], voter["end"]) == (True, True, 0, quorum["high_watermark"])
    assert '<a class="action" href="/quorum">' in ask(console, "/brokers").text


@pytest.mark.parametrize(
    ("leader", "replicas", "in_sync", "matters"),
    [
        (1, (1, 2, 3), (1, 2, 3), ()),
        (1, (1, 2, 3), (1, 3), ("behind",)),
        (2, (1, 2), (1, 2), ("not preferred",)),
        (2, (1, 2), (2,), ("behind", "not preferred")),
        (-1, (1,), (1,), ("offline",)),
        (-1, (1, 2), (), ("offline", "behind")),
    ],
)
def test_what_is_the_matter_with_a_partition(
    leader: int, replicas: tuple[int, ...], in_sync: tuple[int, ...], matters: tuple[str, ...]
) -> None:
    assert matters_of(PartitionDescription(0, leader, 0, replicas, in_sync, 0)) == matters


def test_a_disk_is_full_when_it_goes_on_so() -> None:
    assert full_after_s([100.0] * 60 + [NAN, 90.0], 60_000) == pytest.approx(9 * 61 * 60)
    assert full_after_s([100.0, 90.0], 60_000) is None  # too short
    assert full_after_s([90.0] * 70 + [100.0], 60_000) is None


def test_an_open_transaction_and_one_that_hangs(broker: Broker, console: ConsoleServer) -> None:
    empty = data(console, "/transactions")
    assert empty["held"] == []
    with Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("moves", 1)
        producer = client.producer(transactional_id="mover")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("moves", 0, [b"a", b"b"])
        producer.flush()
        page = data(console, "/transactions")
        (held,) = page["held"]
        assert (held["topic"], held["start"], held["waiting"], held["id"], held["hangs"]) == (
            "moves",
            0,
            2,
            "mover",
            False,
        )
        first = page["transactions"][0]
        assert (first["id"], first["open"], first["partitions"]) == ("mover", True, ["moves-0"])
        assert data(console, "/transactions?q=nobody")["transactions"] == []
        producer.abort_transaction()
        producer.close()
    assert data(console, "/transactions")["held"] == []


def test_users_and_rules(broker: Broker, console: ConsoleServer) -> None:
    with Client(broker.bootstrap_servers) as client:
        client.users.set_password("ann", "a-secret-of-hers", "SCRAM-SHA-256", 4096)
        client.acls.create(
            [
                Acl(
                    ResourceType.TOPIC,
                    "orders",
                    PatternType.PREFIXED,
                    "User:ann",
                    "*",
                    AclOperation.READ,
                    AclPermission.ALLOW,
                )
            ]
        )
    page = data(console, "/rights")
    assert page["users"] == [{"user": "ann", "mechanisms": ["SCRAM-SHA-256"]}]
    (rule,) = page["rules"]
    assert (rule["principal"], rule["operation"], rule["name"], rule["prefixed"]) == (
        "User:ann",
        "read",
        "orders",
        True,
    )
    assert "a-secret-of-hers" not in ask(console, "/rights").text
    assert data(console, "/rights?q=bob")["rules"] == []


def test_schemas_their_versions_and_who_uses_them(console: ConsoleServer) -> None:
    assert data(console, "/subjects")["subjects"] == [{"name": "orders-value", "topic": "orders"}]
    subject = data(console, "/subjects/orders-value")
    assert (subject["versions"], subject["number"], subject["before"]) == ([1, 2], 2, 1)
    assert (subject["topic"], subject["groups"]) == ("orders", ["billing"])
    assert [line["text"].strip() for line in subject["diff"] if line["kind"] == "new"][:2] == ["},", "{"]
    assert data(console, "/subjects/orders-value?version=1")["diff"] == []
    assert SCRIPT not in ask(console, "/subjects/orders-value").text
    assert ask(console, "/subjects/none").status == 404
    assert ask(console, "/subjects/orders-value?version=9").status == 404


def test_ledgers_and_policies(console: ConsoleServer) -> None:
    page = data(console, "/policies")
    (group,) = page["groups"]
    assert (group["group"], group["waiting"], group["parked"], group["states"]["dead"]) == ("shipping", 2, 1, 1)
    assert group["strategy"].startswith("retried after 10 s, ")
    assert "shipping waits for billing" in page["graph"]["words"]
    shown = data(console, "/policies/shipping")
    assert [row["record"] for row in shown["rows"]] == ["orders-0-0", "orders-0-1", "orders-0-2"]
    assert [row["record"] for row in data(console, "/policies/shipping?state=dead")["rows"]] == ["orders-0-2"]
    assert [row["partition"] for row in shown["opened"]] == ["orders-1", "orders-2"]
    assert [(row["member"], row["since"], row["old"]) for row in shown["breakers"]] == [
        ("m-1", STAMP, True),
        ("m-2", STAMP, False),
    ]
    assert "breaker open" in ask(console, "/policies").text
    for path in ("/policies", "/policies/shipping"):
        assert SCRIPT not in ask(console, path).text
    assert ask(console, "/policies/shipping?state=there").status == 400


def test_records_handled_with_care_are_shown_until_it_is_over(broker: Broker, console: ConsoleServer) -> None:
    (row,) = data(console, "/policies/shipping")["doubted"]
    assert (row["partition"], row["first"], row["last"], row["since"]) == ("orders-2", 7, 39, STAMP)
    page = ask(console, "/policies/shipping").text
    assert "Suspect records" in page
    cells = re.search(r'<th scope="row" class="bytes">orders-2</th>(.*?)</tr>', page)
    assert cells is not None
    assert re.findall(r'<td class="number">(\d+)</td>', cells[1]) == ["7", "39"]
    assert SCRIPT not in page
    calm = encode_row(Row(State.OPEN, member="m-3", position=40))
    with Client(broker.bootstrap_servers) as client:
        client.produce("kafkalite.failures.shipping", 0, [Record(-1, -1, b"open/orders-2", calm)])
        assert data(console, "/policies/shipping")["doubted"] == []
        assert "Suspect records" not in ask(console, "/policies/shipping").text


def test_what_a_policy_says_in_words() -> None:
    assert strategy_text({"kind": "RetryHere", "attempts": 3, "then": {"kind": "RetryForever"}}) == (
        "3 attempts in place, then retried until it succeeds"
    )
    assert strategy_text({}) == "unknown"


def test_a_graph_has_columns_by_who_waits_and_ends_in_a_circle_too() -> None:
    found = graph({"a": [], "b": ["a"], "c": ["a", "b"], "alone": []})
    assert found is not None
    assert [(box["group"], box["x"] > 1) for box in found["boxes"]] == [("a", False), ("b", True), ("c", True)]
    assert len({box["x"] for box in found["boxes"]}) == 3
    assert graph({"a": [], "b": []}) is None
    assert graph({"a": ["b"], "b": ["a"]}) is not None


def test_what_the_cluster_lacks_is_not_among_the_parts(console: ConsoleServer) -> None:
    with Broker() as plain, ConsoleServer(plain.bootstrap_servers, [LOOPBACK]) as server:
        page = ask(server, "/topics").text
        assert 'href="/subjects"' not in page
        assert ask(server, "/subjects").status == 404
        assert data(server, "/rights")["enforced"] is False
        assert "has no ACLs" in ask(server, "/rights").text
    assert 'href="/subjects"' in ask(console, "/topics").text


def test_several_clusters_each_under_its_address(broker: Broker, tmp_path: Path) -> None:
    with Broker() as plain:
        with Client(plain.bootstrap_servers) as client:
            client.admin.create_topic("elsewhere", 1)
        file = tmp_path / "clusters.toml"
        file.write_text(
            f'[[cluster]]\nname = "live"\nbootstrap = "{broker.bootstrap_servers}"\ncolour = "red"\n'
            f'[[cluster]]\nname = "try-out"\nbootstrap = "{plain.bootstrap_servers}"\n'
        )
        with ConsoleServer("", [LOOPBACK], clusters=read_clusters(file), state=tmp_path / "state") as server:
            root = ask(server, "/")
            assert (root.status, root.headers["Location"]) == (302, "/c/live/")
            live, other = ask(server, "/c/live/topics"), ask(server, "/c/try-out/topics")
            assert ("orders" in live.text, "elsewhere" in live.text) == (True, False)
            assert ("orders" in other.text, "elsewhere" in other.text) == (False, True)
            assert 'class="colour colour-red"' in live.text
            assert 'class="colour' not in other.text
            for page in (live, ask(server, "/c/live/groups/billing"), ask(server, "/c/live/policies")):
                links = re.findall(r'(?:href|src|action)="(/[^"]*)"', page.text)
                assert len(links) > 8
                assert [link for link in links if not link.startswith(("/c/live/", "/c/try-out/"))] == []
            assert ask(server, "/c/live/static/console.css").status == 200
            assert data(server, "/c/try-out/topics/elsewhere")["name"] == "elsewhere"
            assert ask(server, "/c/none/topics").status == 404
            wait_until(lambda: server.sampler.latest is not None, 60, "the first look")
        assert (tmp_path / "state" / "live" / FILE).exists()
