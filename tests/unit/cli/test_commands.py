"""The commands against a broker in this process, called as functions; what needs a process is in test_processes.py."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record
from tests.kit.harness.command_output import own_lines
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration


class Result:
    """Status and output of one call."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    @property
    def json(self) -> object:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Result]


@pytest.fixture
def run(kafka_broker, capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Result:
        words = list(arguments)
        if words[0] in {"topics", "configs"}:
            words[2:2] = ["-b", kafka_broker.bootstrap_servers]
        elif words[0] in {"produce", "consume"}:
            words[1:1] = ["-b", kafka_broker.bootstrap_servers]
        status = main(words)
        out, err = capfd.readouterr()
        return Result(status, out, own_lines(err))

    return call


@pytest.fixture
def client(kafka_broker) -> Client:
    with Client(kafka_broker.bootstrap_servers) as client:
        yield client


def file_of(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "input"
    path.write_bytes(data)
    return str(path)


def records_of(client: Client, topic: str, partition: int = 0) -> list[Record]:
    return [record for chunk in client.read(topic, partition) for record in chunk.columns.records()]


# --- topics and configs -----------------------------------------------------------------------------------------------


def test_topic_life(run: Run) -> None:
    assert run("topics", "create", "life", "-p", "2", "--set", "retention.ms=1000").lines == ["created life"]
    assert "life" in run("topics", "list", "--names").lines
    again = run("topics", "create", "life")
    assert (again.status, again.out) == (1, "")
    assert again.err == "kafkalite: topic life: topic life already exists (TOPIC_ALREADY_EXISTS)\n"
    assert run("topics", "create", "life", "--if-not-exists").lines == ["exists already: life"]
    assert run("topics", "add-partitions", "life", "3").lines == ["grown life"]
    (described,) = run("topics", "describe", "life", "--json").json
    assert described["topic"] == "life"
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    assert [(row["start"], row["end"]) for row in described["partitions"]] == [(0, 0)] * 3
    assert run("topics", "describe", "life").lines[1].split() == (
        ["partition", "leader", "replicas", "in", "sync", "start", "end", "records"]
    )
    assert run("topics", "delete", "life").lines == ["deleted life"]
    gone = run("topics", "delete", "life")
    assert (gone.status, "UNKNOWN_TOPIC_OR_PARTITION" in gone.err) == (1, True)
    assert run("topics", "create", "life", "life2", "--if-not-exists").lines == ["created life", "created life2"]
    both = run("topics", "delete", "nope", "life", "life2", "--if-exists")
    assert both.lines == ["does not exist: nope", "deleted life", "deleted life2"]
    assert run("topics", "delete", "life", "--if-exists", "--json").json == {"deleted": []}


def test_the_list_of_topics_says_how_much_is_in_them(run: Run) -> None:
    with Broker(offsets_topic_num_partitions=2) as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("listed-full", 3)
        broker.create_topic("listed-none", 1)
        client.produce("listed-full", 0, [b"x" * 100] * 7)
        client.produce("listed-full", 2, [b"y" * 100] * 5)
        client.admin.delete_records({TopicPartition("listed-full", 0): 2})
        client.groups.commit("of-listed", {TopicPartition("listed-full", 0): 3})  # makes the internal topic
        on_disk = sum(file.stat().st_size for file in broker.config.data_directory.glob("listed-full-*/*.log"))

        def listed(*options: str) -> Result:
            return run("topics", "list", *options, "-b", broker.bootstrap_servers)

        rows = {row["topic"]: row for row in listed("--json").json}
        full = {"topic": "listed-full", "internal": False, "partitions": 3, "records": 10}
        assert {**rows["listed-full"], "size": 0} == {**full, "size": 0}
        assert 1200 < rows["listed-full"]["size"] <= on_disk
        assert (rows["listed-none"]["records"], rows["listed-none"]["size"]) == (0, 0)
        assert rows.keys() == {"listed-full", "listed-none"}
        internal = {row["topic"]: row for row in listed("--internal", "--json").json}
        assert internal["__consumer_offsets"]["internal"] is True
        table = [line.split() for line in listed().lines]
        assert table[0] == ["topic", "partitions", "records", "size"]
        assert ["listed-full", "3", "10", str(rows["listed-full"]["size"])] in table
        assert listed("--names").lines == ["listed-full", "listed-none"]
        assert set(listed("--names", "--json").json) == rows.keys()


def test_topic_settings(run: Run, kafka_topic: str) -> None:
    assert (
        run("topics", "alter", kafka_topic, "--set", "retention.ms=5000", "--set", "segment.bytes=2000000").status == 0
    )
    rows = {row["name"]: row for row in run("configs", "describe", "topic", kafka_topic, "--json").json}
    assert (rows["retention.ms"]["value"], rows["retention.ms"]["source"]) == ("5000", "topic")
    assert run("configs", "alter", "topic", kafka_topic, "--unset", "retention.ms").status == 0
    text = run("configs", "describe", "topic", kafka_topic).out
    assert "segment.bytes" in text
    assert "retention.ms" not in text
    assert "retention.ms" in run("configs", "describe", "topic", kafka_topic, "--all").out
    refused = run("configs", "alter", "topic", kafka_topic, "--set", "retention.ms=soon")
    assert (refused.status, refused.err.count("\n"), "retention.ms" in refused.err) == (1, 1, True)
    assert run("configs", "alter", "topic", kafka_topic, "--set", "retention.ms=7", "--dry-run").status == 0
    assert "retention.ms" not in run("configs", "describe", "topic", kafka_topic).out


def test_broker_settings(run: Run) -> None:
    names = {row["name"] for row in run("configs", "describe", "broker", "--all", "--json").json}
    assert {"num.partitions", "log.retention.ms", "listeners"} <= names
    missing = run("configs", "describe", "broker", "99")
    assert (missing.status, "99" in missing.err) == (1, True)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["done", "asked"])
def test_an_unknown_broker_setting_is_reported(run: Run, dry: tuple[str, ...]) -> None:
    known = run("configs", "alter", "broker", "--set", "log.cleaner.backoff.ms=15000", *dry)
    assert (known.status, known.err) == (0, "")
    mixed = run("configs", "alter", "broker", "--set", "typo=1", "--set", "log.cleaner.backoff.ms=15000", *dry)
    assert (mixed.status, mixed.err.count("\n")) == (0, 1)
    assert "does not know typo:" in mixed.err
    assert "altered" in mixed.out


def test_delete_records(run: Run, client: Client, kafka_topic: str) -> None:
    client.produce(kafka_topic, 0, [b"x"] * 10)
    assert (
        run("topics", "delete-records", kafka_topic, "-p", "0", "--before", "4").out == f"{kafka_topic}-0 starts at 4\n"
    )
    assert run("topics", "delete-records", kafka_topic, "-p", "0", "--before", "end", "--json").json == (
        {"topic": kafka_topic, "partition": 0, "start": 10}
    )


# --- produce ----------------------------------------------------------------------------------------------------------


def test_lines_become_records(run: Run, client: Client, kafka_topic: str, tmp_path: Path) -> None:
    data = b"one\n\ntwo words\n\xff\xfe\nlast without end"
    result = run("produce", "-t", kafka_topic, "--json", file_of(tmp_path, data))
    assert result.status == 0
    assert result.json["records"] == 5
    assert result.json["partitions"][0]["end_offset"] == 5
    assert [record.value for record in records_of(client, kafka_topic)] == [
        b"one",
        b"",
        b"two words",
        b"\xff\xfe",
        b"last without end",
    ]
    assert all(
        record.timestamp > 1_600_000_000_000 and record.key is None for record in records_of(client, kafka_topic)
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_codecs_and_acks(run: Run, client: Client, kafka_topic: str, tmp_path: Path, codec: str, acks: str) -> None:
    lines = [b"line %d" % i for i in range(20_000)]
    path = file_of(tmp_path, b"\n".join(lines) + b"\n")
    assert run("produce", "-t", kafka_topic, "-z", codec, "-a", acks, "--batch-size", "30000", path).status == 0
    assert [record.value for record in records_of(client, kafka_topic)] == lines


def test_keys_headers_nulls_and_timestamp(run: Run, client: Client, kafka_topic: str, tmp_path: Path) -> None:
    path = file_of(tmp_path, b"k1::v1\nno separator\nk2::NIL\nNIL::v::w\n::\n")
    arguments = ["-K", "::", "-Z", "NIL", "-H", "a=1", "-H", "b=x=y", "--timestamp", "42"]
    assert run("produce", "-t", kafka_topic, *arguments, path).status == 0
    headers = (("a", b"1"), ("b", b"x=y"))
    assert records_of(client, kafka_topic) == [
        Record(0, 42, b"k1", b"v1", headers),
        Record(1, 42, None, b"no separator", headers),
        Record(2, 42, b"k2", None, headers),
        Record(3, 42, None, b"v::w", headers),
        Record(4, 42, b"", b"", headers),
    ]


def test_another_delimiter(run: Run, client: Client, kafka_topic: str, tmp_path: Path) -> None:
    path = file_of(tmp_path, b"one\nline;;two;;;three")
    assert run("produce", "-t", kafka_topic, "-D", ";;", path).status == 0
    assert [record.value for record in records_of(client, kafka_topic)] == [b"one\nline", b"two", b";three"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python reads its resources the old way
def test_keys_choose_the_partition_as_java_does(run: Run, client: Client, kafka_broker, tmp_path: Path) -> None:
    from kafka.partitioner.default import murmur2

    kafka_broker.create_topic("spread", 5)
    keys = [b"key-%d" % (i % 97) for i in range(5000)]
    lines = [key + b"\tvalue %d" % i for i, key in enumerate(keys)]
    assert run("produce", "-t", "spread", "-K", "\\t", file_of(tmp_path, b"\n".join(lines))).status == 0
    expected: dict[int, list[bytes]] = {partition: [] for partition in range(5)}
    for i, key in enumerate(keys):
        expected[(murmur2(key) & 0x7FFFFFFF) % 5].append(b"value %d" % i)
    for partition in range(5):
        assert [record.value for record in records_of(client, "spread", partition)] == expected[partition]


def test_records_without_keys_fill_partitions_in_turn(run: Run, client: Client, kafka_broker, tmp_path: Path) -> None:
    kafka_broker.create_topic("turns", 3)
    lines = [b"%07d" % i for i in range(600_000)]
    assert run("produce", "-t", "turns", file_of(tmp_path, b"\n".join(lines))).status == 0
    read = {partition: [record.value for record in records_of(client, "turns", partition)] for partition in range(3)}
    assert all(values == sorted(values) and values for values in read.values())
    assert sorted(value for values in read.values() for value in values) == lines


def test_a_line_longer_than_the_read_buffer(run: Run, client: Client, kafka_broker, tmp_path: Path) -> None:
    kafka_broker.create_topic("long", 1, max_message_bytes=20_000_000)
    data = b"short\n" + b"x" * 9_000_000 + b"\nshort again\n"
    assert run("produce", "-t", "long", file_of(tmp_path, data)).status == 0
    assert [len(record.value or b"") for record in records_of(client, "long")] == [5, 9_000_000, 11]


def test_a_record_too_large_for_the_topic(run: Run, kafka_topic: str, tmp_path: Path) -> None:
    result = run("produce", "-t", kafka_topic, file_of(tmp_path, b"x" * 2_000_000))
    assert result.status == 1
    assert "MESSAGE_TOO_LARGE" in result.err
    assert result.err.count("\n") == 1


def test_an_empty_file_is_no_record(run: Run, client: Client, kafka_topic: str, tmp_path: Path) -> None:
    assert run("produce", "-t", kafka_topic, file_of(tmp_path, b"")).status == 0
    assert client.end_offset(kafka_topic, 0) == 0


# --- consume ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ten(client: Client, kafka_topic: str) -> str:
    """A topic of ten records whose timestamps are 1000, 1010, ..."""
    from kafkalite.wire.record.columns import RecordColumns

    records = [
        Record(-1, 1000 + 10 * i, b"k%d" % i if i % 2 else None, b"v%d" % i, (("h", b"%d" % i),)) for i in range(10)
    ]
    client.produce(kafka_topic, 0, RecordColumns.from_records(records), batch_size=60)
    return kafka_topic


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        ("beginning", 0),
        ("earliest", 0),
        ("3", 3),
        ("-4", 6),
        ("-100", 0),
        ("@1035", 4),
        ("@0", 0),
        ("@9999", 10),
        ("end", 10),
    ],
)
def test_where_to_begin(run: Run, ten: str, offset: str, first: int) -> None:
    assert run("consume", "-t", ten, "-o", offset, "-e").lines == [f"v{i}" for i in range(first, 10)]


def test_count(run: Run, ten: str) -> None:
    assert run("consume", "-t", ten, "-o", "2", "-c", "3").lines == ["v2", "v3", "v4"]


def test_format(run: Run, ten: str) -> None:
    text = "%t/%p@%o %T %k(%K)=%s(%S) [%h] 100%%\\x21\\n"
    assert run("consume", "-t", ten, "-o", "-2", "-e", "-Z", "NULL", "-f", text).lines == [
        f"{ten}/0@8 1080 NULL(-1)=v8(2) [h=8] 100%!",
        f"{ten}/0@9 1090 k9(2)=v9(2) [h=9] 100%!",
    ]


def test_delimiter(run: Run, ten: str) -> None:
    assert run("consume", "-t", ten, "-o", "-2", "-e", "-D", "%;").out == "v8%;v9%;"


def test_json_lines(run: Run, client: Client, ten: str) -> None:
    client.produce(ten, 0, [b"\xff\x00", None], acks=1)
    rows = [json.loads(line) for line in run("consume", "-t", ten, "-o", "9", "-e", "--json").lines]
    assert rows[0] == {
        "topic": ten,
        "partition": 0,
        "offset": 9,
        "timestamp": 1090,
        "key": "k9",
        "value": "v9",
        "headers": [{"key": "h", "value": "9"}],
    }
    assert (rows[1]["value"], rows[1]["value_base64"]) == (None, "/wA=")
    assert (rows[2]["value"], "value_base64" in rows[2]) == (None, False)


def test_offset_that_is_gone(run: Run, client: Client, ten: str) -> None:
    run("topics", "delete-records", ten, "-p", "0", "--before", "5")
    refused = run("consume", "-t", ten, "-o", "1", "-e")
    assert (refused.status, "OFFSET_OUT_OF_RANGE" in refused.err) == (1, True)
    assert run("consume", "-t", ten, "-o", "1", "-e", "--reset", "earliest").lines == ["v5", "v6", "v7", "v8", "v9"]


def test_consume_takes_the_partitions_that_are_named_or_all(run: Run, client: Client, kafka_broker) -> None:
    kafka_broker.create_topic("several", 3)
    for partition in range(3):
        client.produce("several", partition, [b"%d-%d" % (partition, i) for i in range(5)])
    lines = run("consume", "-t", "several", "-o", "beginning", "-e", "-p", "2", "-p", "0").lines
    assert [line for line in lines if line[0] == "0"] == [f"0-{i}" for i in range(5)]
    assert [line for line in lines if line[0] == "2"] == [f"2-{i}" for i in range(5)]
    assert len(lines) == 10
    assert len(run("consume", "-t", "several", "-o", "-1", "-e").lines) == 3


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topics"], "ACTION"),
        (["topics", "make"], "make"),
        (["topics", "create"], "TOPIC"),
        (["topics", "create", "x", "-p", "0"], "from 1"),
        (["topics", "create", "x", "-p", "2147483648"], "from 1"),
        (["topics", "create", "x", "-p", "٣"], "from 1"),
        (["topics", "create", "x", "--set", "novalue"], "KEY=VALUE"),
        (["topics", "alter", "x"], "nothing to change"),
        (["topics", "delete-records", "x", "-p", "0", "--before", "soon"], "soon"),
        (["configs", "describe", "topic"], "the topic name is missing"),
        (["configs", "describe", "broker", "first"], "first"),
        (["produce"], "--topic"),
        (["produce", "-t", "x", "-z", "brotli"], "brotli"),
        (["produce", "-t", "x", "-z", "none", "--level", "3"], "no compression levels"),
        (["produce", "-t", "x", "-z", "gzip", "--level", "77"], "--level 77: compression level of gzip must be"),
        (["produce", "-t", "x", "-K", ""], "--key-separator must not be empty"),
        (["produce", "-t", "x", "/no/such/file"], "/no/such/file"),
        (["produce", "-t", "x", "/"], "/: Is a directory"),
        (["groups", "list", "--state", "stable"], "stable"),
        (["transactions", "list", "--state", "Ended"], "Ended"),
        (["consume", "-t", "x", "-o", "sometime"], "sometime"),
        (["consume", "-t", "x", "-o", "9223372036854775808"], "9223372036854775808"),
        (["produce", "-t", "x", "--timestamp", "9223372036854775808"], "is out of range"),
        (["consume", "-t", "x", "-c", "-1"], "-c"),
        (["consume", "-t", "x", "-f", "%q"], "unknown %q"),
        (["consume", "-t", "x", "--json", "-f", "%s"], "cannot be used"),
        (["consume", "-t", "x", "--timeout", "never"], "never"),
        (["log"], "ACTION"),
        (["log", "dump", "/no/such/dir"], "/no/such/dir"),
        (["settings", "nothing.like.it"], "nothing.like.it"),
        (["completion", "tcsh"], "tcsh"),
        (["produse"], "did you mean 'produce'"),
    ],
)
def test_refused_in_one_sentence(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = map(own_lines, capfd.readouterr())
    assert out == ""
    assert err.startswith("kafkalite: ")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize(
    "arguments",
    [["consume", "-t", "nope"], ["produce", "-t", "nope", "--no-create", "/dev/null"]],
    ids=lambda words: words[0],
)
def test_unknown_topic(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.status, "nope" in result.err) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "create", "x" * 40_000],
        ["topics", "describe", "y" * 40_000],
        ["consume", "-t", "z" * 40_000],
        ["consume", "-t", "a b"],
        ["topics", "create", "a/b"],
        ["topics", "delete-records", "nope", "-p", "3000000000", "--before", "1"],
        ["configs", "alter", "topic", "nope", "--set", f"retention.ms={'9' * 50_000}"],
    ],
    ids=lambda words: words[1],
)
def test_values_beyond_the_protocol(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.status == 1
    assert result.err.count("\n") == 1


def test_unknown_partition(run: Run, kafka_topic: str) -> None:
    for words in (["consume"], ["produce", "/dev/null"]):
        result = run(*words, "-t", kafka_topic, "-p", "7")
        assert (result.status, "no partition 7 (partition count: 1)" in result.err) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        "topics list",
        "consume -t x",
        "configs describe broker",
        "failures status g",
        "failures ledger g",
        "letters list g",
        "letters count g",
        "letters show g orders-0-1",
        "letters redrive g",
        "letters redrive g --yes",
        "letters resolve g 2026-11-22",
        "letters skip g orders-0-1",
        "letters tombstone orders-0-1",
    ],
)
def test_nobody_listens(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "-b", "127.0.0.1:1", "--timeout", "2"]) == 2
    out, err = capfd.readouterr()
    assert (out, err) == ("", "kafkalite: cannot connect to 127.0.0.1:1: Connection refused\n")


# --- offline ----------------------------------------------------------------------------------------------------------


def test_settings(run: Run) -> None:
    text = run("settings", "retention").out
    assert "log.retention.ms  (broker" in text
    assert "retention.ms  (topic" in text
    rows = run("settings", "--topic", "--json").json
    assert {row["scope"] for row in rows} == {"topic"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_command_and_flag(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    for word in ("add-partitions", "if-not-exists", "key-separator", "read-committed", "ready-file"):
        assert word in script


def test_help_of_everything(capfd: pytest.CaptureFixture[str]) -> None:
    from kafkalite.cli import COMMANDS

    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        assert f"usage: kafkalite {name}" in capfd.readouterr().out
    assert main(["--help"]) == 0
    assert main(["-V"]) == 0
    assert main([]) == 2


# --- groups and transactions ------------------------------------------------------------------------------------------


def test_consume_in_a_group_resumes_where_it_stopped(run: Run, client: Client, kafka_topic: str) -> None:
    client.produce(kafka_topic, 0, [b"%d" % i for i in range(10)])
    group = ["consume", "-t", kafka_topic, "-g", f"group-{kafka_topic}"]
    assert run(*group, "--from-beginning", "-c", "3").lines == ["0", "1", "2"]
    assert run(*group, "--from-beginning", "-c", "4", "--assignor", "cooperative-sticky").lines == ["3", "4", "5", "6"]
    assert {row.offset for row in client.groups.committed(f"group-{kafka_topic}").values()} == {7}
    again = run(*group, "-c", "3", "--json", "--instance-id", "one")
    assert [json.loads(line)["offset"] for line in again.lines] == [7, 8, 9]


def test_produce_in_a_transaction(run: Run, client: Client, kafka_topic: str, tmp_path: Path) -> None:
    lines = file_of(tmp_path, b"one\ntwo\nthree\n")
    produce = ["produce", "-t", kafka_topic, "--transactional-id", f"id-{kafka_topic}"]
    assert run(*produce, lines).status == 0
    broken = run(*produce, lines, str(tmp_path / "missing"))
    assert (broken.status, "missing" in broken.err) == (2, True)
    assert run(*produce, "--transaction-timeout", "30", lines).status == 0
    committed = ["consume", "-t", kafka_topic, "-o", "beginning", "-e", "--isolation", "read_committed"]
    twice = ["one", "two", "three"] * 2  # what ends a transaction is answered before all its markers are written
    wait_until(lambda: run(*committed).lines == twice, 60, "both transactions")
    assert run(*committed, "--read-committed").lines == twice


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-g", "g", "-p", "0"], "omit --partition"),
        (["-g", "g", "--reset", "latest"], "omit --partition"),
        (["-g", "g", "-o", "-5"], "must be beginning or end"),
        (["-g", "g", "-o", "@7"], "must be beginning or end"),
        (["-g", ""], "must not be empty"),
        (["--from-beginning", "-o", "end"], "cannot be used together"),
        (["--read-committed", "--isolation", "read_uncommitted"], "contradict each other"),
        (["--instance-id", "one"], "requires --group"),
        (["--assignor", "range"], "requires --group"),
        (["-g", "g", "--assignor", "fair"], "invalid choice"),
    ],
)
def test_consume_refuses_in_a_sentence(run: Run, arguments: list[str], text: str) -> None:
    refused = run("consume", "-t", "t", *arguments)
    assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert text in refused.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--transactional-id", "x", "--acks", "1"], "--acks all"),
        (["--transactional-id", ""], "must not be empty"),
        (["--transaction-timeout", "5"], "requires --transactional-id"),
    ],
)
def test_produce_refuses_in_a_sentence(run: Run, arguments: list[str], text: str) -> None:
    refused = run("produce", "-t", "t", *arguments)
    assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert text in refused.err


def test_consume_in_a_group_of_a_topic_that_is_not_there(run: Run) -> None:
    refused = run("consume", "-t", "not-there", "-g", "g")
    assert (refused.status, "UNKNOWN_TOPIC_OR_PARTITION" in refused.err) == (1, True)


def test_produce_makes_a_topic_where_the_broker_makes_topics(run: Run, client: Client, tmp_path: Path) -> None:
    assert run("produce", "-t", "fresh", file_of(tmp_path, b"one\n")).status == 0
    assert [record.value for record in records_of(client, "fresh")] == [b"one"]


def test_produce_follows_a_broker_that_makes_no_topics(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        words = ["produce", "-t", "fresh", "-b", broker.bootstrap_servers, file_of(tmp_path, b"one\n")]
        assert main(words) == 1
        assert "UNKNOWN_TOPIC_OR_PARTITION" in capfd.readouterr().err
        assert "fresh" not in broker.logs.topics


LEVEL = "kafkalite: isolation level read_uncommitted\n"


def test_consume_says_that_it_waits_on_a_terminal_alone(
    run: Run, client: Client, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = f"waiting for new records of {kafka_topic} (use -o beginning for existing records)\n"

    def consumed(*options: str) -> str:
        stop = threading.Event()

        def write() -> None:
            while not stop.wait(0.02):
                client.produce(kafka_topic, 0, [b"v"])

        writer = threading.Thread(target=write)
        writer.start()
        try:
            return run("consume", "-t", kafka_topic, "-c", "1", *options).err.replace(LEVEL, "")
        finally:
            stop.set()
            writer.join()

    assert consumed() == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert consumed() == sentence
    assert consumed("-o", "end") == ""
    assert consumed("--from-beginning") == ""
    assert consumed("-o", "beginning", "-e") == ""


def test_consume_from_the_end_to_the_end_says_that_it_reads_nothing(run: Run, ten: str) -> None:
    nothing = run("consume", "-t", ten, "-e")
    assert (nothing.status, nothing.out) == (0, "")
    hint = "nothing to read: without -o, reading starts at the end, where -e stops; add -o beginning"
    assert nothing.err == f"{LEVEL}kafkalite: {hint}\n"
    assert run("consume", "-t", ten, "-o", "end", "-e").err == LEVEL
