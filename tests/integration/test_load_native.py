"""`kafkalite load` without Spark: the native engine, against a real broker, read back by other libraries."""

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kafkalite.avro import AvroEncoder, RegistryClient
from kafkalite.broker import Broker
from kafkalite.cli import EXIT_USAGE, main
from kafkalite.cli.load import LoadRuns
from kafkalite.client import Client
from kafkalite.failures.headers import letter_of
from kafkalite.load import contents
from kafkalite.load.avro_values import AvroValues
from kafkalite.load.compaction import compact
from kafkalite.load.loading import Published, Summary
from kafkalite.load.manifest import MANIFESTS
from kafkalite.load.native import load
from kafkalite.load.reading import dataset, read
from kafkalite.load.selection import OptionError
from kafkalite.load.storage import LoadError
from kafkalite.model import TopicPartition
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.wire.record.columns import Record, RecordColumns
from tests.kit.processes.broker import REPOSITORY

pytestmark = pytest.mark.integration

STAMP = 1_700_000_000_000
"""2023-11-14 22:13:20."""
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'


@pytest.fixture
def client(kafka_broker: Broker) -> Iterator[Client]:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        yield client


@pytest.fixture
def filled(client: Client, kafka_topic: str) -> str:
    """1000 records in each of two partitions, ten seconds apart: from 22:13 to 1 o'clock of the next day."""
    client.admin.add_partitions(kafka_topic, 2)
    for partition in range(2):
        sent = [Record(i, STAMP + i * 10_000, b"%d" % i, b"v" * 100, (("h", b"%d" % i),)) for i in range(1000)]
        client.produce(kafka_topic, partition, RecordColumns.from_records(sent), batch_size=5_000)
    return kafka_topic


def command(broker: Broker, topic: str, folder: Path, *more: str) -> list[str]:
    return ["load", "-b", broker.bootstrap_servers, "-t", topic, "--to", str(folder), *more]


def test_a_signal_ends_a_load_that_follows_after_its_commit(
    kafka_broker: Broker, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []
    count = LoadRuns._count

    def count_and_stop(runs: LoadRuns, published: Published) -> None:
        commits.append(published.rows)
        os.kill(os.getpid(), signal.SIGTERM)
        assert runs.stopping.wait(60)
        count(runs, published)

    monkeypatch.setattr(LoadRuns, "_count", count_and_stop)
    assert main(command(kafka_broker, filled, tmp_path, "--follow", "1", "--commit-size", "50000")) == 0
    (first,) = commits
    assert 0 < first == dataset(tmp_path).count_rows() < 2000
    monkeypatch.undo()
    assert main(command(kafka_broker, filled, tmp_path)) == 0
    found = dataset(tmp_path).to_table(["partition", "offset"]).to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in found) == [(p, o) for p in range(2) for o in range(1000)]


def test_everything_once_by_topic_and_hour(client: Client, filled: str, tmp_path: Path) -> None:
    commits: list[Published] = []

    def run(**options: object) -> Summary:
        return load(tmp_path, client=client, topics=[filled], on_commit=commits.append, **options)

    summary = run(commit_size=50_000)
    assert (summary.rows, summary.lag, summary.losses) == (2000, 0, [])
    assert summary.commits == len(commits) > 1, "published in steps"
    assert sum(commit.rows for commit in commits) == 2000
    files = contents.files(tmp_path)
    assert (summary.files, summary.size) == (len(files), sum(file.size for file in files))
    assert {(file.date, file.hour) for file in files} == {
        ("2023-11-14", 22), ("2023-11-14", 23), ("2023-11-15", 0),
    }  # fmt: skip
    again = run()
    assert (again.rows, again.files, again.commits) == (0, 0, 0)
    client.produce(filled, 1, [b"late"])
    assert run().rows == 1
    assert contents.positions(tmp_path) == {TopicPartition(filled, 0): 1000, TopicPartition(filled, 1): 1001}

    table = ds.dataset(tmp_path, partitioning="hive").to_table(filter=ds.field("partition") == 0).sort_by("offset")
    for offset, row in enumerate(table.to_pylist()):
        when = dt.datetime.fromtimestamp((STAMP + offset * 10_000) / 1000, dt.UTC)
        assert (row["offset"], row["key"], row["value"]) == (offset, b"%d" % offset, b"v" * 100)
        assert (row["headers"], row["timestamp"]) == ([{"key": "h", "value": b"%d" % offset}], when)
        assert (str(row["date"]), int(row["hour"])) == (str(when.date()), when.hour)
    pattern = f"{tmp_path}/topic=*/*/*/*.parquet"
    counted = duckdb.read_parquet(pattern).aggregate('"partition", count(*), count(distinct "offset"), max("offset")')
    assert sorted(counted.fetchall()) == [(0, 1000, 1000, 999), (1, 1001, 1001, 1000)]


def test_many_topics_and_partitions_by_pattern(client: Client, kafka_topic: str, tmp_path: Path) -> None:
    names = [f"{kafka_topic}-{number}" for number in range(3)]
    for name in names:
        client.admin.create_topic(name, 4)
        for partition in range(4):
            client.produce(name, partition, [b"%d" % partition] * (partition + 1))
    summary = load(tmp_path, client=client, pattern=f"{kafka_topic}-.*")
    assert (summary.topics, summary.rows, summary.commits) == (names, 30, 1)
    shares = {
        (file.topic, number): share for file in contents.files(tmp_path) for number, share in file.partitions.items()
    }
    assert {key: share.rows for key, share in shares.items()} == {(name, n): n + 1 for name in names for n in range(4)}


def test_where_it_starts(client: Client, filled: str, tmp_path: Path) -> None:
    for number, (starting, rows) in enumerate(
        (("earliest", 2000), ("latest", 0), (STAMP + 9_000_000, 200), (f'{{"{filled}": {{"0": 990}}}}', 1010))
    ):
        assert load(tmp_path / str(number), client=client, topics=[filled], starting=starting).rows == rows


def test_aborted_transactions_are_not_loaded(
    kafka_broker: Broker, client: Client, kafka_topic: str, tmp_path: Path
) -> None:
    with client.twin() as own, own.producer(transactional_id=kafka_topic) as producer:
        producer.init_transactions()
        for value in (b"committed", b"aborted"):
            producer.begin_transaction()
            producer.send(kafka_topic, 0, [value])
            producer.flush()
            producer.commit_transaction() if value == b"committed" else producer.abort_transaction()
    client.produce(kafka_topic, 0, [b"plain"])
    assert load(tmp_path / "a", client=client, topics=[kafka_topic]).rows == 2
    assert load(tmp_path / "b", client=client, topics=[kafka_topic], isolation_level="read_uncommitted").rows == 3
    values = dataset(tmp_path / "a").to_table().sort_by("offset").column("value").to_pylist()
    assert values == [b"committed", b"plain"]
    again = load(tmp_path / "a", client=client, topics=[kafka_topic])
    assert (again.rows, again.lag) == (0, 0), "the markers behind the last record were passed over"


@pytest.mark.slow
def test_records_that_are_gone(client: Client, filled: str, tmp_path: Path) -> None:
    load(tmp_path, client=client, topics=[filled], commit_size=4096)
    load(tmp_path / "new", client=client, topics=[filled], starting=f'{{"{filled}": {{"0": 10, "1": 10}}}}')
    client.produce(filled, 0, [b"x"] * 100)
    client.admin.delete_records({TopicPartition(filled, 0): 1050})
    with pytest.raises(LoadError, match="have aged out or were deleted before they were loaded"):
        load(tmp_path, client=client, topics=[filled])
    summary = load(tmp_path, client=client, topics=[filled], on_data_loss="skip")
    assert (summary.rows, len(summary.losses)) == (50, 1)


def test_records_that_go_while_they_are_read(client: Client, filled: str, tmp_path: Path) -> None:
    """Between the plan of a round and its reading: one round of commits ends in a sentence, or loads what is left."""
    from kafkalite.load import native

    planned = native.records_of

    def deleting(plan: native.LoadPlan, part: native.LoadRound) -> Iterator[pa.RecordBatch]:
        client.admin.delete_records({TopicPartition(filled, 0): 600})
        return planned(plan, part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "records_of", deleting)
        with pytest.raises(LoadError, match=r"offsets 0 to 1000 of .*-0 cannot be read any more .*on_data_loss"):
            load(tmp_path, client=client, topics=[filled])
        assert contents.files(tmp_path) == [], "nothing of the round"
        client.admin.create_topic(f"{filled}-2", 1)
        client.produce(f"{filled}-2", 0, [b"x"] * 10)

        def deleting_all(plan: native.LoadPlan, part: native.LoadRound) -> Iterator[pa.RecordBatch]:
            client.admin.delete_records({TopicPartition(f"{filled}-2", 0): 7})
            return planned(plan, part)

        patch.setattr(native, "records_of", deleting_all)
        summary = load(tmp_path, client=client, topics=[f"{filled}-2"], on_data_loss="skip")
    assert (summary.rows, summary.losses) == (3, [f"offsets 0 to 7 of {filled}-2-0 have aged out"])


# --- Avro and dead letters --------------------------------------------------------------------------------------------


@pytest.fixture
def registry(kafka_broker: Broker, kafka_topic: str) -> Iterator[RegistryClient]:
    topic = f"schemas-{kafka_topic}"[:249]
    with (
        RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=topic) as server,
        RegistryClient(server.url) as client,
    ):
        yield client


def encoded(registry: RegistryClient, topic: str, ids: range) -> list[bytes]:
    encoder = AvroEncoder(registry, f"{topic}-value", SCHEMA)
    return encoder.encode(pa.RecordBatch.from_pylist([{"id": n} for n in ids])).to_pylist()


def test_avro_values(client: Client, registry: RegistryClient, kafka_topic: str, tmp_path: Path) -> None:
    client.produce(kafka_topic, 0, [*encoded(registry, kafka_topic, range(100)), b"garbage", None])
    subject = f"{kafka_topic}-value"
    with pytest.raises(LoadError, match=f"offset 100 of {kafka_topic}-0 cannot be decoded: "):
        load(tmp_path / "a", client=client, topics=[kafka_topic], values=AvroValues(registry, subject, "failfast"))
    values = AvroValues(registry, subject, "permissive")
    assert load(tmp_path / "b", client=client, topics=[kafka_topic], values=values).rows == 102
    rows = dataset(tmp_path / "b").to_table(columns=["decoded", "value", "avro_error"]).to_pylist()
    assert rows[:100] == [{"decoded": {"id": n}, "value": None, "avro_error": None} for n in range(100)]
    assert (rows[100]["decoded"], rows[100]["value"]) == (None, b"garbage")
    assert "schema id" in rows[100]["avro_error"]
    assert rows[101] == {"decoded": None, "value": None, "avro_error": None}


def test_bad_records_become_dead_letters(
    client: Client, registry: RegistryClient, kafka_topic: str, tmp_path: Path
) -> None:
    good = encoded(registry, kafka_topic, range(50))
    client.produce(kafka_topic, 0, [*good[:20], b"bad", *good[20:], b"worse"])
    bad = f"{kafka_topic}-bad"
    summary = load(
        tmp_path,
        client=client,
        topics=[kafka_topic],
        values=AvroValues(registry, f"{kafka_topic}-value", "dlq"),
        dead_letters=bad,
    )
    assert (summary.rows, summary.letters, summary.lag) == (50, 2, 0)
    assert contents.positions(tmp_path) == {TopicPartition(kafka_topic, 0): 52}
    assert [(value, letter.offset) for value, letter in read_all(client, bad)] == [(b"bad", 20), (b"worse", 51)]
    with pytest.raises(ValueError, match="dead_letters needs values"):
        load(tmp_path, client=client, topics=[kafka_topic], dead_letters=bad)


def test_an_avro_schema_that_evolves(
    client: Client, registry: RegistryClient, kafka_topic: str, tmp_path: Path
) -> None:
    """A field is renamed, another one gets a wider type and a third one is new, in another hour."""
    subject, bad = f"{kafka_topic}-value", f"{kafka_topic}-bad"

    def run(schema: str, row: dict[str, object], hour: int) -> Summary:
        encoder = AvroEncoder(registry, subject, schema)
        (value,) = encoder.encode(pa.RecordBatch.from_pylist([row], pa.schema(list(encoder.arrow_type)))).to_pylist()
        sent = [Record(0, STAMP + hour * 3_600_000, None, value, ())]
        client.produce(kafka_topic, 0, RecordColumns.from_records(sent))
        values = AvroValues(registry, subject, "dlq")
        return load(tmp_path, client=client, topics=[kafka_topic], values=values, dead_letters=bad)

    run(record_of('{"name":"id","type":"int"},{"name":"user","type":"string"}'), {"id": 1, "user": "a"}, 0)
    second = (
        '{"name":"id","type":"long"},{"name":"name","type":"string","aliases":["user"]},'
        '{"name":"more","type":["null","double"],"default":null}'
    )
    assert run(record_of(second), {"id": 2**40, "name": "b", "more": 0.5}, 1).rows == 1
    old, new = {"id": 1, "name": "a", "more": None}, {"id": 2**40, "name": "b", "more": 0.5}
    assert read(tmp_path).sort_by("offset").column("decoded").to_pylist() == [old, new]
    compact(tmp_path)
    found = duckdb.read_parquet(f"{tmp_path}/topic=*/*/*/*.parquet").order('"offset"').project("decoded").fetchall()
    assert found == [(old,), (new,)]


def record_of(fields: str) -> str:
    return f'{{"type":"record","name":"R","fields":[{fields}]}}'


def test_json_values_and_a_type_that_does_not_fit(
    kafka_broker: Broker, client: Client, kafka_topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the table cannot hold becomes a dead letter with a sentence, and the load continues."""
    bad = f"{kafka_topic}-bad"

    def run(columns: str, *values: bytes) -> dict[str, object]:
        client.produce(kafka_topic, 0, list(values))
        words = command(kafka_broker, kafka_topic, tmp_path, "--json-schema", columns, "--dead-letters", bad, "--json")
        assert main(words) == 0
        out, err = capsys.readouterr()
        assert err == "kafkalite: engine native (no option needs Spark)\n"
        return json.loads(out)

    first = run("id INT, who STRUCT<name: STRING>", b'{"id": 1, "who": {"name": "a"}}', b'{"id": "one"}', b"[]")
    assert (first["records"], first["letters"]) == (1, 2)
    second = run("id STRING, tags ARRAY<STRING>", b'{"tags": ["x"]}', b'{"id": "two", "tags": []}')
    assert (second["records"], second["letters"]) == (1, 1)
    third = run("id BIGINT", b'{"id": 3000000000}')
    assert (third["records"], third["letters"]) == (1, 0)
    assert read(tmp_path).sort_by("offset").column("decoded").to_pylist() == [
        {"id": 1, "who": {"name": "a"}, "tags": None},
        {"id": None, "who": None, "tags": ["x"]},
        {"id": 3_000_000_000, "who": None, "tags": None},
    ]
    letters = read_all(client, bad)
    assert [value for value, _ in letters] == [b'{"id": "one"}', b"[]", b'{"id": "two", "tags": []}']
    assert main(["letters", "list", "kafkalite-load", "-b", kafka_broker.bootstrap_servers, "-t", bad]) == 0
    assert "column decoded.id is string here, but int32 in the table" in capsys.readouterr().out


def test_flattened_values_in_folders_of_a_column(
    kafka_broker: Broker, client: Client, kafka_topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loads continue with the options of the first one, and another value of them is refused."""
    columns = "id BIGINT, user STRUCT<name: STRING, country: STRING>"

    def run(*more: str) -> tuple[int, str]:
        status = main(command(kafka_broker, kafka_topic, tmp_path, "--json-schema", columns, "-q", *more))
        return status, capsys.readouterr().err

    def produce(*rows: tuple[int, str | None]) -> None:
        values = [{"id": number, "user": {"name": f"n{number}", "country": country}} for number, country in rows]
        client.produce(kafka_topic, 0, [json.dumps(value).encode() for value in values])

    produce((0, "DE"), (1, "a/b=c"), (2, None))
    layout = ("--flatten", ".", "--partition-by", "user.country")
    assert run(*layout) == (0, "")
    produce((3, "DE"), (4, ""), (5, "a/b=c"))
    assert run() == (0, "")
    produce((6, "DE"))
    status, err = run("--partition-by", "day")
    assert status == EXIT_USAGE
    assert f"topic {kafka_topic} in {tmp_path} is partitioned by user.country, not by day; omit the option" in err
    assert run(*layout) == (0, "")
    countries = ["DE", "a/b=c", None, "DE", None, "a/b=c", "DE"]
    expected = [(number, f"n{number}", country) for number, country in enumerate(countries)]
    for _ in range(2):
        table = read(tmp_path).sort_by("offset").select(["id", "user.name", "user.country"])
        assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == expected
        files = f"{tmp_path}/topic=*/*/*.parquet"
        outside = duckdb.read_parquet(files, hive_partitioning=True).order("id")
        assert outside.project('id, "user.name", "user.country"').fetchall() == expected
        compact(tmp_path)
    produce((7, None))
    assert run("--bad", "permissive") == (0, "")
    assert main(["load", "schema", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "user.country" in shown
    assert "hour" not in shown


def test_a_column_that_is_not_there(
    kafka_broker: Broker, client: Client, kafka_topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.produce(kafka_topic, 0, [b'{"id": 1}'])
    words = ("--json-schema", "id BIGINT", "--flatten", "_", "--partition-by", "country", "-q")
    assert main(command(kafka_broker, kafka_topic, tmp_path, *words)) == EXIT_USAGE
    message = f"topic {kafka_topic} has no column country to partition by (columns: id, json_error)"
    assert message in capsys.readouterr().err
    assert list(tmp_path.glob("topic=*")) == []


def read_all(client: Client, topic: str) -> list[tuple[bytes, object]]:
    """Values and letters of all committed records."""
    from kafkalite.client import ColumnReader

    reader = ColumnReader(client, isolation_level="read_committed")
    rows = [row for batch in reader.read(topic, 0, 0, client.end_offset(topic, 0)) for row in batch.to_pylist()]
    return [
        (row["value"], letter_of(tuple((header["key"], header["value"]) for header in row["headers"]))) for row in rows
    ]


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_says_which_engine_and_imports_no_spark(kafka_broker: Broker, filled: str, tmp_path: Path) -> None:
    """PySpark and Java are out of reach: the load works all the same."""
    (tmp_path / "pyspark.py").write_text("raise RuntimeError('no Spark')")
    words = command(kafka_broker, filled, tmp_path / "loaded", "--json")
    variables = {**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}", "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "kafkalite", *words], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "kafkalite: engine native (no option needs Spark)\n")
    told = json.loads(done.stdout)
    assert (told["engine"], told["records"], told["lag"]) == ("native", 2000, 0)


def test_several_topics_of_which_one_fails(
    kafka_broker: Broker, client: Client, filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = f"{filled}-2"
    client.admin.create_topic(other, 1)
    client.produce(other, 0, [b"x"] * 10)
    assert main(command(kafka_broker, other, tmp_path, "-q")) == 0
    client.produce(other, 0, [b"x"] * 10)
    client.admin.delete_records({TopicPartition(other, 0): 15})
    capsys.readouterr()
    assert main(command(kafka_broker, other, tmp_path, "-t", filled, "-q", "--json")) == EXIT_USAGE
    out, err = capsys.readouterr()
    told = json.loads(out)["by_topic"]
    assert (told[filled]["records"], told[filled]["status"], told[other]["status"]) == (2000, "loaded", "failed")
    assert f"kafkalite: could not load {other}: offsets 10 to 15 of {other}-0" in err


@pytest.mark.parametrize(
    ("flag", "value"), [("--json-schema with DECIMAL", "a DECIMAL(9, 2)"), ("--master", "local[1]"), ("--conf", "a=b")]
)
def test_options_that_the_native_engine_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str
) -> None:
    words = [flag.partition(" ")[0], value]
    assert main(["load", "--to", str(tmp_path), "-t", "t", "--engine", "native", *words]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        f"kafkalite: {flag} needs the Spark engine, and --engine native excludes it; omit one of them\n",
    )


def test_arguments_that_cannot_be_meant(client: Client, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set either topics or pattern"):
        load(tmp_path, client=client)
    with pytest.raises(ValueError, match="either client or bootstrap_servers"):
        load(tmp_path, topics=["t"])
    with pytest.raises(OptionError, match="option pattern is not a regular expression"):
        load(tmp_path, client=client, pattern="(")
    with pytest.raises(OptionError, match="option startingOffsets is not valid JSON"):
        load(tmp_path, client=client, topics=["t"], starting="sometime")
    assert not (tmp_path / MANIFESTS).exists()
