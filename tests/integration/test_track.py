"""`kafkalite track`: an event over topics, what became of it, and what could not be seen."""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kafkalite.avro import AvroEncoder, RegistryClient
from kafkalite.base.acls import AclOperation
from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import READ_COMMITTED, Client
from kafkalite.failures import Message, Policy, RetryTopics, run
from kafkalite.model import TopicPartition
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.testing import KafkaBroker
from kafkalite.track import Groups, Hit, Inquiry, Reach, TooLarge, search
from kafkalite.track.front import whole_path
from kafkalite.track.path import originals
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec
from tests.kit.harness.acl_broker import AclBroker, rule
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration

STAMP = 1_700_000_000_000
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"flush.on.acks.all": False, "log.cleaner.backoff.ms": 50, "offsets.topic.num.partitions": 2}
    with Broker(settings) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers, retry_timeout_s=10) as client:
        yield client


def named(prefix: str) -> str:
    return f"{prefix}-{time.monotonic_ns()}"


def rows(count: int, first: int = 0) -> list[Record]:
    return [
        Record(-1, STAMP + n, b"k%d" % n, json.dumps({"id": n, "of": f"n-{n}"}).encode(), (("trace", b"t-%d" % n),))
        for n in range(first, first + count)
    ]


def asked(broker: Broker, text: str, **options: object) -> tuple[list[str], list[Reach]]:
    with search(broker.bootstrap_servers, text, **options) as found:  # type: ignore[arg-type]  # search's own options
        return sorted(str(hit) for hit in found), found.reach


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_every_place_in_every_codec(broker: Broker, client: Client, codec: Codec) -> None:
    topic = named("places")
    client.admin.create_topic(topic, 3)
    for partition in range(3):
        client.produce(topic, partition, RecordColumns.from_records(rows(500)), codec=codec, batch_size=5000)
    for text, places in (
        ("t-17", "header:trace"),
        ("k17", "key"),
        ("17", "json:$.id"),
        ("n-17", "json:of"),
        ("n-17", "value"),
    ):
        hits, reach = asked(broker, text, topics=topic, places=places)
        assert hits == [f"{topic}-{partition}-17" for partition in range(3)]
        assert [(row.records, row.complete, row.remarks()) for row in reach] == [(500, True, [])] * 3


def test_topics_by_whole_names_and_expressions(broker: Broker, client: Client) -> None:
    base = named("names")
    for name in (f"{base}.a", f"{base}.b", f"x{base}.a"):
        client.admin.create_topic(name, 1)
        client.produce(name, 0, [b"id-1"])
    assert asked(broker, "id-1", topics=f"{base}.*")[0] == [f"{base}.a-0-0", f"{base}.b-0-0"]
    assert asked(broker, "id-1", topics=f"{base}.a, x{base}[.]a")[0] == [f"{base}.a-0-0", f"x{base}.a-0-0"]


def test_only_records_of_a_window(broker: Broker, client: Client) -> None:
    topic = named("times")
    client.admin.create_topic(topic, 1)
    stamps = [0, 10, 5, 20, 15, 30]  # producers' clocks differ
    client.produce(topic, 0, [Record(-1, STAMP + stamp, b"id", None) for stamp in stamps])
    hits, _ = asked(broker, "id", topics=topic, since=STAMP + 10, until=STAMP + 30)
    assert hits == [f"{topic}-0-{offset}" for offset in (1, 3, 4)]
    late = 60 * 60 * 1000  # further out of order than any slack would allow for
    client.produce(topic, 0, [Record(-1, STAMP + late, b"id", None), Record(-1, STAMP + 20, b"id", None)])
    hits, reach = asked(broker, "id", topics=topic, since=STAMP + 10, until=STAMP + 30)
    assert hits == [f"{topic}-0-{offset}" for offset in (1, 3, 4, 7)]
    assert reach[0].complete
    hits, reach = asked(broker, "id", topics=topic, since=STAMP + 2 * late)
    assert (hits, reach[0].records, reach[0].complete) == ([], 0, True)


def test_records_without_a_time_are_looked_at_in_every_window(broker: Broker, client: Client) -> None:
    topic = named("timeless")
    client.admin.create_topic(topic, 1)
    client.produce(topic, 0, RecordColumns.from_records([Record(-1, -1, b"id", None)] * 2))
    hits, reach = asked(broker, "id", topics=topic, since=STAMP, until=STAMP + 30)
    assert hits == [f"{topic}-0-0", f"{topic}-0-1"]
    assert (reach[0].records, reach[0].complete) == (2, True)


def test_a_field_of_avro(broker: Broker, client: Client) -> None:
    topic = named("avro")
    client.admin.create_topic(topic, 1)
    schema = '{"type":"record","name":"O","fields":[{"name":"id","type":"long"},{"name":"who","type":"string"}]}'
    with RegistryServer(broker.bootstrap_servers, port=0) as server:
        with RegistryClient(server.url) as registry:
            encoder = AvroEncoder(registry, f"{topic}-value", schema)
            values = encoder.encode(pa.array([{"id": n, "who": f"w{n}"} for n in range(200)])).to_pylist()
        client.produce(topic, 0, [*values, b"no avro, w7"])
        for text, place in (("150", "avro:id"), ("w150", "avro:who")):
            hits, reach = asked(broker, text, topics=topic, places=place, registry=server.url)
            assert (hits, reach[0].records) == ([f"{topic}-0-150"], 201)
        hits, reach = asked(broker, "w7", topics=topic, places="avro:who", registry=server.url)
        assert hits == [f"{topic}-0-7"]
        assert reach[0].undecodable == 1


# --- complete, or with a report of what was not visible ---------------------------------------------------------------


def test_markers_aborted_and_open_transactions_are_shown(broker: Broker, client: Client) -> None:
    topic = named("tx")
    client.admin.create_topic(topic, 1)
    client.produce(topic, 0, [b"id"])
    with client.producer(transactional_id=topic) as producer:
        for ending in ("abort", "commit"):
            producer.begin_transaction()
            producer.send(topic, 0, [b"id", b"id"])
            getattr(producer, f"{ending}_transaction")()
        producer.begin_transaction()
        producer.send(topic, 0, [b"id"])
        producer.flush()
        hits, (reach,) = asked(broker, "id", topics=topic)
        producer.abort_transaction()
    assert hits == [f"{topic}-0-{offset}" for offset in (0, 4, 5)]
    assert (reach.start, reach.end, reach.records, reach.markers, reach.aborted) == (0, 7, 3, 2, 2)
    assert (reach.open_from, reach.open_to, reach.missing, reach.complete) == (7, 8, 0, False)
    assert len(asked(broker, "id", topics=topic, isolation_level="read_uncommitted")[0]) == 6


def test_what_compaction_took_out_is_counted(broker: Broker, client: Client) -> None:
    topic = named("compacted")
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "delete_retention_ms": "0"}
    broker.create_topic(topic, 1, **settings, segment_bytes=20_000)
    records = [Record(-1, STAMP, b"k%d" % (n % 50), b"id %d" % n) for n in range(3000)]
    client.produce(topic, 0, RecordColumns.from_records(records), batch_size=4000)

    def plain() -> list[int]:
        return [int(record.offset) for chunk in client.read(topic, 0) for record in chunk.records()]

    wait_until(lambda: len(plain()) < 1500, 60, "compaction")
    wait_until(lambda: plain() == plain(), 60, "its end")
    with search(client, "id", topics=topic) as found:
        offsets = sorted(hit.record.offset for hit in found)
        (reach,) = found.reach
    assert set(plain()) <= set(offsets)
    assert (reach.records, reach.missing, reach.complete) == (len(offsets), 3000 - len(offsets), True)
    assert reach.remarks() == [f"{reach.missing} offsets have no record (compacted)"]


def test_records_deleted_during_the_search_are_reported(broker: Broker, client: Client) -> None:
    topic = named("aged")
    client.admin.create_topic(topic, 1)
    client.produce(topic, 0, [b"id"] * 100)
    client.admin.delete_records({TopicPartition(topic, 0): 10})
    with search(client, "id", topics=topic, workers=1) as found:
        client.admin.delete_records({TopicPartition(topic, 0): 40})
        assert len(list(found)) == 60
    (reach,) = found.reach
    assert (reach.start, reach.aged_out, reach.records, reach.deleted_to, reach.complete) == (10, 30, 60, 10, False)
    assert reach.remarks() == [
        "30 offsets were deleted while the search ran",
        "offsets before 10 were deleted before the search",
    ]


def test_a_damaged_batch_is_skipped_and_reported(tmp_path: Path) -> None:
    with KafkaBroker(in_process=True, log_dirs=str(tmp_path / "data"), flush_on_acks_all=False) as broker:
        with Client(broker.bootstrap_servers) as client:
            client.admin.create_topic("torn", 1)
            for first in range(0, 100, 10):
                client.produce("torn", 0, [b"id %d" % n for n in range(first, first + 10)])
        broker.restart()
        segment = next((tmp_path / "data" / "torn-0").glob("*.log"))
        raw = bytearray(segment.read_bytes())
        raw[raw.index(b"id 42")] ^= 0xFF
        segment.write_bytes(raw)
        hits, (reach,) = asked(broker, "id", topics="torn")
    assert hits == sorted(f"torn-0-{offset}" for offset in range(100) if not 40 <= offset < 50)
    assert (reach.damaged, reach.records, reach.missing, reach.complete) == (((40, 50),), 90, 0, False)
    assert reach.remarks() == ["offsets 40 to 49 are damaged"]


def test_a_topic_without_read_permission_is_reported(tmp_path: Path) -> None:
    with AclBroker(tmp_path) as broker:
        plain = broker.address("PLAINTEXT")
        broker.allow(
            rule("User:ANONYMOUS", AclOperation.ALL, resource="open"),
            rule("User:ANONYMOUS", AclOperation.DESCRIBE, resource="seen"),
            rule("User:ANONYMOUS", AclOperation.WRITE, resource="seen"),
        )
        for name in ("open", "seen", "hidden"):
            broker.make_topic(name)
        with Client(plain) as client:
            for name in ("open", "seen"):
                client.produce(name, 0, [b"id"])
            with search(client, "id", topics="open,seen,hidden") as found:
                hits = [str(hit) for hit in found]
    assert hits == ["open-0-0"]
    assert not found.complete
    assert [(row.topic, row.partition, row.unseen) for row in found.reach if row.problem] == [
        ("hidden", -1, 0),
        ("seen", 0, 1),
    ]
    assert all(row.problem.endswith("(TOPIC_AUTHORIZATION_FAILED)") for row in found.reach if row.problem)


@pytest.mark.slow
def test_a_search_that_is_cancelled_frees_its_threads_and_says_so(broker: Broker, client: Client) -> None:
    topic = named("cancelled")
    client.admin.create_topic(topic, 2)
    for partition in range(2):
        client.produce(topic, partition, [b"id %d" % n for n in range(200_000)], batch_size=50_000)
    before = threading.active_count()
    with search(client, "id", topics=topic, hits_max=10**9) as found:
        for count, _ in enumerate(found):
            if count == 100:
                found.cancel()
    assert threading.active_count() == before
    assert found.ended_by == "it was cancelled"
    assert not found.complete
    with search(client, "id", topics=topic, hits_max=7) as found:
        assert len(list(found)) == 7
    assert found.ended_by == "reached the limit of 7 hits"
    with search(client, "id", topics=topic) as found:
        next(iter(found))
    assert threading.active_count() == before


def test_an_expression_made_to_blow_up_ends(broker: Broker, client: Client) -> None:
    topic = named("linear")
    client.admin.create_topic(topic, 1)
    client.produce(topic, 0, [b"a" * 50_000 + b"!"])
    assert asked(broker, "(a+)+$", topics=topic, places="value", how="regex")[0] == []
    assert asked(broker, "^(a|a|aa)+!$", topics=topic, places="value", how="regex")[0] == [f"{topic}-0-0"]


def test_a_search_that_is_too_large_does_not_begin(broker: Broker, client: Client) -> None:
    topic = named("large")
    client.admin.create_topic(topic, 1)
    client.produce(topic, 0, [b"x" * 1000] * 1000)
    with pytest.raises(TooLarge, match="would read about"):
        search(client, "id", topics=topic, size_max=1000)


def test_what_comes_later_follows_without_gap_or_double(broker: Broker, client: Client) -> None:
    topic = named("later")
    client.admin.create_topic(topic, 2)
    inquiry = Inquiry.of("id", topics=f"{topic}.*", places="key")
    stop = threading.Event()
    count = 3000

    def write() -> None:
        with Client(broker.bootstrap_servers) as writer, writer.producer() as producer:
            for number in range(count):
                producer.send(topic, number % 2, [Record(-1, -1, b"id", b"%d" % number)])
                if number == count // 2:
                    writer.admin.create_topic(f"{topic}.new", 1)
                    producer.send(f"{topic}.new", 0, [Record(-1, -1, b"id", b"new")])
                if number % 100 == 0:
                    producer.flush()

    thread = threading.Thread(target=write)
    thread.start()
    values: list[bytes | None] = []
    with inquiry.search(client) as found:
        values += [hit.record.value for hit in found]
    deadline = time.monotonic() + TIMEOUT_S
    for hit in inquiry.follow(client, found, stopped=lambda: stop.is_set() or time.monotonic() > deadline):
        values.append(hit.record.value)
        if len(values) == count + 1:
            stop.set()
    thread.join()
    assert sorted(values, key=str) == sorted([b"new", *(b"%d" % n for n in range(count))], key=str)


# --- the path ---------------------------------------------------------------------------------------------------------


class Shop:
    """Two groups read orders: `audit` reads all, `billing` fails for what says so."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.topic = named("orders")
        client.admin.create_topic(self.topic, 1)

    def sell(self, *values: bytes) -> None:
        headers = [(("correlation-id", b"c-%d" % number),) for number in range(len(values))]
        records = [Record(-1, -1, b"k", value, own) for value, own in zip(values, headers, strict=True)]
        self.client.produce(self.topic, 0, records)

    def bill(self, bootstrap: str, until: int) -> str:
        """Run billing until it has handled `until` records; return its group."""
        group = named("billing")
        policy = Policy(group=group, topics=[self.topic], strategy=RetryTopics(["1 s"]), fatal=[LookupError])
        stop = threading.Event()
        handled: list[bytes | None] = []

        def handle(message: Message) -> None:
            handled.append(message.value)
            if len(handled) >= until:
                stop.set()
            if message.value == b"dead":
                raise LookupError("nobody ordered this")
            if message.value == b"again" and handled.count(b"again") == 1:
                raise ValueError("not yet")

        run(policy, handle, bootstrap, stop=stop)
        return group


def test_the_path_shows_what_went_through_and_what_did_not(broker: Broker, client: Client) -> None:
    """The first goes through, the second is tried again and goes through, the third becomes a dead letter."""
    shop = Shop(client)
    shop.sell(b"good", b"again", b"dead")
    group = shop.bill(broker.bootstrap_servers, 4)
    shop.sell(b"late")
    client.groups.commit(f"{group}-audit", {TopicPartition(shop.topic, 0): 4})
    states = {}
    paths = {}
    for number in range(3):
        with search(client, f"c-{number}", topics=shop.topic, places="header:correlation-id") as found:
            steps = whole_path(client, list(found))
        groups = Groups(client, [shop.topic])
        assert groups.remarks == []
        paths[number] = [(step.hit.partition.topic, step.letter is not None) for step in steps]
        states[number] = {(row.record, row.group): (row.state, row.exception) for row in groups.verdicts(steps)}
    first, audit = f"{shop.topic}-0-0", f"{group}-audit"
    assert states[0][first, group] == ("processed", "")
    assert states[0][first, audit] == ("read", "")
    late = f"{shop.topic}-0-3"
    assert states[0][late, group] == ("waiting", "")
    assert states[1][f"{shop.topic}-0-1", group] == ("processed", "")
    assert states[2][f"{shop.topic}-0-2", group] == ("dead", "LookupError")
    retry, dead = f"retry.{group}.{shop.topic}.1s", f"dlq.{group}.{shop.topic}"
    assert paths[1] == [(shop.topic, False), (retry, True)]
    assert paths[2] == [(shop.topic, False), (dead, True)]


def test_a_copy_comes_after_its_origin_for_any_clocks(client: Client) -> None:
    shop = Shop(client)
    letter = (("dlq.topic", shop.topic.encode()), ("dlq.partition", b"0"), ("dlq.offset", b"1"), ("dlq.group", b"g"))
    dead = f"dlq.g.{shop.topic}"
    client.admin.create_topic(dead, 1)
    client.produce(shop.topic, 0, [Record(-1, STAMP, b"other", None), Record(-1, STAMP + 5000, b"id", b"v")])
    client.produce(dead, 0, [Record(-1, STAMP + 1, None, None, letter)])
    with search(client, "id", topics=shop.topic, places="key") as found:
        steps = whole_path(client, list(found))
    assert [(str(step.hit), step.origin, step.after_ms) for step in steps] == [
        (f"{shop.topic}-0-1", f"{shop.topic}-0-1", 0),
        (f"{dead}-0-0", f"{shop.topic}-0-1", -4999),
    ]
    # and the other way: a letter alone leads to its origin
    with search(client, shop.topic, topics=dead, places="header:dlq.topic") as found:
        assert [str(hit) for hit in originals(whole_path(client, list(found)))] == [f"{shop.topic}-0-1"]


def test_letters_are_found_though_the_clock_of_their_origin_was_ahead_and_those_not_looked_at_are_told(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, ahead = named("ahead"), 60 * 60 * 1000  # as much as brokers take
    dead = f"dlq.g.{topic}"
    for name in (topic, dead):
        client.admin.create_topic(name, 1)
    client.produce(topic, 0, [Record(-1, STAMP + ahead, b"id", b"v")])
    letter = (("dlq.topic", topic.encode()), ("dlq.partition", b"0"), ("dlq.offset", b"0"), ("dlq.group", b"g"))
    for stamp in (STAMP, STAMP, STAMP + 2 * ahead):
        client.produce(dead, 0, [Record(-1, stamp, None, None, letter)])
    with search(client, "id", topics=topic, places="key") as found:
        hits = list(found)
    remarks: list[str] = []
    assert [str(step.hit) for step in whole_path(client, hits, remarks.append)][1:] == [
        f"{dead}-0-{n}" for n in range(3)
    ]
    assert remarks == []
    monkeypatch.setattr("kafkalite.track.path.LETTERS_MAX", 1)
    whole_path(client, hits, remarks.append)
    assert len(remarks) == 1
    assert remarks[0].startswith(f"dead letters of {topic} may be missing: ")


def test_letters_of_spring_name_their_group_and_reason(client: Client) -> None:
    topic = named("spring")
    for name in (topic, f"{topic}-dlt"):
        client.admin.create_topic(name, 1)
    client.produce(topic, 0, [Record(-1, STAMP, b"id", b"v")])
    headers = (
        ("kafka_dlt-original-topic", topic.encode()),
        ("kafka_dlt-original-partition", bytes(4)),
        ("kafka_dlt-original-offset", bytes(8)),
        ("kafka_dlt-original-consumer-group", b"shop"),
        ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
        ("kafka_dlt-exception-message", b"no stock"),
    )
    client.produce(f"{topic}-dlt", 0, [Record(-1, STAMP + 9, b"id", b"v", headers)])
    client.groups.commit("shop", {TopicPartition(topic, 0): 1})
    with search(client, "id", topics=topic, places="key") as found:
        steps = whole_path(client, list(found))
    (verdict,) = Groups(client, [topic]).verdicts(steps)
    assert (verdict.group, verdict.state, verdict.exception) == ("shop", "dead", "java.lang.IllegalStateException")
    assert (verdict.reason, verdict.letter) == ("no stock", f"{topic}-dlt-0-0")


# --- the command ------------------------------------------------------------------------------------------------------


def command(broker: Broker, *words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["track", *words, "-b", broker.bootstrap_servers])
    return status, out.getvalue(), err.getvalue()


def test_the_command_prints_a_table_and_says_how_much_was_seen(broker: Broker, client: Client) -> None:
    topic = named("command")
    client.admin.create_topic(topic, 2)
    client.produce(topic, 1, [Record(-1, STAMP, b"\x1b[31mk", b"v", (("id", b"c-1"),))])
    client.groups.commit(f"{topic}-readers", {TopicPartition(topic, 1): 1})
    status, out, _ = command(broker, "c-1", "--topics", topic, "--in", "header:id", "--groups")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].split() == ["TIME", "(UTC)", "AFTER", "RECORD", "KEY", "FOUND", "IN", "DETAILS"]
    assert lines[1].split() == ["2023-11-14", "22:13:20.000", f"{topic}-1-0", "\\x1b[31mk", "header:id"]
    assert lines[4].split()[:3] == [f"{topic}-1-0", f"{topic}-readers", "read"]
    assert lines[-2:] == ["1 hit in 1 records of 2 partitions of 1 topic, all read", "isolation level read_committed"]
    status, out, _ = command(broker, "c-2", "--topics", topic, "-v")
    assert (status, out.splitlines()[0]) == (1, "0 hits in 1 records of 2 partitions of 1 topic, all read")


def test_the_command_prints_json(broker: Broker, client: Client) -> None:
    topic = named("lines")
    client.admin.create_topic(topic, 1)
    client.produce(topic, 0, [Record(-1, STAMP, b"k", b"v", (("id", b"c-1"),))])
    status, out, _ = command(broker, "c-1", "--topics", topic, "--json")
    hit, partition, summary = (json.loads(line) for line in out.splitlines())
    assert status == 0
    assert (hit["type"], hit["record"], hit["key"], hit["places"]) == ("hit", f"{topic}-0-0", "k", ["header:*"])
    assert (partition["type"], partition["records"], partition["complete"]) == ("partition", 1, True)
    assert summary == {
        "type": "summary",
        "hits": 1,
        "records": 1,
        "complete": True,
        "ended_by": "",
        "remarks": [],
        "isolation_level": "read_committed",
    }


def test_a_file_says_where_topics_keep_their_ids(broker: Broker, client: Client, tmp_path: Path) -> None:
    base = named("file")
    for name in ("a", "b"):
        client.admin.create_topic(f"{base}.{name}", 1)
        client.produce(f"{base}.{name}", 0, [Record(-1, STAMP, b"7", b'{"order": {"id": 7}}')])
    file = tmp_path / "tracking.toml"
    file.write_text(f'places = "key"\n[topics]\n"{base}[.]b" = "json:$.order.id"\n')
    status, out, _ = command(broker, "7", "--topics", f"{base}.*", "--tracking", str(file), "--json")
    documents = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert {row["topic"]: row["places"] for row in documents if row["type"] == "hit"} == {
        f"{base}.a": ["key"],
        f"{base}.b": ["json:$.order.id"],
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "--topics", "no-such-topic"], "topic no-such-topic does not exist"),
        (["a", "--topics", "no-such.+"], "no topic matches no-such.+"),
        (["a", "--topics", "("], "'(' is not a valid regular expression"),
        (["a", "--in", "nowhere"], "'nowhere' is not a place"),
        (["a", "--in", "json:$["], "'$[' is not a path"),
        (["", "--in", "key"], "the id must have 1 to"),
        (["(", "--regex"], "missing"),
        (["a", "--in", "avro:id"], "avro:PATH and key-avro:PATH require the URL of a schema registry"),
        (["a", "--since", "2026-01-02", "--until", "2026-01-01"], "the end of the time range is before its start"),
        (["a", "--follow", "--until", "now"], "--follow and --until cannot be used together"),
        (["a", "--size-max", "many"], "'many' is not a number of bytes"),
        (["a", "--tracking", "/nowhere.toml"], "cannot read /nowhere.toml"),
    ],
)
def test_what_cannot_begin_is_one_sentence_and_status_2(broker: Broker, words: list[str], said: str) -> None:
    status, out, err = command(broker, *words)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_broker_that_is_not_there_is_status_2() -> None:
    assert main(["track", "a", "-b", "127.0.0.1:1", "--timeout", "2"]) == 2


def plain_hits(client: Client, topic: str, number: int) -> list[int]:
    """By reading everything."""
    chunks = client.read(topic, number, isolation=READ_COMMITTED)
    return [record.offset for chunk in chunks for record in chunk.records() if record.key == b"id"]


@pytest.mark.compat
@pytest.mark.slow
def test_apache_kafka_is_searched_too(apache_kafka) -> None:  # type: ignore[no-untyped-def]  # a fixture of the kit
    with Client(apache_kafka.bootstrap, retry_timeout_s=60) as client:
        client.admin.create_topic("theirs", 3)
        for number, codec in enumerate((Codec.NONE, Codec.LZ4, Codec.ZSTD)):
            keys = [b"id" if n % 1000 == number else b"k%d" % n for n in range(20_000)]
            records = [Record(-1, STAMP + n, key, b"v" * 100) for n, key in enumerate(keys)]
            client.produce("theirs", number, records, codec=codec, batch_size=20_000)
        with client.producer(transactional_id="track") as producer:
            for ending in ("abort", "commit"):
                producer.begin_transaction()
                producer.send("theirs", 0, [Record(-1, STAMP, b"id", b"v")])
                getattr(producer, f"{ending}_transaction")()
        client.groups.commit("their-readers", {TopicPartition("theirs", 1): 5000})
        with search(client, "id", topics="theirs", places="key") as found:
            hits: list[Hit] = list(found)
        for number in range(3):
            offsets = sorted(hit.record.offset for hit in hits if hit.partition.partition == number)
            assert offsets == plain_hits(client, "theirs", number)
        assert found.complete
        assert [(row.records, row.markers, row.aborted) for row in found.reach] == [
            (20_001, 2, 1),
            (20_000, 0, 0),
            (20_000, 0, 0),
        ]
        states = {(row.record, row.state) for row in Groups(client, ["theirs"]).verdicts(whole_path(client, hits))}
        assert ("theirs-1-4001", "read") in states
        assert ("theirs-1-5001", "waiting") in states
