"""The console's pages on Kafka 0.7: brokers, topics and groups of a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kafkalite.cli import main
from kafkalite.console.server import ConsoleServer
from tests.integration.test_console import LOOPBACK, ask, data
from tests.kit.harness.console_classic import SIZE, WAIT_S, ClassicScene, classic_scene
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.kit.processes.zookeeper import ZooKeeper

pytestmark = [pytest.mark.zookeeper, pytest.mark.integration]

MESSAGE = SIZE + 10


@pytest.fixture
def scene(zookeeper: ZooKeeper, zookeeper_client: KazooClient) -> Iterator[ClassicScene]:
    with classic_scene(zookeeper_client, zookeeper.address) as made:
        yield made


@pytest.fixture
def console(scene: ClassicScene, zookeeper: ZooKeeper) -> Iterator[ConsoleServer]:
    with ConsoleServer(scene.broker.bootstrap_servers, [LOOPBACK], zookeeper=zookeeper.address) as server:
        yield server


def test_topics_groups_owners_and_lag_as_its_own_tool_tells(
    console: ConsoleServer, scene: ClassicScene, zookeeper: ZooKeeper, capsys: pytest.CaptureFixture[str]
) -> None:
    wait_until(lambda: data(console, "/classic/groups/reports")["lag"] == 2 * MESSAGE, WAIT_S, "what came is flushed")
    page = data(console, "/classic")
    (broker,) = page["brokers"]
    assert (broker["id"], broker["host"]) == (1, "127.0.0.1")
    assert page["topics"] == [{"name": "visits", "partitions": 2, "brokers": [1]}]
    assert page["groups"] == [
        {"group": "old", "members": 0, "topics": ["gone", "visits"], "topic_count": 2, "lag": None},
        {"group": "reports", "members": 1, "topics": ["visits"], "topic_count": 1, "lag": 2 * MESSAGE},
    ]
    group = data(console, "/classic/groups/reports")
    assert group["members"] == [{"member": "reports_c1", "reads": "visits (1)", "partitions": 2}]
    first = group["partitions"][0]
    assert (first["topic"], first["broker"], first["partition"]) == ("visits", 1, 0)
    assert (first["owner"], first["offset"], first["end"], first["lag"]) == (
        "reports_c1-0",
        MESSAGE,
        3 * MESSAGE,
        2 * MESSAGE,
    )
    assert main(["classic", "offset-checker", "--zkconnect", zookeeper.address, "--group", "reports"]) == 0
    assert f"Consumer lag = {first['lag']}\n" in capsys.readouterr().out
    topic = data(console, "/classic/topics/visits")
    assert [(row["start"], row["end"]) for row in topic["partitions"]] == [(0, 3 * MESSAGE), (0, 0)]
    assert topic["groups"] == [{"group": "old", "lag": None}, {"group": "reports", "lag": 2 * MESSAGE}]
    assert (topic["partition_count"], topic["complete"], topic["served"]) == (2, True, True)
    assert [row["value"]["text"] for row in data(console, "/topics/visits/messages")["records"]][:1] == ["3" * SIZE]


def test_what_is_no_offset_and_a_broker_that_has_gone_are_told(console: ConsoleServer) -> None:
    gone, odd, _ = data(console, "/classic/groups/old")["partitions"]
    assert (gone["topic"], gone["broker"], gone["offset"], gone["end"], gone["lag"]) == ("gone", 7, 50, None, None)
    assert (odd["offset"], odd["failure"]) == (None, "not an offset: b'nonsense'")
    assert data(console, "/classic?q=rep")["groups"][0]["group"] == "reports"
    assert data(console, "/classic?q=rep")["topics"] == []


def test_a_page_reads_no_more_than_its_share_and_says_so(
    console: ConsoleServer, zookeeper_client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        zookeeper_client.create(f"/consumers/many/offsets/t{number}/1-0", b"1", makepath=True)
        zookeeper_client.create(f"/consumers/g{number}/offsets/visits/1-0", b"1", makepath=True)
    whole = data(console, "/classic/groups/many")
    assert (len(whole["partitions"]), whole["complete"]) == (30, True)
    monkeypatch.setattr("kafkalite.console.classic.READS_MAX", 60)
    cut = data(console, "/classic/groups/many")
    assert 0 < len(cut["partitions"]) < 30
    assert not cut["complete"]
    page = data(console, "/classic")
    assert 0 < len(page["groups"]) < page["group_count"] == 33
    zookeeper_client.create("/brokers/topics/visits/2", b"70")
    topic = data(console, "/classic/topics/visits")
    assert (len(topic["partitions"]), topic["partition_count"], topic["complete"]) == (60, 72, False)
    assert len(topic["groups"]) < 32
    monkeypatch.setattr("kafkalite.console.classic.PART_S_MAX", -1.0)
    for path in ("/classic", "/classic/groups/many", "/classic/topics/visits"):
        assert ask(console, path).status == 200
    assert data(console, "/classic")["groups"] == []


def test_an_expression_with_unbounded_cost_is_refused(console: ConsoleServer, zookeeper_client: KazooClient) -> None:
    zookeeper_client.create(f"/brokers/topics/{'a' * 200}", b"")
    for name, pattern in (("hangs", "(?=a)(a+)+b"), ("linear", "(v+)+.*")):
        zookeeper_client.create(f"/consumers/odd/ids/{name}", f"*1*{pattern}".encode(), makepath=True)
    page = data(console, "/classic/groups/odd")
    refused = "is refused, as matching it may take exponential time"
    assert [row["reads"] for row in page["members"]] == [
        f"topics matching (?=a)(a+)+b (1); topic filter '(?=a)(a+)+b' {refused}",
        "topics matching (v+)+.* (1)",
    ]
    assert {row["topic"] for row in page["partitions"]} == {"visits"}


def test_names_that_would_turn_a_line_around_are_shown_as_they_are(
    console: ConsoleServer, zookeeper_client: KazooClient
) -> None:
    name = "pay\u202eees"
    zookeeper_client.create(f"/consumers/{name}/offsets/{name}/1-0", b"1", makepath=True)
    zookeeper_client.create(f"/consumers/{name}/offsets/visits/1-0", b"1", makepath=True)
    zookeeper_client.create(f"/brokers/topics/{name}", b"")
    quoted = "pay%E2%80%AEees"
    for path in ("/classic", f"/classic/groups/{quoted}", f"/classic/topics/{quoted}", "/classic/topics/visits"):
        text = ask(console, path).text
        assert "pay⟦U+202E⟧ees" in text
        assert "\u202e" not in text
    assert data(console, f"/classic/groups/{quoted}")["group"] == name


@pytest.mark.parametrize(
    "path",
    [
        "/classic/groups/nobody",
        "/classic/topics/nothing",
        "/classic/groups/..",
        "/classic/groups/a%2Fids",
        "/classic/topics/%00",
    ],
)
def test_what_zookeeper_does_not_have_is_not_found(console: ConsoleServer, path: str) -> None:
    assert ask(console, path).status == 404


def test_pages_draw_and_lead_to_one_another(console: ConsoleServer) -> None:
    home = ask(console, "/").text
    assert '<a href="/classic">Kafka 0.7</a>' in home
    assert '<a href="/classic/groups/reports">' in ask(console, "/classic").text
    assert '<a href="/classic/topics/visits">' in ask(console, "/classic/groups/reports").text
    assert '<a href="/topics/visits">' in ask(console, "/classic/topics/visits").text


@pytest.mark.slow
def test_a_zookeeper_that_does_not_answer_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, scene: ClassicScene, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kafkalite.console.classic.CONNECTION_TIMEOUT_S", 0.5)
    with ConsoleServer(scene.broker.bootstrap_servers, [LOOPBACK], zookeeper="127.0.0.1:1") as server:
        answer = ask(server, "/classic")
        assert (answer.status, "no ZooKeeper server at 127.0.0.1:1 answered" in answer.text) == (502, True)
        assert ask(server, "/topics").status == 200
    with ConsoleServer(scene.broker.bootstrap_servers, [LOOPBACK]) as server:
        assert ask(server, "/classic").status == 404
    assert main(["console", "--zookeeper", "host:port"]) == 2
    assert "zookeeper.connect=host:port is not" in capsys.readouterr().err


@pytest.mark.slow
def test_nothing_is_written_for_a_place_that_is_not_there(
    scene: ClassicScene, zookeeper: ZooKeeper, zookeeper_client: KazooClient
) -> None:
    elsewhere = f"{zookeeper.address}/nowhere"
    with ConsoleServer(scene.broker.bootstrap_servers, [LOOPBACK], zookeeper=elsewhere) as server:
        assert data(server, "/classic")["groups"] == []
    assert zookeeper_client.exists("/nowhere") is None
