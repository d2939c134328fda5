"""Counts of dead letters, and of records next to transaction markers: exact, or marked as upper bounds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import READ_COMMITTED, Client
from kafkalite.client.read import counting
from kafkalite.console import letter_counts
from kafkalite.console.server import ConsoleServer
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.failures import letters
from kafkalite.failures.letters import LetterBox, ledger_row
from kafkalite.failures.rows import Row, State
from kafkalite.web.server import parse_address
from kafkalite.wire.record.columns import Record
from tests.kit.harness.console_client import Visitor
from tests.kit.harness.failing_groups import records, rows_of
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration

LOOPBACK = parse_address("http://127.0.0.1:0", 0)
LETTERS = "dlq.billing.orders"
LEDGER = "kafkalite.failures.billing"
COUNT = 62
TIMEOUT_S = 60.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    """62 dead letters with their rows of the ledger, one transaction each, and 50 more ends of transactions."""
    with Client(broker.bootstrap_servers) as made:
        for topic in ("orders", LETTERS, LEDGER):
            made.admin.create_topic(topic, 1)
        with made.producer(transactional_id="t") as producer:
            producer.init_transactions()
            for number in range(COUNT):
                producer.begin_transaction()
                producer.send(LETTERS, 0, [letter(number, f"orders-0-{number}/0.1")])
                producer.send(LEDGER, 0, [dead_row(number, f"orders-0-{number}/0.1")])
                producer.send("orders", 0, [Record(-1, -1, b"k", b"%d" % number)])
                if number % 2:
                    producer.commit_transaction()
                else:  # as a member that tries it again
                    producer.abort_transaction()
                    producer.begin_transaction()
                    producer.send(LETTERS, 0, [letter(number, f"orders-0-{number}/0.1")])
                    producer.send(LEDGER, 0, [dead_row(number, f"orders-0-{number}/0.1")])
                    producer.send("orders", 0, [Record(-1, -1, b"k", b"%d" % number)])
                    producer.commit_transaction()
        wait_until(lambda: is_decided(made), TIMEOUT_S, "the last markers are there", 0.05)
        yield made


def is_decided(client: Client) -> bool:
    """Whether no transaction is open: markers reach their partitions after the commit was answered."""
    return all(
        client.end_offset(topic, 0) == client.end_offset(topic, 0, isolation=READ_COMMITTED)
        for topic in ("orders", LETTERS, LEDGER)
    )


def letter(number: int, of: str, rounds: int = 0) -> Record:
    texts = {"topic": "orders", "partition": "0", "offset": str(number), "group": "billing", "id": of, "attempt": "1"}
    more = {"exception": "KeyError", "error": f"round {rounds}", "redriven": str(rounds)}
    return Record(-1, -1, b"k", b"{}", tuple((f"dlq.{name}", text.encode()) for name, text in (texts | more).items()))


def dead_row(number: int, of: str) -> Record:
    row = Row(State.DEAD, of, LETTERS, 0, last=time.time_ns() // 1_000_000)
    message = ledger_row(f"orders-0-{number}", row)
    return Record(-1, -1, message.key, message.value)


def said(capsys: pytest.CaptureFixture[str], broker: Broker, *words: str) -> str:
    capsys.readouterr()
    assert main([*words, "-b", broker.bootstrap_servers]) == 0
    return capsys.readouterr().out


@pytest.fixture
def visitor(broker: Broker, client: Client) -> Iterator[Visitor]:
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK]) as server:
        yield Visitor(server)


def overview(visitor: Visitor) -> list[dict[str, object]]:
    """The first page's letters, once the sampler has looked."""
    wait_until(lambda: bool(visitor.data("/")["letters"]), TIMEOUT_S, "the sampler has looked", 0.1)
    rows: list[dict[str, object]] = visitor.data("/")["letters"]
    return rows


def test_pages_count_dead_letters_without_markers_and_less_after_each_resolve(
    visitor: Visitor, client: Client, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client.end_offset(LETTERS, 0) > 2 * COUNT
    for left, resolved in ((COUNT, None), (COUNT - 1, "orders-0-5"), (COUNT - 2, "orders-0-61"), (0, "day")):
        if resolved == "day":
            resolved = next(LetterBox(client, "billing").entries()).day
        if resolved is not None:
            (report,) = [json.loads(said(capsys, broker, "letters", "resolve", "billing", resolved, "--json"))]
            assert report["left"] == left
            wait_until(lambda: is_decided(client), TIMEOUT_S, "the markers are there", 0.05)
        assert overview(visitor) == [{"topic": LETTERS, "count": left, "exact": True}]
        (row,) = visitor.data("/letters")["topics"]
        assert (row["records"], row["exact"]) == (left, True)
        (group,) = visitor.data("/policies")["groups"]
        states = json.loads(said(capsys, broker, "failures", "status", "billing", "--json"))["states"]
        expected = {"dead": left, "resolved": COUNT - left}
        assert states == group["states"] == {state: count for state, count in expected.items() if count}
        listed = said(capsys, broker, "letters", "list", "billing", "--json").splitlines()
        assert len(listed) == left


def test_letters_that_are_too_many_to_read_for_a_page_are_an_upper_bound(
    visitor: Visitor, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_counts, "READ_MAX", COUNT)
    bound = client.end_offset(LETTERS, 0)
    assert overview(visitor) == [{"topic": LETTERS, "count": bound, "exact": False}]
    for page in ("/", "/letters"):
        assert f"≤ {bound}" in visitor.get(page).text
    assert "≤ " in visitor.get("/topics").text


def test_records_without_headers_count_and_letters_under_a_name_that_fits_two_groups_are_a_bound(
    client: Client,
) -> None:
    for topic in ("orders-dlt", "dlq.billing.eu.orders", "kafkalite.failures.billing.eu"):
        client.admin.create_topic(topic, 1)
    client.produce("orders-dlt", 0, [Record(-1, -1, None, b"x")] * 3)
    client.produce("dlq.billing.eu.orders", 0, [letter(1, "orders-0-1/0.1")])
    topics = client.described(["orders-dlt", "dlq.billing.eu.orders"]).values()
    found = letter_counts.count_letters(client, topics)
    assert found == {"orders-dlt": (3, True), "dlq.billing.eu.orders": (1, False)}
    later = int(time.time() * 1000) + 3_600_000
    assert letter_counts.count_letters(client, topics, later) == dict.fromkeys(found, (0, True))


def test_topics_count_records_exactly_where_they_are_few_and_mark_a_bound_elsewhere(
    client: Client, broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = client.end_offset("orders", 0)

    def row() -> tuple[dict[str, object], list[str], list[str]]:
        found = {row["topic"]: row for row in json.loads(said(capsys, broker, "topics", "list", "--json"))}
        lines = [line.split() for line in said(capsys, broker, "topics", "list").splitlines()]
        (line,) = [line for line in lines if line[0] == "orders"]
        return found["orders"], line, said(capsys, broker, "topics", "describe", "orders").splitlines()[-1].split()

    found, line, partition = row()
    assert (found["records"], line[2], partition[-1]) == (COUNT, str(COUNT), str(COUNT))
    monkeypatch.setattr(counting, "OFFSETS_MAX", COUNT)
    found, line, partition = row()
    assert (found["records"], found["records_at_most"]) == (None, bound)
    assert line[2] == partition[-1] == f"≤{bound}"
    with client.twin() as other, other.producer(transactional_id="open") as producer:
        monkeypatch.undo()
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", 0, [b"undecided"])
        producer.flush()
        assert row()[1][2] == f"≤{bound + 1}"
        producer.abort_transaction()
    wait_until(lambda: is_decided(client), TIMEOUT_S, "the marker is there", 0.05)
    assert row()[1][2] == str(COUNT)


def test_the_letters_of_a_record_are_shown_apart_the_oldest_first(
    client: Client, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    client.admin.create_topic("dlq.billing.a-later-name", 1)
    client.produce("dlq.billing.a-later-name", 0, [letter(7, "orders-0-7/1.1", 1)])
    client.produce(LEDGER, 0, [dead_row(7, "orders-0-7/1.1")])
    out = said(capsys, broker, "letters", "show", "billing", "orders-0-7")
    first, second = out.split("\n\n")
    for number, part, error in ((1, first, "round 0"), (2, second, "round 1")):
        assert part.startswith(f"dead letter {number} of 2, oldest first\n")
        assert f"error: {error}\n" in part
        assert part.count("record: orders-0-7") == 1
    rows = [
        json.loads(line)
        for line in said(capsys, broker, "letters", "show", "billing", "orders-0-7", "--json").splitlines()
    ]
    assert [row["error"] for row in rows] == ["round 0", "round 1"]


def test_a_record_whose_letter_retention_has_deleted_is_resolved_in_the_ledger(
    client: Client, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = list(LetterBox(client, "billing").entries())
    client.admin.delete_records({entries[0].partition: entries[10].message.offset})
    report = json.loads(said(capsys, broker, "letters", "resolve", "billing", "orders-0-3", "--json"))
    assert (report["letters"], report["records"], report["left"]) == (0, ["orders-0-3"], COUNT - 10)
    states = json.loads(said(capsys, broker, "failures", "status", "billing", "--json"))["states"]
    assert states == {"dead": COUNT - 1, "resolved": 1}
    report = json.loads(said(capsys, broker, "letters", "resolve", "billing", entries[20].day, "--json"))
    assert (report["letters"], len(report["records"]), report["left"]) == (COUNT - 10, COUNT - 1, 0)
    assert said(capsys, broker, "letters", "resolve", "billing", "orders-0-3").startswith("nothing was resolved")


def test_a_letter_that_was_sent_back_meanwhile_is_not_resolved_and_the_rest_is(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin.create_topic("retry.billing.orders.0s", 1)
    monkeypatch.setattr(letters, "MOVES_MAX", 1)
    first, *others = LetterBox(client, "billing").entries()
    with client.twin() as other:
        resolver = LetterBox(other, "billing")
        with pytest.raises(KafkaError) as refused:
            LetterBox(client, "billing").redrive(on_sent=lambda _: resolver.resolve(first.day, "somebody"))
    assert refused.value.code in {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
    assert {where: row.state for where, row in rows_of(client, "billing").items()} == {
        first.origin: State.REDRIVEN,
        **{entry.origin: State.RESOLVED for entry in others},
    }
    assert len(records(client, "retry.billing.orders.0s")) == 1
