"""`kafkalite query`: topics as tables of SQL, from the library and from the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from kafkalite.avro import AvroEncoder, RegistryClient
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.errors import TopicAuthorizationFailed
from kafkalite.model import TopicPartition
from kafkalite.query import Queries, QueryError
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.wire.record.columns import Record, RecordColumns

pytestmark = pytest.mark.integration

STAMP = 1_700_000_000_000
HOUR_MS = 3_600_000
ORDER = '{"type":"record","name":"Order","fields":[{"name":"item","type":"string"},{"name":"amount","type":"int"}]}'


@pytest.fixture
def client(kafka_broker):
    with Client(kafka_broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def queries(kafka_broker):
    with Queries(kafka_broker.bootstrap_servers) as queries:
        yield queries


def rows(queries: Queries, text: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for batch in queries.run(text) for row in batch.to_pylist()]


def of(topic: str, text: str) -> str:
    """A statement about this TOPIC."""
    return text.replace("TOPIC", f'"{topic}"')


def fill(client: Client, topic: str, partitions: int = 1, count: int = 10) -> None:
    """`count` records a partition, an hour apart: keys k0, k1, k2, …; values {"n": offset, "p": partition}."""
    client.admin.create_topic(topic, partitions)
    for partition in range(partitions):
        client.produce(
            topic,
            partition,
            [
                Record(n, STAMP + n * HOUR_MS, b"k%d" % (n % 3), json.dumps({"n": n, "p": partition}).encode())
                for n in range(count)
            ],
        )


def test_a_topic_has_the_columns_of_spark(client: Client, queries: Queries, kafka_topic: str) -> None:
    client.produce(kafka_topic, 0, [Record(0, STAMP, b"key", b"value", (("h", b"1"), ("n", None)))])
    [row] = [row for batch in queries.run(f'from "{kafka_topic}"') for row in batch.to_pylist()]
    assert row.pop("timestamp").timestamp() * 1000 == STAMP
    assert row == {
        "key": "key",
        "value": "value",
        "topic": kafka_topic,
        "partition": 0,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
    }


def test_groups_and_json_over_partitions(client: Client, queries: Queries) -> None:
    fill(client, "query-groups", partitions=3)
    text = (
        "select key, count(*), sum((value->>'$.n')::int), max(partition) from \"query-groups\" group by key order by 1"
    )
    assert rows(queries, text) == [("k0", 12, 54, 2), ("k1", 9, 36, 2), ("k2", 9, 45, 2)]


def test_a_name_with_dots_needs_no_quotes_and_a_table_may_be_scanned_twice(client: Client, queries: Queries) -> None:
    fill(client, "query.dotted.name", count=4)
    fill(client, "query.dotted", count=4)
    for name in ("query.dotted.name", '"query.dotted.name"', "query.dotted"):
        text = "select count(*) from TOPIC a, TOPIC b".replace("TOPIC", name)
        assert rows(queries, text) == [(16,)]
    both = 'select a.offset, b.key from query.dotted a join "query.dotted" b on a.offset = b.offset order by 1'
    assert rows(queries, both) == [(0, "k0"), (1, "k1"), (2, "k2"), (3, "k0")]
    nested = "with w as (select key from query.dotted) select count(*) from w a, w b where a.key = b.key"
    assert rows(queries, nested) == [(6,)]


def test_topics_that_differ_by_case_are_not_mixed_up(client: Client, queries: Queries) -> None:
    fill(client, "query-case", count=1)
    fill(client, "Query-Case", count=2)
    assert rows(queries, 'select count(*) from "Query-Case"') == [(2,)]
    assert rows(queries, 'select count(*) from "query-case"') == [(1,)]
    with pytest.raises(QueryError, match=r"Query-Case and query-case differ only in case"):
        queries.run('select 1 from "query-case", "Query-Case"')


def test_only_records_between_two_times(client: Client, kafka_broker) -> None:
    fill(client, "query-times", partitions=2)
    between = {"since": STAMP + 2 * HOUR_MS, "until": STAMP + 5 * HOUR_MS}
    with Queries(kafka_broker.bootstrap_servers, **between) as queries:
        text = 'select partition, list(t.offset order by t.offset) from "query-times" t group by 1 order by 1'
        assert rows(queries, text) == [(0, [2, 3, 4]), (1, [2, 3, 4])]
    stamps = {"a": 9000, "b": 5500, "c": 100, "none": -1, "d": 5000, "e": 6000, "f": 4999}
    out_of_order = [Record(-1, stamp, None, name.encode()) for name, stamp in stamps.items()]
    client.admin.create_topic("query-out-of-order", 1)
    client.produce("query-out-of-order", 0, RecordColumns.from_records(out_of_order))
    for window, expected in (
        ({"since": 5000, "until": 6000}, ["b", "d"]),
        ({"since": 5000}, ["a", "b", "d", "e"]),
        ({"until": 6000}, ["b", "c", "d", "f"]),
        ({}, [*stamps]),
    ):
        with Queries(kafka_broker.bootstrap_servers, **window) as queries:
            found = rows(queries, 'select value from "query-out-of-order" t order by t.offset')
            assert [value for (value,) in found] == expected
            assert rows(queries, 'select count(*) from "query-out-of-order"') == [(len(expected),)]
    with Queries(kafka_broker.bootstrap_servers, since=STAMP + 100 * HOUR_MS) as queries:
        assert rows(queries, 'select count(*) from "query-times"') == [(0,)]


def test_a_value_that_is_no_json_is_named_with_a_way_out(client: Client, queries: Queries) -> None:
    client.admin.create_topic("query-json", 2)
    client.produce("query-json", 1, [b'{"user": "a"}', None, b"no json", b'{"user": "b"}', b"neither"])
    with pytest.raises(QueryError) as caught:
        rows(queries, """select value->>'$.user' from "query-json" """)
    assert str(caught.value) == (
        "query-json-1 offset 2: the value is not JSON; use try_cast(value as json) to get NULL instead"
    )
    text = """select try_cast(value as json)->>'$.user' from "query-json" order by 1 nulls last"""
    assert rows(queries, text) == [("a",), ("b",), (None,), (None,), (None,)]


@pytest.mark.parametrize(
    "bad",
    ["", "no json", 'say "no"', "a" * 200, "ü" * 40, "x" + "ü" * 40, "nul\0inside", "ends in dots...", "a\n\nLINE 1"],
)
def test_the_very_value_that_was_parsed_is_named(client: Client, queries: Queries, kafka_topic: str, bad: str) -> None:
    client.produce(kafka_topic, 0, [b'{"a": 1}', b"other text", bad.encode()])
    for text in (
        "select value->>'$.a' from TOPIC t where t.offset <> 1",
        "select value::json from TOPIC t where t.offset <> 1",
    ):
        with pytest.raises(QueryError) as caught:
            rows(queries, of(kafka_topic, text))
        assert str(caught.value).startswith(
            f"{kafka_topic}-0 offset 2: the value is not JSON; use try_cast(value as json)"
        )


def test_text_that_no_statement_parsed_is_not_blamed(client: Client, kafka_broker, kafka_topic: str) -> None:
    """Another topic, another field, what is outside of the window, and a part of a value."""
    other = f"a-{kafka_topic}"
    client.admin.create_topic(other, 1)
    client.produce(other, 0, [b"text, and no JSON"])
    records = [Record(-1, 5000, b"{k", b"text"), Record(-1, 3, b"{", b"{"), Record(-1, 5001, b"{", b"{")]
    client.produce(kafka_topic, 0, RecordColumns.from_records(records))
    with Queries(kafka_broker.bootstrap_servers, since=4000) as queries:
        for text, said in (
            (
                "select t.value->>'a' from OTHER o, TOPIC t where t.value = '{'".replace("OTHER", f'"{other}"'),
                "2: the value",
            ),
            ("select key::json from TOPIC", "0: the key"),
        ):
            with pytest.raises(QueryError) as caught:
                rows(queries, of(kafka_topic, text))
            assert f"{kafka_topic}-0 offset {said} is not JSON" in str(caught.value)
        with pytest.raises(
            QueryError, match=r"Malformed JSON .*; use try_cast\(… as json\) to get NULL for values that are not JSON$"
        ):
            rows(queries, of(kafka_topic, "select (value || '?')::json from TOPIC"))


@pytest.mark.parametrize(
    ("bad", "text", "said"),
    [
        (b"no json", "select value->>'$.a' from TOPIC", "offset 30000: the value is not JSON"),
        ("ü".encode() * 40, "select value->>'$.a' from TOPIC", "offset 30000: the value is not JSON"),
        (b"\xff", "select value from TOPIC", "offset 30000: the value is not UTF-8 text"),
        (b'"x"', "select value::json::int from TOPIC", 'Failed to cast value to numerical: "x"$'),
    ],
)
def test_a_bad_value_after_many_good_ones_is_named(
    client: Client, queries: Queries, kafka_topic: str, bad: bytes, text: str, said: str
) -> None:
    """The answer has begun when it comes."""
    client.produce(kafka_topic, 0, [*([b"1"] * 30_000), bad])
    with pytest.raises(QueryError, match=said) as caught:
        rows(queries, of(kafka_topic, text))
    assert "\n" not in str(caught.value)


def test_aborted_and_open_transactions_are_left_out(client: Client, queries: Queries, kafka_broker) -> None:
    fill(client, "query-committed", count=1)
    with client.producer(transactional_id="query") as producer:
        for values, ending in (([b"aborted"], "abort"), ([b"kept"], "commit")):
            producer.begin_transaction()
            producer.send("query-committed", 0, values)
            getattr(producer, f"{ending}_transaction")()
        producer.begin_transaction()
        producer.send("query-committed", 0, [b"open"])
        producer.flush()
        text = 'select t.offset, value from "query-committed" t where t.offset > 0'
        assert rows(queries, text) == [(3, "kept")]
        with Queries(kafka_broker.bootstrap_servers, isolation_level="read_uncommitted") as dirty:
            assert [value for _, value in rows(dirty, text)] == ["aborted", "kept", "open"]
        producer.abort_transaction()


def test_a_limit_does_not_read_a_topic_to_its_end(client: Client, kafka_broker, monkeypatch) -> None:
    client.admin.create_topic("query-limit", 1)
    for _ in range(20):
        client.produce("query-limit", 0, [b"x" * 100_000] * 10)
    read = 0
    original = Client.__exit__

    def counted(self: Client, *exception: object) -> None:
        nonlocal read
        read += 1
        original(self, *exception)

    monkeypatch.setattr(Client, "__exit__", counted)
    with Queries(kafka_broker.bootstrap_servers) as queries:
        assert len(rows(queries, 'select key from "query-limit" limit 3')) == 3
        assert rows(queries, 'select count(*) from "query-limit"') == [(200,)]
    assert read >= 4, "every scan has closed its client, also the one that was left early"


def test_avro_of_two_writers_is_read_by_the_latest_schema(client: Client, kafka_broker) -> None:
    topic = "query-orders"
    later = ORDER.replace('"int"}', '"int"},{"name":"note","type":"string","default":"-"}')
    client.admin.create_topic(topic, 1)
    with (
        RegistryServer(kafka_broker.bootstrap_servers, port=0, topic="query-schemas") as server,
        RegistryClient(server.url) as registry,
    ):
        items = pa.array(["tea", "milk"])
        for schema, more in ((ORDER, {}), (later, {"note": pa.array(["hot", "cold"])})):
            rows_ = {"item": items, "amount": pa.array([1, 2], pa.int32()), **more}
            column = pa.StructArray.from_arrays(list(rows_.values()), list(rows_))
            encoded = AvroEncoder(registry, f"{topic}-value", schema).encode(column)
            client.produce(topic, 0, encoded.to_pylist())
        opened = {"value": "avro", "open_registry": lambda: RegistryClient(server.url)}
        with Queries(kafka_broker.bootstrap_servers, **opened) as queries:
            text = (
                'select value.item, sum(value.amount)::int, max(value.note) from "query-orders" group by 1 order by 1'
            )
            assert rows(queries, text) == [("milk", 4, "cold"), ("tea", 2, "hot")]
            client.produce(topic, 0, [b"\0\0\0\0\1bad"])
            with pytest.raises(QueryError, match=rf"^{topic}-0 offset 4: the value is not valid Avro: schema id 1: "):
                rows(queries, text)
            fill(client, "query-no-schema")
            with pytest.raises(QueryError, match=r"the schema registry has no .*-value: "):
                queries.run('from "query-no-schema"')


def test_what_is_no_text_is_named(client: Client, queries: Queries, kafka_broker) -> None:
    client.admin.create_topic("query-bytes", 1)
    client.produce("query-bytes", 0, [b"fine", None, b"\xff\xfe"])
    where = TopicPartition("query-bytes", 0)
    with pytest.raises(QueryError, match=rf"^{where} offset 2: the value is not UTF-8 text"):
        rows(queries, 'select value from "query-bytes"')
    assert rows(queries, 'select count(*), count(key) from "query-bytes"') == [(3, 0)], "values are not looked at"
    with Queries(kafka_broker.bootstrap_servers, value="bytes") as raw:
        assert rows(raw, 'select value from "query-bytes"') == [(b"fine",), (None,), (b"\xff\xfe",)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("select * from missing", "topic missing does not exist"),
        ("selec 1", 'line 1, column 1: syntax error at or near "selec"'),
        ("select 1;\nselect 2", "2 statements; give one at a time"),
        ("create table t as select 1", "only SELECT is supported"),
        ("copy (select 1) to '/tmp/x'", "only SELECT is supported"),
        ("select 1 where offset = 3", r'OFFSET is a keyword of SQL: write the column as t.offset or "offset"'),
        ("", "0 statements; give one at a time"),
    ],
)
def test_what_is_no_question_is_refused_in_a_sentence(queries: Queries, text: str, sentence: str) -> None:
    with pytest.raises(QueryError) as caught:
        rows(queries, text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_connection_is_what_is_told(kafka_broker, client: Client, kafka_topic: str) -> None:
    client.produce(kafka_topic, 0, [b"1"])
    with Queries(lambda: Client(kafka_broker.bootstrap_servers, retry_timeout_s=1)) as queries:
        kafka_broker.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED")
        try:
            with pytest.raises(TopicAuthorizationFailed):
                rows(queries, f'from "{kafka_topic}"')
        finally:
            kafka_broker.heal()


def test_from_the_shell(client: Client, kafka_broker, tmp_path: Path, capsys) -> None:
    fill(client, "query-shell", count=3)
    base = ["query", "-b", kafka_broker.bootstrap_servers]
    text = 'select key, t.offset as at from "query-shell" t order by 2'
    out = tmp_path / "out.parquet"
    assert main([*base, text]) == 0
    assert capsys.readouterr().out == "key  at\nk0   0\nk1   1\nk2   2\n"
    assert main([*base, "--json", text]) == 0
    assert capsys.readouterr().out == '{"key":"k0","at":0}\n{"key":"k1","at":1}\n{"key":"k2","at":2}\n'
    assert main([*base, "--csv", text]) == 0
    assert capsys.readouterr().out == "key,at\nk0,0\nk1,1\nk2,2\n"
    assert main([*base, "--out", str(out), text]) == 0
    assert parquet.read_table(out).to_pydict() == {"key": ["k0", "k1", "k2"], "at": [0, 1, 2]}
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"], "nothing half-made is left"
    assert main([*base, "--json", "--csv", text]) == 2
    assert main([*base, "--out", str(tmp_path / "no" / "out.parquet"), text]) == 2
    assert main([*base, "select * from missing"]) == 2
    assert "topic missing does not exist" in capsys.readouterr().err


def test_a_table_for_people_shows_the_first_rows_and_obeys_no_record(client: Client, kafka_broker, capsys) -> None:
    client.admin.create_topic("query-people", 1)
    client.produce("query-people", 0, [b"\x1b[31mred\n"] + [b"x" * 500] * 1001)
    assert main(["query", "-b", kafka_broker.bootstrap_servers, 'select value from "query-people"']) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert len(lines) == 1001
    assert lines[1] == r"\x1b[31mred\n"
    assert lines[2] == "x" * 79 + "…"
    assert "only the first 1000 rows" in printed.err
