"""The console over HTTP: its pages, the same as JSON, and who is refused."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalite.avro import AvroEncoder, RegistryClient
from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.console import letters
from kafkalite.console.application import CSP, ROUTES, STATIC
from kafkalite.console.masks import Masks
from kafkalite.console.server import ConsoleServer
from kafkalite.errors import StartupError
from kafkalite.model import TopicPartition
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.web.server import parse_address
from kafkalite.web.users import Users
from kafkalite.wire.record.columns import Record
from tests.kit.harness.console_scene import HOSTILE, SCRIPT, fill

pytestmark = pytest.mark.integration

SCRIPTS = {f'<script type="module" src="/static/{name}">' for name in STATIC if name.endswith(".js")}
LOOPBACK = parse_address("http://127.0.0.1:0", 0)
PAGES = (
    "/",
    "/?window=day",
    "/search",
    "/policies",
    "/transactions",
    "/brokers",
    "/brokers/1",
    "/replicas?show=all",
    "/quorum",
    "/rights",
    "/search?q=or",
    "/topics",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages/0/2",
    "/topics/hostile/messages?count=200&from=oldest",
    "/groups",
    "/groups/billing",
    "/letters",
    "/letters/dlq.billing.orders",
    "/track",
    "/track?id=c-2&groups=1",
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as running:
        with Client(running.bootstrap_servers) as client:
            fill(client)
        yield running


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[ConsoleServer]:
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK]) as server:
        yield server


class Answer:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.text = answer.read().decode()

    @property
    def data(self) -> Any:
        return json.loads(self.text)


def ask(console: ConsoleServer, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", console.addresses[0].port, timeout=60)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def data(console: ConsoleServer, path: str) -> Any:
    answer = ask(console, path, accept="application/json")
    assert answer.status == 200, answer.text
    return answer.data


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_html_with_nothing_that_runs_in_it(console: ConsoleServer, path: str) -> None:
    answer = ask(console, path)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["Content-Security-Policy"] == CSP
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.text.startswith("<!doctype html>")
    assert answer.text.rstrip().endswith("</html>")
    assert set(re.findall(r"<script[^>]*>", answer.text)) <= SCRIPTS
    assert re.search(r"<[^>]*\s(on\w+|style)=", answer.text) is None
    assert SCRIPT not in answer.text


def test_topics_with_counts_and_by_name(console: ConsoleServer) -> None:
    rows = {row["name"]: row for row in data(console, "/topics")["topics"]}
    assert rows["orders"] | {"bytes": 1} == {"name": "orders", "partitions": 2, "offline": 0, "records": 5, "bytes": 1}
    assert [row["name"] for row in data(console, "/topics?q=HOST")["topics"]] == ["hostile"]
    assert data(console, "/topics?q=nothing-of-it")["topics"] == []
    assert "__consumer_offsets" not in rows
    assert "__consumer_offsets" in [row["name"] for row in data(console, "/topics?internal=1")["topics"]]


def test_a_topic_with_its_groups_and_settings(console: ConsoleServer) -> None:
    topic = data(console, "/topics/orders")
    assert [(row["partition"], row["start"], row["end"]) for row in topic["partitions"]] == [(0, 0, 4), (1, 0, 1)]
    assert topic["groups"] == [{"group": "billing", "state": "Empty", "partitions": 1, "lag": 1}]
    first = topic["settings"][0]
    assert (first["name"], first["value"], first["source"], first["own"]) == ("retention.ms", "-1", "topic", True)
    assert len(first["doc"]) > 10
    assert topic["window"] == "hour"


def test_messages_from_every_place(console: ConsoleServer) -> None:
    def offsets(query: str) -> list[tuple[int, int]]:
        rows = data(console, f"/topics/orders/messages?{query}")["records"]
        return [(row["partition"], row["offset"]) for row in rows]

    assert offsets("partition=0") == [(0, 3), (0, 2), (0, 1), (0, 0)]
    assert offsets("partition=0&count=2") == [(0, 3), (0, 2)]
    assert offsets("partition=0&from=newest&before=2") == [(0, 1), (0, 0)]
    assert offsets("from=oldest") == [(0, 0), (1, 0), (0, 1), (0, 2), (0, 3)]
    assert offsets("partition=0&from=offset&value=2") == [(0, 2), (0, 3)]
    assert offsets("from=time&value=1700000002000") == [(0, 2), (0, 3)]
    assert offsets("from=time&value=2023-11-14T22:13:22") == [(0, 2), (0, 3)]
    assert offsets("from=time&value=1700000002") == [(0, 2), (0, 3)]  # ten digits are seconds
    page = data(console, "/topics/orders/messages?partition=0&count=2")
    assert (page["older"], page["newer"]) == ("partition=0&count=2&from=newest&before=2", "")
    assert offsets(page["older"]) == [(0, 1), (0, 0)]
    back = data(console, f"/topics/orders/messages?{page['older']}")
    assert offsets(back["newer"]) == [(0, 2), (0, 3)]


def test_one_message_in_every_form(console: ConsoleServer) -> None:
    record = data(console, "/topics/orders/messages/0/2")
    assert (record["value"]["kind"], json.loads(record["value"]["text"])) == ("json", {"id": 2})
    assert record["headers"] == [
        {"name": "correlation-id", "value": {"kind": "text", "text": "c-2", "size": 3, "cut": False}}
    ]
    assert (record["older"], record["newer"]) == (1, 3)
    assert data(console, "/topics/orders/messages/0/2?as=hex")["value"]["text"].startswith("00000000  7b 22 69 64")
    assert data(console, "/topics/orders/messages/0/2?as=text")["value"]["text"] == '{"id": 2}'
    tombstone = data(console, "/topics/orders/messages/0/3")
    assert (tombstone["key"]["text"], tombstone["value"]["kind"]) == ("k3", "null")


def test_groups_letters_and_the_way_of_an_event(console: ConsoleServer) -> None:
    assert [(row["group"], row["lag"]) for row in data(console, "/groups")["groups"]] == [("billing", 1)]
    group = data(console, "/groups/billing")
    assert [(row["topic"], row["committed"], row["end"], row["lag"]) for row in group["partitions"]] == [
        ("orders", 3, 4, 1)
    ]
    (letter,) = data(console, "/letters/dlq.billing.orders")["letters"]
    assert (letter["origin"], letter["state"], letter["exception"]) == ("orders-0-2", "dead", "ValueError")
    found = data(console, "/track?id=c-2&groups=1")["result"]
    assert [(row["topic"], row["offset"], row["origin"]) for row in found["steps"]] == [
        ("orders", 2, ""),
        ("dlq.billing.orders", 0, "orders-0-2"),
    ]
    assert [(row["record"], row["group"], row["state"]) for row in found["verdicts"]] == [
        ("orders-0-2", "billing", "dead")
    ]
    assert found["complete"]
    assert data(console, "/track?id=nowhere-to-be-found")["result"]["hits"] == 0


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/nowhere", 404, "page not found"),
        ("/topics/none", 404, "none"),
        ("/topics/orders/messages/0/99", 404, "no record at offset 99"),
        ("/topics/orders/messages/0/x", 404, "does not exist"),
        ("/topics/orders/messages/9/0", 404, "9"),
        ("/topics/orders/messages?partition=9", 404, "has no partition 9"),
        ("/topics/orders/messages?count=0", 400, "count must be a whole number from 1 to 200"),
        ("/topics/orders/messages?from=there", 400, "from must be one of"),
        ("/topics/orders/messages?from=time&value=soon", 400, "is not a time; expected"),
        ("/track?id=a&how=regex&id=(", 400, "missing"),
        ("/track?id=a&topics=none-such", 404, "topic none-such does not exist"),
        ("/track?id=a&in=nowhere", 400, "is not a place"),
        ("/track?id=" + "a" * 5000, 400, "more than 4096 characters"),
        ("/topics?" + "&".join(f"a{n}=1" for n in range(60)), 400, "more than 50 fields"),
        ("/brokers/99", 404, "there is no broker 99"),
        ("/brokers/x", 404, "does not exist"),
        ("/policies/billing", 404, "has no ledger"),
        ("/subjects", 404, "page not found"),
        ("/static/../server.py", 404, "page not found"),
        ("/static/%2e%2e%2fserver.py", 404, "page not found"),
        ("/groups/no-such-group", 404, "no-such-group"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(console: ConsoleServer, path: str, status: int, said: str) -> None:
    answer = ask(console, path)
    assert answer.status == status
    assert said in answer.text
    assert answer.headers["Content-Security-Policy"] == CSP
    assert ask(console, path, accept="application/json").data["status"] == status


def test_every_path_takes_what_it_says_and_nothing_from_other_sites(console: ConsoleServer) -> None:
    for path, methods in ROUTES:
        concrete = path.replace("{}", "0")
        for method in {"POST", "PUT", "DELETE", "PATCH"} - set(methods):
            answer = ask(console, concrete, method, sec_fetch_site="same-origin")
            assert (answer.status, answer.headers["Allow"]) == (405, ", ".join(sorted(methods)))
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert ask(console, concrete, method, sec_fetch_site="cross-site").status == 403
            assert ask(console, concrete, method, origin="http://evil.example").status == 403


def test_a_name_that_is_not_this_servers_is_refused(console: ConsoleServer) -> None:
    assert ask(console, "/topics", host="evil.example").status == 421
    assert ask(console, "/topics", host="localhost:1").status == 200


def test_it_does_not_listen_to_others_without_users(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    everybody = parse_address("http://0.0.0.0:0", 0)
    with pytest.raises(StartupError, match="is reachable from other machines; set --users"):
        ConsoleServer(broker.bootstrap_servers, [everybody])
    file = tmp_path / "users"
    assert main(["web", "add-user", str(file), "ann", "--token"]) == 0
    token = capsys.readouterr().out.split()[-1]
    with ConsoleServer(broker.bootstrap_servers, [everybody], users=Users.from_file(file)) as server:
        refused = ask(server, "/topics")
        assert (refused.status, "orders" in refused.text) == (401, False)
        assert ask(server, "/topics", authorization="Bearer wrong").status == 401
        page = ask(server, "/topics", authorization=f"Bearer {token}")
        assert (page.status, "orders" in page.text, token in page.text) == (200, True, False)


def test_masked_is_neither_shown_nor_found(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "masks.toml"
    file.write_text('[[mask]]\ntopics = "secret"\nheaders = ["token"]\npaths = ["$.card"]\n')
    with Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("secret", 1)
        value = b'{"card": "4111-1111", "name": "ann"}'
        client.produce("secret", 0, [Record(-1, 1, b"k", value, (("token", b"hunter2"),))])
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], masks=Masks.from_file(file)) as server:
        for path in (
            "/topics/secret/messages",
            "/topics/secret/messages/0/0",
            "/topics/secret/messages/0/0?as=hex",
            "/track?id=ann&topics=secret",
        ):
            for answer in (ask(server, path), ask(server, path, accept="application/json")):
                assert answer.status == 200
                assert not {"4111", "34 31 31 31", "hunter2"} & {
                    text for text in ("4111", "34 31 31 31", "hunter2") if text in answer.text
                }
        found = data(server, "/track?id=ann&topics=secret")["result"]
        assert found["hits"] == 1
        for text in ("4111-1111", "hunter2", "4111"):
            assert data(server, f"/track?id={text}&topics=secret&how=contains")["result"]["hits"] == 0


def test_avro_is_shown_with_a_registry_and_bytes_without_its_answer(broker: Broker) -> None:
    schema = '{"type":"record","name":"O","fields":[{"name":"id","type":"long"}]}'
    with RegistryServer(broker.bootstrap_servers, port=0) as registry, Client(broker.bootstrap_servers) as client:
        with RegistryClient(registry.url) as asked:
            values = AvroEncoder(asked, "avro-value", schema).encode(pa.array([{"id": 7}])).to_pylist()
        client.admin.create_topic("avro", 1)
        client.produce("avro", 0, values)
        with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], registry=registry.url) as server:
            found = data(server, "/topics/avro/messages/0/0")
            assert (found["value"]["kind"], json.loads(found["value"]["text"])) == ("avro", {"id": 7})
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], registry="http://127.0.0.1:1") as server:
        assert data(server, "/topics/avro/messages/0/0")["value"]["kind"] in {"hex", "text"}


def test_a_topic_with_more_partitions_than_a_page_reads_says_so(broker: Broker, console: ConsoleServer) -> None:
    with Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("wide", 70)
        client.produce("wide", 69, [b"last"])
    assert data(console, "/topics/wide/messages")["left_out"] == 6
    assert "6 partitions are not shown" in ask(console, "/topics/wide/messages").text
    found = data(console, "/topics/wide/messages?partition=69")
    assert (found["left_out"], [row["value"]["text"] for row in found["records"]]) == (0, ["last"])


def test_letters_that_are_too_many_are_for_the_command_line(
    console: ConsoleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "SCANNED_MAX", 0)
    answer = ask(console, "/letters/dlq.billing.orders")
    assert answer.status == 400
    assert "kafkalite letters list --topic dlq.billing.orders" in answer.text


def test_an_unreachable_cluster_is_reported(tmp_path: Path) -> None:
    with ConsoleServer("127.0.0.1:1", [LOOPBACK], timeout_s=1.0) as server:
        answer = ask(server, "/topics")
    assert answer.status == 502
    assert "the cluster is not available" in answer.text


def test_every_hostile_value_is_shown_as_text(console: ConsoleServer) -> None:
    records = data(console, "/topics/hostile/messages?count=200&from=oldest")["records"]
    assert len(records) == len(HOSTILE)
    for offset in range(len(HOSTILE)):
        answer = ask(console, f"/topics/hostile/messages/0/{offset}")
        assert answer.status == 200
        assert SCRIPT not in answer.text
        assert re.search(r"<(img|svg|iframe|object|embed|form action=.http)", answer.text) is None
        assert ask(console, f"/topics/hostile/messages/0/{offset}?as=hex").status == 200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "nonsense://"], "--listen"),
        (["--listen", "0.0.0.0:0"], "is reachable from other machines; set --users"),
        (["--listen", "https://127.0.0.1:0"], "requires --tls-config"),
        (["--masks", "/nowhere.toml"], "/nowhere.toml"),
        (["--registry", "ftp://x"], "--registry"),
        (["-b", "127.0.0.1:x"], "--bootstrap-server"),
        (["--state-dir", f"{__file__}/numbers"], "--state-dir"),
        (["--state-dir", "/proc/numbers"], "/proc/numbers: cannot write: No such file"),
    ],
)
def test_what_cannot_begin_is_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", *words]) == 2
    assert said in capsys.readouterr().err


def test_topic_offsets_of_partitions_are_those_of_the_group(broker: Broker, console: ConsoleServer) -> None:
    with Client(broker.bootstrap_servers) as client:
        client.groups.commit("moving", {TopicPartition("orders", 1): 0})
        assert data(console, "/groups/moving")["lag"] == 1
        client.groups.commit("moving", {TopicPartition("orders", 1): 1})
        assert data(console, "/groups/moving")["lag"] == 0
        client.groups.delete("moving")
