"""`kafkalite consume`: several topics, times, Avro; against a broker in this process."""

import datetime as dt
import io
import json
import struct
import threading
from collections.abc import Callable, Iterator

import fastavro
import pytest

from kafkalite.avro import RegistryClient
from kafkalite.base.times import time_ms
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.model import TopicPartition
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.wire.record.columns import Record, RecordColumns
from tests.kit.harness.command_output import own_lines

pytestmark = pytest.mark.integration

Result = tuple[int, list[str], str]
Consume = Callable[..., Result]
DAY = 86_400_000


@pytest.fixture
def consume(kafka_broker, capfd: pytest.CaptureFixture[str]) -> Consume:
    def call(*arguments: str) -> Result:
        status = main(["consume", "-b", kafka_broker.bootstrap_servers, *arguments])
        out, err = capfd.readouterr()
        return status, out.splitlines(), own_lines(err)

    return call


@pytest.fixture
def client(kafka_broker) -> Iterator[Client]:
    with Client(kafka_broker.bootstrap_servers) as client:
        yield client


def put(client: Client, topic: str, *records: tuple[int, bytes], partition: int = 0) -> None:
    """Records with their own timestamps."""
    rows = [Record(-1, stamp, None, value) for stamp, value in records]
    client.produce(topic, partition, RecordColumns.from_records(rows))


# --- topics and times -------------------------------------------------------------------------------------------------


def test_several_topics_are_read_each_once(consume: Consume, client: Client, kafka_broker) -> None:
    for name in ("several-a", "several-b"):
        kafka_broker.create_topic(name, 2)
        for partition in range(2):
            put(client, name, (1, f"{name}-{partition}".encode()), partition=partition)
    named = ("-t", "several-a", "-t", "several-b", "-t", "several-a", "-o", "beginning", "-e")
    assert sorted(consume(*named)[1]) == ["several-a-0", "several-a-1", "several-b-0", "several-b-1"]
    assert sorted(consume(*named, "-p", "1", "-f", "%t %p\\n")[1]) == ["several-a 1", "several-b 1"]
    status, lines, said = consume("-t", "several-a", "-t", "nothing-there", "-e")
    assert (status, lines, "nothing-there" in said) == (1, [], True)
    kafka_broker.create_topic("several-c", 1)
    status, _, said = consume("-t", "several-a", "-t", "several-c", "-p", "1", "-e")
    assert (status, said) == (2, "kafkalite: topic several-c has no partition 1 (partition count: 1)\n")


def test_several_topics_in_a_group(consume: Consume, client: Client, kafka_broker) -> None:
    for name in ("grouped-a", "grouped-b"):
        kafka_broker.create_topic(name, 1)
        put(client, name, (1, name.encode()))
    status, lines, _ = consume("-t", "grouped-a", "-t", "grouped-b", "-g", "of-several", "--from-beginning", "-c", "2")
    assert (status, sorted(lines)) == (0, ["grouped-a", "grouped-b"])
    committed = client.groups.committed("of-several")
    assert {key: row.offset for key, row in committed.items()} == {
        TopicPartition("grouped-a", 0): 1,
        TopicPartition("grouped-b", 0): 1,
    }


def test_group_is_drained(consume: Consume, client: Client, kafka_broker) -> None:
    """With --exit a member ends at the end of its partitions, transaction markers included."""
    topic, group = "drained", "drains"
    kafka_broker.create_topic(topic, 2)
    put(client, topic, (1, b"a"), (2, b"b"))
    drain = ("-t", topic, "-g", group, "--from-beginning", "-e")
    assert consume(*drain)[:2] == (0, ["a", "b"])
    assert consume(*drain)[:2] == (0, [])
    with client.producer(transactional_id="drains") as producer:
        producer.begin_transaction()
        producer.send(topic, 1, [b"c"])
        producer.commit_transaction()
    assert consume(*drain, "--isolation", "read_committed")[:2] == (0, ["c"])
    (row,) = [row for row in client.groups.partitions(client.groups.describe(group)) if row.partition.partition == 1]
    assert (row.committed, row.lag) == (2, 0)


def test_group_with_nothing_to_read_ends_at_once(consume: Consume, kafka_broker) -> None:
    kafka_broker.create_topic("drained-empty", 1)
    assert consume("-t", "drained-empty", "-g", "drains-empty", "-e")[:2] == (0, [])


@pytest.fixture
def days(client: Client, kafka_topic: str) -> str:
    """A record a day, at noon: 2026-11-19, -20, -21, -22."""
    noon = time_ms("2026-11-19T12:00", 0)
    put(client, kafka_topic, *[(noon + day * DAY, b"%d" % (19 + day)) for day in range(4)])
    return kafka_topic


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--since", "2026-11-20"], ["20", "21", "22"]),
        (["-o", "@2026-11-20"], ["20", "21", "22"]),
        (["-o", "2026-11-20T12:00"], ["20", "21", "22"]),
        (["--since", "2026-11-20T12:00:00.001Z"], ["21", "22"]),
        (["--since", "20261120", "--until", "20261121"], ["20"]),
        (["-o", "beginning", "--until", "2026-11-21T12:00"], ["19", "20"]),
        (["-o", "1", "--until", "2026-11-22"], ["20", "21"]),
        (["-o", "beginning", "--until", "1"], []),
        (["-o", "-1", "--until", "2026-11-20"], []),
        (["--since", "2026-11-21", "--until", "2026-11-20"], []),
        (["--since", "2999-01-01"], []),
        (["--since", "2026-11-21", "--until", "2999-01-01"], ["21", "22"]),
        (["--since", "1795219200"], ["21", "22"]),
        (["-o", "@1795219200"], ["21", "22"]),
    ],
)
def test_times_of_records(
    consume: Consume, days: str, flags: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time_ms("2026-11-23", 0)
    monkeypatch.setattr("kafkalite.cli.times.now_ms", lambda: now)
    monkeypatch.setattr("kafkalite.cli.consume.now_ms", lambda: now)
    assert consume("-t", days, "-e", *flags)[:2] == (0, expected)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--since", "5000", "--until", "6000"], ["b", "d"]),
        (["--since", "5000"], ["a", "b", "d", "e"]),
        (["-o", "beginning", "--until", "6000"], ["b", "c", "d", "f"]),
        (["--since", "5000", "--until", "6000", "-c", "1"], ["b"]),
        (["-o", "@5000"], ["a", "b", "c", "none", "d", "e", "f"]),
    ],
)
def test_times_that_are_out_of_order(
    consume: Consume, client: Client, kafka_topic: str, flags: list[str], expected: list[str]
) -> None:
    stamps = {"a": 9000, "b": 5500, "c": 100, "none": -1, "d": 5000, "e": 6000, "f": 4999}
    put(client, kafka_topic, *[(stamp, name.encode()) for name, stamp in stamps.items()])
    assert consume("-t", kafka_topic, "-e", *flags)[:2] == (0, expected)


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ([], "read_uncommitted"),
        (["--read-committed"], "read_committed"),
        (["-g", "said", "-c", "1"], "read_uncommitted"),
    ],
)
def test_the_isolation_level_is_said(consume: Consume, days: str, flags: list[str], level: str) -> None:
    ends = flags if "-g" in flags else ["-e", *flags]
    assert consume("-t", days, "-o", "beginning", *ends)[2] == f"kafkalite: isolation level {level}\n"


def test_until_a_time_that_has_passed_needs_no_exit(consume: Consume, days: str, client: Client) -> None:
    put(client, days, (1, b"late, and old"))
    assert consume("-t", days, "-o", "beginning", "--until", "2026-11-20")[:2] == (0, ["19", "late, and old"])
    status, lines, said = consume("-t", days, "--until", "2026-11-20")
    assert (status, lines) == (0, [])
    assert "nothing to read" in said


def test_until_a_time_that_is_to_come_waits_for_it(
    consume: Consume, client: Client, kafka_broker, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock does not advance until the last record was read; older records are read after it, too."""
    client.admin.add_partitions(kafka_topic, 2)
    clock = [1_000_000]
    monkeypatch.setattr("kafkalite.cli.consume.now_ms", lambda: clock[0])
    put(client, kafka_topic, (999_000, b"before"), (2_000_000, b"too late"), (999_000, b"behind it"))
    put(client, kafka_topic, (999_500, b"first"), partition=1)

    def later() -> None:
        try:
            with Client(kafka_broker.bootstrap_servers) as other:
                put(other, kafka_topic, (1_000_500, b"second"), (1_001_000, b"at the time"), partition=1)
        finally:
            clock[0] = 1_001_000

    timer = threading.Timer(0.3, later)
    timer.start()
    try:
        status, lines, _ = consume("-t", kafka_topic, "-o", "beginning", "--until", "1001000")
    finally:
        timer.join()
    assert (status, sorted(lines)) == (0, ["before", "behind it", "first", "second"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "yesterday"], "'yesterday' is not a time"),
        (["--until", "-1y"], "'-1y' is not a time"),
        (["-o", "@soon"], "--offset 'soon' is not a time"),
        (["-o", "soon"], "--offset soon: expected beginning, end, N, -N or @TIME"),
        (["-o", "1", "--since", "-1h"], "--offset and --since cannot be used together"),
        (["-g", "g", "--until", "-1h"], "--until"),
        (["-g", "g", "--since", "-1h"], "must be beginning or end"),
        (["--avro-keys"], "--avro-keys requires --avro"),
        (["--avro-mode", "permissive"], "--avro-mode requires --avro"),
        (["--avro", "registry:8081"], "--avro"),
    ],
)
def test_refused_in_a_sentence(consume: Consume, arguments: list[str], said: str) -> None:
    status, lines, text = consume("-t", "t", *arguments)
    assert (status, lines, text.count("\n")) == (2, [], 1)
    assert said in text


# --- Avro -------------------------------------------------------------------------------------------------------------

LEVEL = "kafkalite: isolation level read_uncommitted\n"
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}


@pytest.fixture
def registry(kafka_broker) -> Iterator[str]:
    with RegistryServer(kafka_broker.bootstrap_servers, port=0) as server:
        yield server.url


def message(schema_id: int, schema: object, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + struct.pack(">I", schema_id) + out.getvalue()


@pytest.fixture
def orders(client: Client, kafka_topic: str, registry: str) -> str:
    """Two orders with an Avro key, a tombstone, text that is no Avro, one more order."""
    with RegistryClient(registry) as schemas:
        value_id = schemas.register(f"{kafka_topic}-value", json.dumps(ORDER))
        key_id = schemas.register(f"{kafka_topic}-key", '"string"')
    values = [
        message(value_id, ORDER, {"id": 1, "note": "grün"}),
        message(value_id, ORDER, {"id": 2, "note": None}),
        None,
        b"no avro",
        message(value_id, ORDER, {"id": 3, "note": None}),
    ]
    key = message(key_id, "string", "k")
    client.produce(kafka_topic, 0, RecordColumns.from_records([Record(-1, 5, key, value) for value in values]))
    return kafka_topic


def test_avro_values_are_printed_as_json(consume: Consume, orders: str, registry: str) -> None:
    status, lines, said = consume("-t", orders, "-o", "beginning", "-c", "3", "--avro", registry, "-Z", "NULL")
    assert (status, said) == (0, LEVEL)
    assert lines == ['{"id":1,"note":"grün"}', '{"id":2,"note":null}', "NULL"]
    shown = consume("-t", orders, "-o", "0", "-c", "1", "--avro", registry, "--avro-keys", "-f", "%k %S %s\n")
    assert shown[1] == ['"k" 23 {"id":1,"note":"grün"}']
    row = json.loads(consume("-t", orders, "-o", "1", "-c", "1", "--avro", registry, "--avro-keys", "--json")[1][0])
    assert row == {
        "topic": orders,
        "partition": 0,
        "offset": 1,
        "timestamp": 5,
        "key": "k",
        "value": {"id": 2, "note": None},
    }


TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "twin", "type": ["null", "Tree"]},
    ],
}


def tree(number: int, *children: object, twin: object = None) -> dict[str, object]:
    at = dt.datetime(2026, 11, 21, 18, tzinfo=dt.UTC)
    return {"id": number, "at": at, "children": list(children), "twin": twin}


def printed(number: int, *children: object, twin: object = None) -> dict[str, object]:
    return {"id": number, "at": "2026-11-21T18:00:00.000Z", "children": list(children), "twin": twin}


def test_recursive_avro_values_are_printed(consume: Consume, client: Client, kafka_topic: str, registry: str) -> None:
    """Such a schema has no columns: its values are read one by one, keys too, beside those of another schema."""
    with RegistryClient(registry) as schemas:
        tree_id = schemas.register(f"{kafka_topic}-value", json.dumps(TREE))
        order_id = schemas.register(f"{kafka_topic}-other", json.dumps(ORDER))
    nested = message(tree_id, TREE, tree(1, tree(2, tree(3)), tree(4), twin=tree(5)))
    alone = message(tree_id, TREE, tree(6))
    order = message(order_id, ORDER, {"id": 7, "note": None})
    pairs = [(None, nested), (alone, order), (None, None), (None, alone), (None, nested[:-1])]
    client.produce(kafka_topic, 0, RecordColumns.from_records([Record(-1, 5, key, value) for key, value in pairs]))
    arguments = ("-t", kafka_topic, "-o", "beginning", "-e", "--avro", registry)
    status, lines, said = consume(*arguments, "-c", "4")
    assert (status, said) == (0, LEVEL)
    wanted = [printed(1, printed(2, printed(3)), printed(4), twin=printed(5)), {"id": 7, "note": None}, printed(6)]
    assert [json.loads(line) for line in lines if line] == wanted
    (keyed,) = [json.loads(line) for line in consume(*arguments, "--avro-keys", "--json", "-c", "2")[1][1:]]
    assert (keyed["key"], keyed["value"]) == (printed(6), {"id": 7, "note": None})
    status, lines, said = consume(*arguments)
    assert (status, len(lines)) == (1, 4)
    assert f"{kafka_topic}-0 offset 4: schema {tree_id}: it is truncated" in said


def test_a_value_that_is_no_avro_ends_it_behind_the_good_ones(consume: Consume, orders: str, registry: str) -> None:
    status, lines, said = consume("-t", orders, "-o", "1", "-e", "--avro", registry)
    assert (status, lines) == (1, ['{"id":2,"note":null}', ""])
    assert said == (
        f"{LEVEL}kafkalite: {orders}-0 offset 3: the message does not begin with 0x00 and a schema id "
        "(use --avro-mode permissive to print such values as they are)\n"
    )


def test_a_group_has_committed_what_was_printed_before_a_value_that_is_no_avro(
    consume: Consume, client: Client, orders: str, registry: str
) -> None:
    status, lines, _ = consume("-t", orders, "-g", orders, "--from-beginning", "--avro", registry)
    assert (status, len(lines)) == (1, 3)
    assert client.groups.committed(orders)[TopicPartition(orders, 0)].offset == 3


def test_permissive_prints_what_is_no_avro_as_it_is(consume: Consume, orders: str, registry: str) -> None:
    permissive = ("-t", orders, "-o", "3", "-e", "--avro", registry, "--avro-mode", "permissive")
    assert consume(*permissive)[:2] == (0, ["no avro", '{"id":3,"note":null}'])
    bad, good = (json.loads(line) for line in consume(*permissive, "--json")[1])
    assert (bad["value"], bad["avro_error"]) == ("no avro", "the message does not begin with 0x00 and a schema id")
    assert (good["value"], "avro_error" in good) == ({"id": 3, "note": None}, False)


def test_an_unreachable_registry_is_reported_in_a_sentence(consume: Consume, orders: str) -> None:
    status, lines, said = consume("-t", orders, "-o", "0", "-e", "--avro", "http://127.0.0.1:1", "--timeout", "0.2")
    assert (status, lines, said.count("\n")) == (2, [], 2)
    assert said.startswith(f"{LEVEL}kafkalite: cannot reach the schema registry: http://127.0.0.1:1: ")
