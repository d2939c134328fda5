"""Changes through the console over HTTP: permissions, requests sent, refusals, and the audit log."""

from __future__ import annotations

import base64
import csv
import io
import json
import logging
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from pyarrow import parquet

from kafkalite.avro import RegistryClient
from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.console import exporting, resetting, tailing
from kafkalite.console.application import ROUTES
from kafkalite.console.clusters import read_clusters
from kafkalite.console.jobs import KIND_MAX
from kafkalite.console.masks import Masks
from kafkalite.console.server import ConsoleServer
from kafkalite.model import TopicPartition
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.web.server import parse_address
from kafkalite.web.users import Role, Users, token_line
from kafkalite.wire.record.columns import Record, RecordColumns
from tests.kit.harness.console_client import Visitor
from tests.kit.harness.console_scene import HOSTILE

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
        refused_everywhere(visitor, "this console is read-only")


def refused_everywhere(visitor: Visitor, why: str) -> None:
    page = visitor.get("/topics/orders").text
    assert "read-only" in page
    assert "/produce" not in page
    for path, methods in ROUTES:
        for method in set(methods) & {"POST"}:
            if role_of(methods, method) == Role.VIEWER:
                continue
            answer = visitor.form(path.replace("{}", "0"), {})
            assert (answer.status, why in answer.text) == (403, True), path


def test_a_console_that_reads_only_does_so_on_this_machine_too(broker: Broker) -> None:
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], writes=False) as server:
        refused_everywhere(Visitor(server), "this console is read-only")


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
    line, token = token_line("ann", Role.ADMIN)
    with (
        caplog.at_level(logging.INFO, logger="kafkalite.console"),
        ConsoleServer(
            broker.bootstrap_servers, [EVERYBODY], users=Users([line]), writes=True, audit_topic="audit"
        ) as server,
    ):
        visitor = Visitor(server, authorization=f"Bearer {token}")
        visitor.send("/produce", {"topic": "orders", "value": "a secret", "partition": 1})
        visitor.send_any("/produce", {"topic": "orders", "value": "{", "value_kind": "json"})
        visitor.send_any("/produce", {"topic": "orders", "value": "x", "headers": "a: b\n\na secret"})
        visitor.send_any("/topics/orders/alter", {"settings": "a secret"})
    written = [json.loads(record.value or b"") for _, record in records(client, "audit")]
    assert [(row["who"], row["action"], row["outcome"]) for row in written] == [
        ("ann", "topics.send", "asked"),
        ("ann", "topics.send", "done"),
        ("ann", "topics.send", "asked"),
        ("ann", "topics.send", "refused"),
        ("ann", "topics.send", "asked"),
        ("ann", "topics.send", "refused"),
        ("ann", "topics.alter", "asked"),
        ("ann", "topics.alter", "refused"),
    ]
    assert written[5]["detail"]["why"].startswith("line 3 of the headers is not a header")
    assert written[7]["detail"]["why"].startswith("line 1 of the settings is not a setting")
    assert written[1]["detail"] == {"topic": "orders", "partition": 1, "offset": 0, "size": 8}
    lines = [record.__dict__["fields"] for record in caplog.records if record.message == "audit"]
    assert [(row["who"], row["outcome"]) for row in lines] == [("ann", "done"), *[("ann", "refused")] * 3]
    everything = json.dumps(written) + str(lines) + caplog.text
    assert "a secret" not in everything
    assert token not in everything


def test_nothing_is_changed_that_cannot_be_written_down(broker: Broker, client: Client) -> None:
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], audit_topic="no such topic") as server:
        before = len(records(client, "orders"))
        answer = Visitor(server).send_any("/produce", {"topic": "orders", "value": "x"})
        assert (answer.status, "cannot write the audit topic" in answer.text) == (503, True)
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
        ({"value": "x"}, "enter a topic"),
        ({"topic": "none-such"}, "none-such"),
        ({"topic": "orders", "partition": "9"}, "4 partitions"),
        ({"topic": "orders", "partition": "x"}, "whole number"),
        ({"topic": "orders", "value_kind": "json", "value": "{"}, "not valid JSON"),
        ({"topic": "orders", "value_kind": "hex", "value": "0"}, "not hexadecimal"),
        ({"topic": "orders", "value_kind": "null", "value": "x"}, "is set to null"),
        ({"topic": "orders", "value_kind": "avro", "value": "{}"}, "requires a schema registry"),
        ({"topic": "orders", "value_kind": "else", "value": "{}"}, "must be one of"),
        ({"topic": "orders", "headers": "nothing"}, "is not a header"),
        ({"topic": "__consumer_offsets", "value": "x"}, "internal topic"),
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
    client.produce("secret", 0, [b'{"card": "4111-1111"}', b'{"name": "ann"}'])
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], masks=Masks.from_file(file)) as server:
        visitor = Visitor(server)
        answer = visitor.get("/produce?like=secret-0-0")
        assert (answer.status, "4111-1111" in answer.text) == (409, False)


def test_avro_is_held_against_the_registry_before_it_is_sent(broker: Broker, client: Client) -> None:
    schema = '{"type":"record","name":"O","fields":[{"name":"id","type":"long"},{"name":"n","type":"int","default":3}]}'
    client.admin.create_topic("avro", 1)
    with RegistryServer(broker.bootstrap_servers, port=0) as registry, RegistryClient(registry.url) as asked:
        asked.register("avro-value", schema)
        with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], registry=registry.url) as server:
            visitor = Visitor(server)
            for value, said in (
                ('{"id": "x"}', "$.id is str, not a whole number"),
                ('{"id": 1, "else": 2}', "has field &#39;else&#39;"),
                ("{}", "lacks field &#39;id&#39;"),
                ("{", "not valid JSON"),
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


@pytest.mark.parametrize(
    ("path", "fields", "shown", "why"),
    [
        (
            "/produce",
            {"topic": "orders", "value": "x", "headers": '[["a", null], ["s3cret", {"hex": "s3cret"}]]'},
            "header 2 is not hexadecimal",
            "header 2 is not hexadecimal",
        ),
        (
            "/produce",
            {"topic": "orders", "value": '{"s3cret": 1}', "value_kind": "avro"},
            "has field &#39;s3cret&#39;",
            "the value does not match the schema of orders-value",
        ),
        (
            "/groups/g/reset-from-file",
            {"csv": "s3cret,orders,0,1"},
            "is for group &#39;s3cret&#39;",
            "the file is not valid for this group",
        ),
        (
            "/groups/g/reset-from-file",
            {"csv": "s3cret,0,1"},
            "partition s3cret-0 does not exist",
            "the file is not valid for this group",
        ),
    ],
)
def test_a_refusal_may_quote_a_form_and_its_audit_does_not(
    broker: Broker, client: Client, caplog: pytest.LogCaptureFixture, path: str, fields: Any, shown: str, why: str
) -> None:
    client.admin.create_topic_if_missing("audit", 1)
    with RegistryServer(broker.bootstrap_servers, port=0) as registry, RegistryClient(registry.url) as asked:
        asked.register("orders-value", '{"type":"record","name":"O","fields":[]}')
        with (
            caplog.at_level(logging.INFO, logger="kafkalite.console"),
            ConsoleServer(
                broker.bootstrap_servers, [LOOPBACK], writes=True, registry=registry.url, audit_topic="audit"
            ) as server,
        ):
            answer = Visitor(server).form(path, fields)
    assert (answer.status, shown in answer.text) == (400, True), answer.text
    (*_, last) = [json.loads(record.value or b"") for _, record in records(client, "audit")]
    assert (last["outcome"], last["detail"]["why"]) == ("refused", why)
    assert "s3cret" not in json.dumps(last) + caplog.text
    assert all("s3cret" not in str(record.__dict__) for record in caplog.records)


# --- topics -----------------------------------------------------------------------------------------------------------


def test_a_topic_is_made_altered_grown_trimmed_and_deleted(visitor: Visitor, client: Client) -> None:
    assert visitor.form("/new-topic", {"name": "t 1"}).status == 400
    assert "name=value" in visitor.form("/new-topic", {"name": "life", "settings": "x"}).text
    made = visitor.form("/new-topic", {"name": "life", "count": "2", "settings": "retention.ms=5000\r\n"})
    assert (made.status, made.headers["location"]) == (303, "/topics/life?done=created")
    assert "TOPIC_ALREADY_EXISTS" in visitor.form("/new-topic", {"name": "life"}).text
    form = visitor.data("/topics/life/alter")
    assert form["settings"] == "retention.ms=5000"
    wrong = {"settings": "no.such.setting=1", "was": form["was"]}
    assert "no.such.setting=1" in visitor.form("/topics/life/alter", wrong).text
    changed = visitor.send(
        "/topics/life/alter", {"settings": "cleanup.policy=compact\nsegment.bytes=1048576", "was": form["was"]}
    )
    assert changed["settings"] == ["cleanup.policy", "retention.ms", "segment.bytes"]
    own = {row["name"]: row["value"] for row in visitor.data("/topics/life")["settings"] if row["source"] == "topic"}
    assert own == {"cleanup.policy": "compact", "segment.bytes": "1048576"}
    assert visitor.form("/topics/life/alter", {"settings": "", "was": form["was"]}).status == 409
    assert visitor.form("/topics/life/grow", {"total": "2"}).status == 400
    assert visitor.send("/topics/life/grow", {"total": 3})["total"] == 3
    assert client.partitions("life") == [0, 1, 2]


def test_records_are_deleted_as_far_as_was_shown(visitor: Visitor, client: Client) -> None:
    client.admin.create_topic("trimmed", 2)
    for number in range(2):
        client.produce("trimmed", number, [Record(-1, 1000 * n, None, b"x") for n in range(10)])
    page = visitor.data("/topics/trimmed/trim?partition=0&before=4")
    assert (page["lost"], [row["after"] for row in page["plan"]]) == (4, [4])
    assert [row["after"] for row in visitor.data("/topics/trimmed/trim?before=1970-01-01T00:00:07")["plan"]] == [7, 7]
    refused = visitor.get("/topics/trimmed/trim?before=4")
    assert (refused.status, "choose a partition" in refused.text) == (400, True)
    plan = page["plan_text"]
    for confirm in ("", "trimme"):
        answer = visitor.form("/topics/trimmed/trim", {"plan": plan, "confirm": confirm})
        assert (answer.status, client.start_offset("trimmed", 0)) == (400, 0)
    done = visitor.send("/topics/trimmed/trim", {"plan": plan, "confirm": "trimmed"})
    assert (done["lost"], client.start_offset("trimmed", 0), client.start_offset("trimmed", 1)) == (4, 4, 0)
    assert visitor.send("/topics/trimmed/trim", {"plan": plan, "confirm": "trimmed"})["lost"] == 0
    for wrong in ('[["trimmed", 0, 4, -1]]', '[["other", 0, 0, 1]]', '[["trimmed", 2, 0, 1]]', "[]", ""):
        assert visitor.form("/topics/trimmed/trim", {"plan": wrong, "confirm": "trimmed"}).status == 400, wrong
    late = visitor.form("/topics/trimmed/trim", {"plan": '[["trimmed", 0, 4, 11]]', "confirm": "trimmed"})
    assert late.status == 409


@pytest.mark.parametrize("before", ["end", "2040-01-01T00:00"])
def test_records_written_after_the_preview_are_kept(visitor: Visitor, client: Client, before: str) -> None:
    topic = f"trimmed-later-{before[:3]}"
    client.admin.create_topic(topic, 2)
    client.produce(topic, 0, [Record(-1, 1000, None, b"x")] * 3)
    plan = visitor.data(f"/topics/{topic}/trim?before={before}")["plan_text"]
    for number in range(2):
        client.produce(topic, number, [Record(-1, 1000, None, b"y")] * 2)
    assert visitor.send(f"/topics/{topic}/trim", {"plan": plan, "confirm": topic})["lost"] == 3
    assert [client.start_offset(topic, number) for number in range(2)] == [3, 0]


@pytest.mark.parametrize(("limit", "number"), [("PARTITIONS_MAX", 1), ("PLAN_SIZE_MAX", 40)])
def test_a_plan_that_would_be_refused_is_not_previewed(
    visitor: Visitor, client: Client, monkeypatch: pytest.MonkeyPatch, limit: str, number: int
) -> None:
    topic = f"too-wide-{number}"
    client.admin.create_topic(topic, 3)
    client.produce(topic, 0, [b"x"])
    monkeypatch.setattr(resetting, limit, number)
    assert visitor.data(f"/topics/{topic}/trim?before=end")["lost"] == 1
    client.produce(topic, 1, [b"x"])
    trim = visitor.get(f"/topics/{topic}/trim?before=end")
    assert trim.status == 400
    assert "2 partitions are too many for this page; use kafkalite topics delete-records" in trim.text
    why = "2 partitions are too many for this page; use kafkalite groups reset-offsets"
    for reset in (
        visitor.get(f"/groups/wide/reset?to=earliest&topics={topic}:0,{topic}:1"),
        visitor.send_any("/groups/wide/reset-from-file", {"csv": f"{topic},0,0\n{topic},1,0"}),
    ):
        assert (reset.status, why in reset.text) == (400, True), reset.text


def test_a_topic_goes_when_its_name_was_typed_and_what_depends_on_it_was_said(visitor: Visitor, client: Client) -> None:
    for name in ("doomed", "dlq.g.doomed", "retry.g.doomed.10s"):
        client.admin.create_topic(name, 1)
    client.produce("doomed", 0, [b"x"])
    client.groups.commit("of-doomed", {TopicPartition("doomed", 0): 0})
    page = visitor.get("/topics/doomed/delete").text
    for said in ("of-doomed", "dlq.g.doomed", "retry.g.doomed.10s", "1 records"):
        assert said in page
    assert visitor.form("/topics/doomed/delete", {}).status == 400
    assert "doomed" in client.topics()
    assert (
        visitor.form("/topics/doomed/delete", {"confirm": "doomed"}).headers["location"] == "/topics?done=topic-deleted"
    )
    client.refresh([])
    assert "doomed" not in client.topics()
    assert visitor.form("/topics/__consumer_offsets/delete", {"confirm": "__consumer_offsets"}).status == 409


# --- groups -----------------------------------------------------------------------------------------------------------


def test_offsets_move_as_was_shown_or_not_at_all(visitor: Visitor, client: Client) -> None:
    client.admin.create_topic("read", 2)
    for number in range(2):
        client.produce("read", number, [Record(-1, 1000 * n, None, b"x") for n in range(10)])
    places = {TopicPartition("read", 0): 5, TopicPartition("read", 1): 6}

    def shown(query: str) -> list[tuple[int | None, int]]:
        rows = visitor.data(f"/groups/mover/reset?{query}")["plan"]
        return [(row["before"], row["after"]) for row in rows]

    client.groups.commit("mover", places)
    assert shown("to=earliest") == [(5, 0), (6, 0)]
    assert shown("to=latest&topics=read:1") == [(6, 10)]
    assert shown("to=offset&value=3") == [(5, 3), (6, 3)]
    assert shown("to=shift&value=-6") == [(5, 0), (6, 0)]
    assert shown("to=time&value=1970-01-01T00:00:07") == [(5, 7), (6, 7)]
    assert shown("to=earliest&topics=read") == [(5, 0), (6, 0)]
    for wrong in ("to=offset&value=x", "to=else", "to=shift&value=1&topics=orders", "to=earliest&topics=read:7"):
        assert visitor.get(f"/groups/mover/reset?{wrong}").status == 400, wrong
    assert visitor.get("/groups/mover/reset?to=earliest&topics=none-such").status == 404
    for text, wanted in (
        ("read,0,4\r\nmover,read,1,8\n\n", [(5, 4, False), (6, 8, False)]),
        (" read , 1 , 99", [(6, 10, True)]),
    ):
        rows = visitor.send("/groups/mover/reset-from-file", {"csv": text})["plan"]
        assert [(row["before"], row["after"], row["moved_inside"]) for row in rows] == wanted
    for text, why in (
        ("", "no offsets found"),
        ("read,0", "line 1: expected topic,partition,offset"),
        ("read,0,1\nread,0,2", "line 2 repeats read-0"),
        ("other,read,0,1", "line 1 is for group"),
        ("read,0,-1", "line 1: expected"),
        ("read,9,1", "partition read-9 does not exist"),
        ("none-such,0,1", "partition none-such-0 does not exist"),
        ('"read,0,1', "line 1: expected"),
        ("read,0,1\n" + "9" * 200_000, "line 2 is not valid CSV: field larger than field limit"),
    ):
        answer = visitor.send_any("/groups/mover/reset-from-file", {"csv": text})
        assert (answer.status, why in answer.text) == (400, True), answer.text
    plan = visitor.data("/groups/mover/reset?to=offset&value=3")["plan_text"]
    assert {row.offset for row in client.groups.committed("mover").values()} == {5, 6}
    assert visitor.send("/groups/mover/reset", {"plan": plan}) == {"group": "mover", "moved": 2}
    assert {row.offset for row in client.groups.committed("mover").values()} == {3}
    assert visitor.form("/groups/mover/reset", {"plan": plan}).status == 409
    for wrong in ("", "{}", "[1]", "[[1, 2, 3, 4]]", '[["read", 0, 3]]', "[" * 9000, "[]"):
        assert visitor.form("/groups/mover/reset", {"plan": wrong}).status == 400, wrong
    assert visitor.form("/groups/mover/reset", {"plan": '[["read", 0, 3, 99]]'}).status == 409


def test_a_group_with_members_stays_as_it_is(visitor: Visitor, client: Client, broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as other, other.group_reader("busy", ["orders"]) as reader:
        while not reader.assignment:
            reader.poll(0.5)
        assert "has 1 member" in visitor.get("/groups/busy/reset").text
        plan = '[["orders", 0, null, 0]]'
        answer = visitor.form("/groups/busy/reset", {"plan": plan})
        assert (answer.status, "has members" in answer.text) == (409, True)
        assert visitor.form("/groups/busy/delete", {"confirm": "busy"}).status == 400
    assert client.groups.committed("busy") == {}


def test_a_group_goes_when_its_name_was_typed(visitor: Visitor, client: Client) -> None:
    client.groups.commit("leaving", {TopicPartition("orders", 0): 0})
    assert "1 partition" in visitor.get("/groups/leaving/delete").text
    assert visitor.form("/groups/leaving/delete", {"confirm": "leave"}).status == 400
    assert visitor.form("/groups/leaving/delete", {"confirm": "leaving"}).status == 303
    assert visitor.get("/groups/leaving").status == 404


def test_names_that_clients_choose_are_shown_whole(visitor: Visitor, client: Client) -> None:
    hidden, turned = "pay\u202etxt\u200b", "pay⟦U+202E⟧txt⟦U+200B⟧"
    client.groups.commit(hidden, {TopicPartition("orders", 0): 0})
    own = "/groups/" + quote(hidden)
    for path in ("/groups", own, own + "/reset", own + "/delete", "/topics/orders"):
        text = visitor.get(path).text
        assert turned in text, path
        assert hidden not in text, path
    assert visitor.form(own + "/delete", {"confirm": turned}).status == 303
    assert visitor.get(own).status == 404


# --- live -------------------------------------------------------------------------------------------------------------


def test_a_tail_gives_what_came_and_counts_what_it_left_out(
    visitor: Visitor, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "WAIT_S", 0.2)
    client.admin.create_topic("live", 2)
    client.produce("live", 0, [b"before"])
    first = visitor.data("/topics/live/tail")
    assert (first["records"], first["after"]) == ([], "0:1,1:0")
    idle = visitor.data(f"/topics/live/tail?after={first['after']}")
    assert (idle["records"], idle["after"], idle["waited"]) == ([], first["after"], True)
    client.produce("live", 1, [b"one", b"two"])
    client.produce("live", 0, [Record(-1, 5, b"k", None, (("h", b"three"),))])
    page = visitor.data(f"/topics/live/tail?after={idle['after']}")
    assert sorted(row["value"]["text"] for row in page["records"]) == ["", "one", "two"]
    assert (page["passed"], page["left_out"], page["after"]) == (3, 0, "0:2,1:2")
    found = visitor.data(f"/topics/live/tail?after={idle['after']}&q=three")
    assert ([row["offset"] for row in found["records"]], found["looked"]) == ([1], 3)
    client.produce("live", 1, [b"%d" % n for n in range(1000)])
    much = visitor.data(f"/topics/live/tail?after={page['after']}")
    assert (len(much["records"]), much["left_out"], much["passed"]) == (200, 800, 1000)
    assert much["records"][-1]["value"]["text"] == "999"
    assert visitor.data("/topics/live/tail?after=0:99999&partition=0")["after"] == "0:2"
    for wrong in ("x", "0:", "0:x", ":1", "0:-1", "0:" + "9" * 30):
        assert visitor.get(f"/topics/live/tail?after={wrong}").status == 400, wrong
    assert visitor.get("/topics/live/tail?partition=7").status == 404


# --- exports ----------------------------------------------------------------------------------------------------------


def ended(visitor: Visitor, job: str) -> Any:
    while True:
        row = visitor.data(f"/jobs/{job}")["job"]
        if row["state"] != "running":
            return row


def exported(visitor: Visitor, topic: str, **fields: Any) -> tuple[Any, bytes]:
    job = visitor.send(f"/topics/{topic}/export", fields)["job"]
    row = ended(visitor, job)
    answer = visitor.get(f"/jobs/{job}/file")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == f'attachment; filename="{topic}.{fields.get("format", "ndjson")}"'
    return row, answer.raw


def test_an_export_holds_every_record_in_each_format(visitor: Visitor, client: Client) -> None:
    client.admin.create_topic("taken", 2)
    client.produce("taken", 0, [Record(-1, 7, b"=k", raw, (("@h", raw[:50]),)) for raw in HOSTILE])
    client.produce("taken", 1, [Record(-1, 1000, None, None)])
    row, raw = exported(visitor, "taken")
    assert row["result"] == {
        "records": len(HOSTILE) + 1,
        "bytes": len(raw),
        "ended by": "all records",
    }
    lines = [json.loads(line) for line in raw.decode("ascii").splitlines()]
    assert [bytes_in(line["value"], line["value_is"]) for line in lines] == [*HOSTILE, None]
    assert [bytes_in(*line["headers"][0][1:]) for line in lines[:-1]] == [value[:50] for value in HOSTILE]
    _, raw = exported(visitor, "taken", format="csv")
    limit_before = csv.field_size_limit(10**7)
    try:
        rows = list(csv.reader(io.StringIO(raw.decode(), newline="")))
    finally:
        csv.field_size_limit(limit_before)
    assert len(rows) == len(HOSTILE) + 2
    assert not [cell for row in rows[1:] for cell in row if cell[:1] in set("=+-@\t\r\n")]
    assert rows[1][4] == "'=k"
    _, raw = exported(visitor, "taken", format="parquet")
    table = parquet.read_table(io.BytesIO(raw)).to_pylist()
    assert [bytes_in(line["value"], line["value_is"]) for line in table] == [*HOSTILE, None]


def bytes_in(text: str | None, kind: str) -> bytes | None:
    if text is None:
        assert kind == "null"
        return None
    return base64.b64decode(text) if kind == "base64" else text.encode()


def test_an_export_is_of_what_was_asked_and_of_bounded_size(
    visitor: Visitor, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin.create_topic("part", 2)
    client.produce("part", 0, [Record(-1, 1000 * n, None, b"%d" % n) for n in range(20)])
    client.produce("part", 1, [b"other"])

    def values(**fields: Any) -> list[str]:
        return [json.loads(line)["value"] for line in exported(visitor, "part", **fields)[1].splitlines()]

    assert values(partition=0, **{"from": "offset"}, value=15, count=3) == ["15", "16", "17"]
    assert values(partition=0, **{"from": "time"}, value="1970-01-01T00:00:18", until="1970-01-01T00:00:19") == ["18"]
    assert values(partition=0, **{"from": "time"}, value="-1h") == []
    for wrong in ({"format": "xlsx"}, {"count": 0}, {"from": "time", "value": "soon"}, {"until": "soon"}):
        assert visitor.send_any("/topics/part/export", wrong).status == 400, wrong
    assert visitor.send_any("/topics/part/export", {"partition": 9}).status == 404
    monkeypatch.setattr(exporting, "SIZE_MAX", 3)
    monkeypatch.setattr(exporting, "PORTION_SIZE", 1)
    assert values(partition=0) == ["0", "1", "2"]


def test_an_export_between_two_times_is_of_records_in_any_order(visitor: Visitor, client: Client) -> None:
    client.admin.create_topic("disorder", 1)
    stamps = {"a": 9000, "b": 5500, "c": 100, "none": -1, "d": 5000, "e": 6000, "f": 4999}
    records = [Record(-1, stamp, None, name.encode()) for name, stamp in stamps.items()]
    client.produce("disorder", 0, RecordColumns.from_records(records))
    for fields, expected in (
        ({"from": "time", "value": "5000", "until": "6000"}, ["b", "d"]),
        ({"from": "time", "value": "5000"}, ["a", "b", "d", "e"]),
        ({"until": "6000"}, ["b", "c", "d", "f"]),
        ({"from": "offset", "value": "2", "until": "6000"}, ["c", "d", "f"]),
        ({"from": "time", "value": "9001"}, []),
        ({}, [*stamps]),
    ):
        lines = exported(visitor, "disorder", **fields)[1].splitlines()
        assert [json.loads(line)["value"] for line in lines] == expected, fields


def test_an_export_without_room_for_its_file_says_so(
    broker: Broker, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.topic("cramped", create=True)
    client.produce("cramped", 0, [b"x"])
    room = tmp_path / "room"
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK]) as server:
        monkeypatch.setattr(tempfile, "tempdir", str(room))
        refused = Visitor(server).send_any("/topics/cramped/export", {"format": "csv"})
        assert (refused.status, "cannot create a file for the job" in refused.text) == (400, True)
        room.mkdir()
        assert exported(Visitor(server), "cramped")[0]["result"]["records"] == 1
        shutil.rmtree(room)
        again = Visitor(server).send("/topics/cramped/export", {"format": "csv"})
        job = ended(Visitor(server), again["job"])
        assert (job["state"], job["why"]) == ("failed", "cannot write the file of the job: No such file or directory")


def test_what_is_masked_stays_so_in_exports_and_copies(broker: Broker, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "masks.toml"
    file.write_text('[[mask]]\ntopics = "cards"\npaths = ["$.card"]\n')
    client.admin.create_topic("cards", 1)
    client.produce("cards", 0, [b'{"card": "4111-1111"}'])
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], masks=Masks.from_file(file), writes=False) as server:
        visitor = Visitor(server)
        for kind in ("ndjson", "csv", "parquet"):
            assert b"4111-1111" not in exported(visitor, "cards", format=kind)[1]
        page = visitor.get("/topics/cards/messages/0/0").text
        assert "kcat -C -b" in page
        assert "4111-1111" not in page
        assert visitor.data("/topics/cards/tail")["records"] == []
        assert visitor.data("/topics/cards/tail?after=0:0&q=4111")["records"] == []
        assert "4111-1111" not in visitor.get("/topics/cards/tail?after=0:0&as_json=1").text


def test_a_job_is_cancelled_by_its_owner_or_an_operator(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def endless(*_: Any) -> Iterator[Any]:
        while not gate.wait(0.01):
            yield []

    monkeypatch.setattr(exporting, "portions", endless)
    lines = {
        name: token_line(name, role)
        for name, role in (("ann", Role.VIEWER), ("bob", Role.VIEWER), ("op", Role.OPERATOR))
    }
    users = Users(line for line, _ in lines.values())
    try:
        with ConsoleServer(broker.bootstrap_servers, [EVERYBODY], users=users, writes=True) as server:
            ann, bob, op = (Visitor(server, authorization=f"Bearer {lines[name][1]}") for name in ("ann", "bob", "op"))
            first, second = (ann.send("/topics/orders/export", {})["job"] for _ in range(2))
            assert bob.form(f"/jobs/{first}/cancel", {}).status == 403
            assert "Cancel" not in bob.get(f"/jobs/{first}").text
            assert bob.get(f"/jobs/{first}/file").status == 404
            assert ann.form(f"/jobs/{first}/cancel", {}).status == 303
            assert op.form(f"/jobs/{second}/cancel", {}).status == 303
            assert [ended(bob, job)["state"] for job in (first, second)] == ["cancelled", "cancelled"]
            third = [bob.send("/topics/orders/export", {})["job"] for _ in range(KIND_MAX)]
            answer = bob.send_any("/topics/orders/export", {})
            assert (answer.status, "jobs are already running" in answer.text) == (400, True)
            assert {row["id"] for row in ann.data("/jobs")["jobs"]} == {first, second, *third}
            assert ann.get("/jobs/none").status == 404
    finally:
        gate.set()


# --- strangers --------------------------------------------------------------------------------------------------------

ODD = ("%00", "%ff%fe", "..%2f..", "%3Cscript%3E", "a" * 3000, "orders", "0", "%E2%80%AE", "-1", "9" * 30)
FIELDS = (
    *("topic", "partition", "key_kind", "key", "value_kind", "value", "headers", "name", "count", "replicas"),
    *("settings", "was", "total", "before", "confirm", "plan", "letter", "group", "patch", "kind", "format", "from"),
    *("until", "rounds", "to", "topics", "like", "after", "q", "exception", "day", "all_that_fit"),
)
GARBAGE = ("", "\0", "x", "-1", "9" * 18, "9" * 400, "[", "{}", "[[]]", "\u202e", "a" * 4000, "__consumer_offsets")


@pytest.mark.slow
def test_no_form_and_no_link_of_a_stranger_breaks_a_page(visitor: Visitor, client: Client) -> None:
    client.groups.commit("0", {TopicPartition("orders", 0): 0})
    for path, methods in ROUTES:
        for odd in ODD:
            place = path.replace("{}", odd)
            if "GET" in methods:
                assert visitor.get(place).status < 500, place
            if "POST" in methods:
                assert visitor.form(place, {}).status < 500, place
        place = path.replace("{}", "0")
        for value in GARBAGE:
            given_fields = dict.fromkeys(FIELDS, value)
            if "GET" in methods:
                assert visitor.get(f"{place}?{urlencode(given_fields)}").status < 500, (place, value)
            if "POST" in methods:
                assert visitor.form(place, given_fields).status < 500, (place, value)
                kinds = {"content-type": "application/json", "sec-fetch-site": "same-origin"}
                assert visitor.ask("POST", place, value.encode(), kinds).status < 500, (place, value)


def test_of_several_clusters_the_one_that_is_meant_is_changed(broker: Broker, client: Client, tmp_path: Path) -> None:
    before = len(records(client, "orders"))
    with Broker(flush_on_acks_all="false") as second, Client(second.bootstrap_servers) as other:
        other.admin.create_topic("orders", 1)
        file = tmp_path / "clusters.toml"
        rows = (("first", broker.bootstrap_servers), ("second", second.bootstrap_servers))
        file.write_text("".join(f'[[cluster]]\nname = "{name}"\nbootstrap = "{place}"\n' for name, place in rows))
        with ConsoleServer("", [LOOPBACK], clusters=read_clusters(file)) as server:
            visitor = Visitor(server)
            answer = visitor.form("/c/second/produce", {"topic": "orders", "value": "there"})
            where = "/c/second/topics/orders/messages/0/0"
            assert (answer.status, answer.headers["location"]) == (303, f"{where}?done=sent")
            page = visitor.get(where).text
            assert f"{where}?as_json=1" in page
            assert f"kcat -C -b {second.bootstrap_servers} -t orders" in page
            assert visitor.form("/produce", {"topic": "orders", "value": "nowhere"}).status == 404
        assert [record.value for _, record in records(other, "orders")] == [b"there"]
    assert len(records(client, "orders")) == before
