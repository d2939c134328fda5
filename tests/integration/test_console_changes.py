"""What the console changes, over HTTP: who may, what is sent, what is refused, and what is written down of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.avro import RegistryClient
from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.console.application import ROUTES
from kafkalite.console.masks import Masks
from kafkalite.console.server import ConsoleServer
from kafkalite.model import TopicPartition
from kafkalite.record.columns import Record
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.web.server import parse_address
from kafkalite.web.users import Role, Users, token_line
from tests.kit.harness.console_client import Visitor

pytestmark = pytest.mark.integration

LOOPBACK = parse_address("http://127.0.0.1:0", 0)
EVERYBODY = parse_address("http://0.0.0.0:0", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as running:
        with Client(running.bootstrap_servers) as client:
            client.admin.create_topic("orders", 4)
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture(scope="module")
def visitor(broker: Broker) -> Iterator[Visitor]:
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK]) as server:
        yield Visitor(server)


def records(client: Client, topic: str) -> list[tuple[int, Record]]:
    return [
        (number, record)
        for number in client.partitions(topic)
        for chunk in client.read(topic, number)
        for record in chunk.records()
    ]


# --- who may ----------------------------------------------------------------------------------------------------------


def role_of(methods: Any, method: str) -> Role:
    role: Role = methods[method].role
    return role


def test_roles_draw_and_serve_what_they_may(broker: Broker) -> None:
    lines = {role: token_line(role.name.lower(), role) for role in Role}
    users = Users(line for line, _ in lines.values())
    with ConsoleServer(broker.bootstrap_servers, [EVERYBODY], users=users, writes=True) as server:
        for role, (_, token) in lines.items():
            visitor = Visitor(server, authorization=f"Bearer {token}")
            assert ("Send a record" in visitor.get("/topics/orders").text) == (role >= Role.OPERATOR)
            for path, methods in ROUTES:
                for method in set(methods) & {"POST"}:
                    denied = visitor.form(path.replace("{}", "0"), {}).status == 403
                    assert denied == (role_of(methods, method) > role), (path, role)
                if "GET" in methods and role_of(methods, "GET") > role:
                    assert visitor.get(path.replace("{}", "0")).status == 403
    with ConsoleServer(broker.bootstrap_servers, [EVERYBODY], users=users) as server:
        visitor = Visitor(server, authorization=f"Bearer {lines[Role.ADMIN][1]}")
        refused_everywhere(visitor, "reads and changes nothing")


def refused_everywhere(visitor: Visitor, why: str) -> None:
    page = visitor.get("/topics/orders").text
    assert "reads only" in page
    assert "/produce" not in page
    for path, methods in ROUTES:
        for method in set(methods) & {"POST"}:
            answer = visitor.form(path.replace("{}", "0"), {})
            assert role_of(methods, method) > Role.VIEWER
            assert (answer.status, why in answer.text) == (403, True), path


def test_a_console_that_reads_only_does_so_on_this_machine_too(broker: Broker) -> None:
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], writes=False) as server:
        refused_everywhere(Visitor(server), "reads and changes nothing")


def test_no_path_changes_anything_for_a_page_of_another_site(visitor: Visitor, client: Client) -> None:
    before = len(records(client, "orders"))
    fields = {"topic": "orders", "value": "x"}
    for headers in ({"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}, {"sec_fetch_site": "none"}):
        assert visitor.form("/produce", fields, **headers).status == 403
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert visitor.ask("POST", "/produce", "topic=orders&value=x", kind).status == 403
    assert visitor.ask("POST", "/produce", "topic=orders&value=x", {**kind, "origin": "null"}).status == 403
    assert len(records(client, "orders")) == before


# --- what is written down ---------------------------------------------------------------------------------------------


def test_each_change_is_a_line_and_a_record_of_the_audit(
    broker: Broker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.admin.create_topic("audit", 1)
    line, token = token_line("ann", Role.OPERATOR)
    with (
        caplog.at_level(logging.INFO, logger="kafkalite.console"),
        ConsoleServer(
            broker.bootstrap_servers, [EVERYBODY], users=Users([line]), writes=True, audit_topic="audit"
        ) as server,
    ):
        visitor = Visitor(server, authorization=f"Bearer {token}")
        visitor.send("/produce", {"topic": "orders", "value": "a secret", "partition": 1})
        visitor.send_any("/produce", {"topic": "orders", "value": "{", "value_kind": "json"})
    written = [json.loads(record.value or b"") for _, record in records(client, "audit")]
    assert [(row["who"], row["action"], row["outcome"]) for row in written] == [
        ("ann", "topics.send", "asked"),
        ("ann", "topics.send", "done"),
        ("ann", "topics.send", "asked"),
        ("ann", "topics.send", "refused"),
    ]
    assert written[1]["detail"] == {"topic": "orders", "partition": 1, "offset": 0, "size": 8}
    lines = [record.__dict__["fields"] for record in caplog.records if record.message == "audit"]
    assert [(row["who"], row["outcome"]) for row in lines] == [("ann", "done"), ("ann", "refused")]
    everything = json.dumps(written) + str(lines) + caplog.text
    assert "a secret" not in everything
    assert token not in everything


def test_nothing_is_changed_that_cannot_be_written_down(broker: Broker, client: Client) -> None:
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], audit_topic="no such topic") as server:
        before = len(records(client, "orders"))
        answer = Visitor(server).send_any("/produce", {"topic": "orders", "value": "x"})
        assert (answer.status, "cannot be written" in answer.text) == (503, True)
        assert len(records(client, "orders")) == before


# --- sending ----------------------------------------------------------------------------------------------------------


def test_a_record_is_sent_as_it_was_meant_and_found_in_the_list(visitor: Visitor, client: Client) -> None:
    client.admin.create_topic("made", 3)
    answer = visitor.form(
        "/produce",
        {
            "topic": "made",
            "key_kind": "text",
            "key": "k1",
            "value_kind": "json",
            "value": '{"a":\r\n 1}',
            "headers": "trace: 7\r\n",
        },
    )
    assert answer.status == 303
    ((number, record),) = records(client, "made")
    assert answer.headers["location"] == f"/topics/made/messages/{number}/0?done=sent"
    assert "The record was sent" in visitor.get(answer.headers["location"]).text
    assert record[2:] == (b"k1", b'{"a":\n 1}', (("trace", b"7"),))
    with client.producer() as producer:  # its own choice of a partition for the key, as the column writer's
        from kafkalite.client.write.partitioning import partition_of

        assert number == partition_of(b"k1", 3)
        producer.flush()
    sent = visitor.send(
        "/produce", {"topic": "made", "partition": 2, "value_kind": "null", "key_kind": "hex", "key": "00ff"}
    )
    assert sent == {"topic": "made", "partition": 2, "offset": 0 if number != 2 else 1}
    assert [row["topic"] for row in visitor.data("/sent")["sent"]][:2] == ["made", "made"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"value": "x"}, "name a topic"),
        ({"topic": "none-such"}, "none-such"),
        ({"topic": "orders", "partition": "9"}, "4 partitions"),
        ({"topic": "orders", "partition": "x"}, "whole number"),
        ({"topic": "orders", "value_kind": "json", "value": "{"}, "no JSON"),
        ({"topic": "orders", "value_kind": "hex", "value": "0"}, "no hexadecimal"),
        ({"topic": "orders", "value_kind": "null", "value": "x"}, "to be null"),
        ({"topic": "orders", "value_kind": "avro", "value": "{}"}, "needs a schema registry"),
        ({"topic": "orders", "value_kind": "else", "value": "{}"}, "sent as one of"),
        ({"topic": "orders", "headers": "nothing"}, "is no header"),
        ({"topic": "__consumer_offsets", "value": "x"}, "kept by the brokers"),
    ],
)
def test_what_cannot_be_sent_comes_back_with_why_and_nothing_is_lost(
    visitor: Visitor, client: Client, fields: dict[str, str], said: str
) -> None:
    client.groups.commit("some", {TopicPartition("orders", 0): 0})  # for the brokers' own topic
    before = len(records(client, "orders"))
    answer = visitor.form("/produce", {"key_kind": "text", "key": "typed & kept", **fields})
    assert (answer.status, said in answer.text) == (400, True), answer.text
    assert "typed &amp; kept" in answer.text
    assert len(records(client, "orders")) == before


def test_a_copy_has_the_same_bytes(visitor: Visitor, client: Client) -> None:
    client.admin.create_topic("copied", 1)
    rows = [
        Record(-1, 1, None, None),
        Record(-1, 1, b"", b""),
        Record(-1, 1, b"k", b'{"a": 1.10}', (("a", b"b"), ("c", b" d "))),
        Record(-1, 1, b"\xff\0", b"a\r\nb", (("n", None), ("b", b"\xff"))),
        Record(-1, 1, "ü\u202e".encode(), b"\nbegins with a line end"),
        Record(-1, 1, b"k", b"0" * 1000, (("x:y", b"z"),)),
    ]
    client.produce("copied", 0, rows)
    for offset in range(len(rows)):
        page = visitor.data(f"/produce?like=copied-0-{offset}")
        fields = {name: page[name] for name in ("topic", "key_kind", "key", "value_kind", "value", "headers")}
        assert visitor.form("/produce", fields).status == 303
    found = [record[2:] for _, record in records(client, "copied")]
    assert found[len(rows) :] == [row[2:] for row in rows]
    assert visitor.get("/produce?like=copied-0-99").status == 404
    assert visitor.get("/produce?like=copied").status == 400


def test_a_masked_record_is_not_copied(broker: Broker, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "masks.toml"
    file.write_text('[[mask]]\ntopics = "secret"\npaths = ["$.card"]\n')
    client.admin.create_topic("secret", 1)
    client.produce("secret", 0, [b'{"card": "4111"}', b'{"name": "ann"}'])
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], masks=Masks.from_file(file)) as server:
        visitor = Visitor(server)
        answer = visitor.get("/produce?like=secret-0-0")
        assert (answer.status, "4111" in answer.text) == (409, False)


def test_avro_is_held_against_the_registry_before_it_is_sent(broker: Broker, client: Client) -> None:
    schema = '{"type":"record","name":"O","fields":[{"name":"id","type":"long"},{"name":"n","type":"int","default":3}]}'
    client.admin.create_topic("avro", 1)
    with RegistryServer(broker.bootstrap_servers, port=0) as registry, RegistryClient(registry.url) as asked:
        asked.register("avro-value", schema)
        with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], registry=registry.url) as server:
            visitor = Visitor(server)
            for value, said in (
                ('{"id": "x"}', "$.id is str, not a whole number"),
                ('{"id": 1, "else": 2}', "has &#39;else&#39;"),
                ("{}", "lacks &#39;id&#39;"),
                ("{", "no JSON"),
            ):
                answer = visitor.form("/produce", {"topic": "avro", "value_kind": "avro", "value": value})
                assert (answer.status, said in answer.text) == (400, True), answer.text
            answer = visitor.form("/produce", {"topic": "orders", "value_kind": "avro", "value": "{}"})
            assert (answer.status, "orders-value" in answer.text) == (400, True)
            visitor.send("/produce", {"topic": "avro", "value_kind": "avro", "value": '{"id": 7}'})
            shown = visitor.data("/topics/avro/messages/0/0")["value"]
            assert (shown["kind"], json.loads(shown["text"])) == ("avro", {"id": 7, "n": 3})
            copy = visitor.data("/produce?like=avro-0-0")
            assert (copy["value_kind"], json.loads(copy["value"])) == ("avro", {"id": 7, "n": 3})
