"""`kafkalite audit` between two brokers: what was planted is found and named, and nothing else."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer as ConfluentProducer

from kafkalite.audit import AuditedConfluentProducer, AuditedProducer, AuditedWriter
from kafkalite.audit import run as run_module
from kafkalite.audit.events import Reported
from kafkalite.audit.marks import HEADER, read_marks
from kafkalite.audit.stages import loaded_files, read_reports
from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.load.compaction import compact
from kafkalite.load.manifest import DataFile
from kafkalite.wire.record.columns import BytesColumn, Record, RecordColumns
from tests.kit.harness.audited_load import load_into
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration

MINUTE = 60_000
STAMP = 1_700_000_040_000
"""A minute begins."""
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "audit.md"


@pytest.fixture(scope="module")
def live() -> Iterator[Broker]:
    with Broker({"flush.on.acks.all": False, "transaction.state.log.num.partitions": 2}) as running:
        yield running


@pytest.fixture(scope="module")
def offline() -> Iterator[Broker]:
    with Broker({"flush.on.acks.all": False, "transaction.state.log.num.partitions": 2}) as running:
        yield running


@pytest.fixture
def client(live: Broker) -> Iterator[Client]:
    with Client(live.bootstrap_servers) as one:
        yield one


def records(count: int, first: int = 0) -> list[Record]:
    """Ten a second."""
    return [
        Record(-1, STAMP + 100 * i, b"k%d" % i, b"value %d" % i, (("n", b"%d" % i),))
        for i in range(first, first + count)
    ]


def audit(live: Broker, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict]:  # type: ignore[type-arg]
    status = main(["audit", "--live", live.bootstrap_servers, "--json", "-q", "--grace", "0", *options])
    return status, json.loads(capsys.readouterr().out)


def report(client: Client, topic: str, count: int) -> None:
    """Create a topic, write records to it and report them."""
    client.admin.create_topic(topic, 1)
    with AuditedProducer(client, server="web1") as producer:
        producer.send(topic, 0, records(count))


def read_increments(client: Client, topic: str) -> Reported:
    reported = Reported()
    read_reports(client, topic, reported)
    return reported


def await_markers(client: Client, topic: str) -> None:
    """A commit is answered before its markers are everywhere; until then its records are not read."""

    def settled() -> bool:
        parts = client.partitions(topic)
        return all(client.end_offset(topic, part, isolation=1) == client.end_offset(topic, part) for part in parts)

    wait_until(settled, 60, f"every transaction in {topic} is over")


def copy(source: Client, target: Client, topic: str, *, leave_out: set[int], twice: set[int]) -> None:
    """A mirror that loses some records of each partition and doubles others, by their offsets."""
    target.admin.create_topic(topic, len(source.partitions(topic)))
    for partition in source.partitions(topic):
        for chunk in source.read(topic, partition):
            rows = chunk.columns.offsets.tolist() if partition == 0 else range(len(chunk.columns))
            picked = [
                at
                for at, offset in enumerate(rows)
                if partition or offset not in leave_out
                for _ in range(2 if not partition and offset in twice else 1)
            ]
            target.produce(topic, partition, chunk.columns.chosen(np.array(picked)))


def test_a_loss_of_seven_and_three_doubled_in_one_window_are_found_and_nothing_else(
    live: Broker, offline: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.admin.create_topic("planted", 2)
    for server in ("web1", "web2"):
        with AuditedProducer(client, server=server) as producer:
            for first in range(0, 3000, 500):
                producer.send("planted", 0 if server == "web1" else 1, records(500, first))
    with Client(offline.bootstrap_servers) as target:
        copy(client, target, "planted", leave_out=set(range(700, 707)), twice={650, 651, 900})
    status, found = audit(live, capsys, "--offline", offline.bootstrap_servers, "--topics", "planted")
    assert status == 1
    assert (found["expected"], found["windows"], found["open_windows"]) == (6000, 5, 0)
    assert found["differences"] == [
        {
            "stage": "offline",
            "topic": "planted",
            "window_ms": STAMP + MINUTE,
            "length_ms": MINUTE,
            "server": "web1",
            "expected": 600,
            "missing": 7,
            "duplicated": 3,
            "unreported": 0,
            "window": "2023-11-14T22:15:00 60 s",
        }
    ]
    (named,) = found["messages"]
    assert (named["missing"], named["duplicated"]) == ([[700, 706]], {"650": 1, "651": 1, "900": 1})
    assert found["stages"]["live"] == {"records": 6000, "unmarked": 0, "missing": 0, "duplicated": 0, "unreported": 0}
    assert (
        main(["audit", "--live", live.bootstrap_servers, "--offline", offline.bootstrap_servers, "--topics", "planted"])
        == 1
    )
    text = capsys.readouterr().out
    assert "missing 700-706; duplicated 650-651, 900" in text.replace("650, 651", "650-651")
    assert "1 difference: 6000 messages of 1 topic in 5 windows, compared with live, offline" in text


def test_a_mirror_that_copies_everything_is_complete_as_far_as_it_says(
    live: Broker, offline: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.admin.create_topic("copied", 2)
    both = ["--from", live.bootstrap_servers, "--to", offline.bootstrap_servers]
    options = ["--offline", offline.bootstrap_servers, "--mirror", "whole", "--topics", "copied"]
    with AuditedProducer(client, server="web1") as producer:
        producer.send("copied", 0, records(1500))
        producer.flush()
        assert main(["mirror", *both, "--name", "whole", "--topics", "copied", "-e", "-q"]) == 0
        capsys.readouterr()
        with Client(offline.bootstrap_servers) as target:
            await_markers(target, "copied")
        status, found = audit(live, capsys, *options)
        assert (status, found["complete"], found["expected"]) == (0, True, 1500)
        assert list(found["stages"]) == ["live", "mirror", "offline"]
        producer.send("copied", 1, records(40))
    status, found = audit(live, capsys, *options)
    assert status == 1
    wanted = [("mirror", 40), ("offline", 40)]  # it has not come that far, and says so
    assert [(row["stage"], row["missing"]) for row in found["differences"]] == wanted
    assert main(["audit", "--live", live.bootstrap_servers, "--topics", "copied"]) == 0
    assert capsys.readouterr().out.startswith("complete: 1540 messages of 1 topic in 3 windows, each once in live\n")


def test_columns_are_marked_and_keep_their_own_headers(live: Broker, client: Client) -> None:
    client.admin.create_topic("columns", 1)
    headers = pa.array([[("a", b"1")], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    with AuditedWriter(live.bootstrap_servers, "columns", server="web3", window_s=10) as writer:
        writer.write(pa.record_batch({"value": [b"x", b"y"], "headers": headers}))
        writer.write_columns(
            RecordColumns(
                np.empty(0, np.int64), np.empty(0, np.int64), BytesColumn.from_items([]), BytesColumn.from_items([b"z"])
            )
        )
    (chunk,) = list(client.read("columns", 0))
    marks = read_marks(chunk.columns.headers)
    assert marks.sequences.tolist() == [0, 1, 2]
    assert marks.timestamps.tolist() == chunk.columns.timestamps.tolist()
    assert [[name for name, _ in row.headers] for row in chunk.records()] == [["a", HEADER], [HEADER], [HEADER]]
    reported = read_increments(client, "kafkalite.audit")
    (windows,) = [rows for (topic, _), rows in reported.expected.items() if topic == "columns"]
    assert sum(windows.values()) == 3
    assert reported.servers[int(marks.runs[0])] == "web3"


def test_what_a_transaction_gave_up_is_not_counted(
    live: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.admin.create_topic("given-up", 1)
    with AuditedProducer(client, server="web1", transactional_id="audited", report_interval_s=0) as producer:
        with producer.transaction():
            producer.send("given-up", 0, records(10))
        producer.begin_transaction()
        producer.send("given-up", 0, records(5))
        producer.send("given-up", 0, records(5))
        producer.abort_transaction()
        with producer.transaction():
            producer.send("given-up", 0, records(20))
    for topic in ("given-up", "kafkalite.audit"):
        await_markers(client, topic)
    status, found = audit(live, capsys, "--topics", "given-up")
    assert (status, found["expected"], found["stages"]["live"]["records"]) == (0, 30, 30)


def test_confluent_kafka_s_producer_is_audited(
    live: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.admin.create_topic("foreign", 3)
    delivered = []
    configuration = {"bootstrap.servers": live.bootstrap_servers, "linger.ms": 5}
    with AuditedConfluentProducer(configuration, server="web4", report_interval_s=0.01) as producer:
        for number in range(500):
            producer.produce(
                "foreign",
                b"v%d" % number,
                key=b"k%d" % number,
                timestamp=STAMP + 1000 * number,
                headers={"n": b"%d" % number},
                on_delivery=lambda error, message: delivered.append(error),
            )
            producer.poll(0)
        assert producer.list_topics(timeout=30).topics["foreign"]
    assert delivered == [None] * 500
    assert len(producer) == 0
    status, found = audit(live, capsys, "--topics", "foreign")
    assert (status, found["expected"], found["windows"]) == (0, 500, 9)
    assert {
        record.headers[0][0]
        for part in range(3)
        for chunk in client.read("foreign", part)
        for record in chunk.records()
    } == {"n"}
    with pytest.raises(AttributeError, match="no transactions"):
        producer.init_transactions()
    with pytest.raises(ValueError, match="cannot be audited"):
        AuditedConfluentProducer({"transactional.id": "t"})


def test_a_full_queue_takes_no_number_and_counts_wait(live: Broker, client: Client) -> None:
    plain = ConfluentProducer(
        {"bootstrap.servers": live.bootstrap_servers, "queue.buffering.max.messages": 3, "linger.ms": 60_000}
    )
    producer = AuditedConfluentProducer(plain, server="web5")
    for _ in range(3):
        producer.produce("full", b"v")
    with pytest.raises(BufferError):
        producer.produce("full", b"v")
    assert producer.flush(0) == 3 + 1  # and the counts
    assert producer.flush(60) == 0
    expected = read_increments(client, "kafkalite.audit").expected
    assert sum(expected["full", producer.tally.run].values()) == 3


def test_loaded_files_are_stages_too(
    live: Broker, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(client, "loaded", 1500)
    places = ["topic", "partition", "offset", "timestamp"]
    load_into(tmp_path / "all", client, "loaded", list(range(1500)), [*places, "value", "headers"])
    options = ["--topics", "loaded", "--loaded", str(tmp_path / "all")]
    status, found = audit(live, capsys, *options)
    assert (status, found["stages"]["loaded"]["records"]) == (0, 1500)
    some = [*range(700), *range(707, 1500), 650, 651, 900]
    load_into(tmp_path / "some", client, "loaded", some, [*places, "headers"])
    status, found = audit(live, capsys, *options, "--loaded", f"other={tmp_path / 'some'}")
    assert status == 1
    assert [(row["stage"], row["window_ms"], row["missing"], row["duplicated"]) for row in found["differences"]] == [
        ("other", STAMP + MINUTE, 7, 3)
    ]
    late = ["--since", str(STAMP + 2 * MINUTE)]
    status, found = audit(live, capsys, "--topics", "loaded", "--loaded", str(tmp_path / "some"), *late)
    assert (status, found["expected"]) == (0, 300)
    load_into(tmp_path / "bare", client, "loaded", [0], places)
    for folder, sentence in [
        ([tmp_path / "bare"], "was loaded without headers"),
        ([tmp_path / "never"], "contains no loaded files"),
        ([tmp_path / "all", tmp_path / "some"], "stage 'loaded' already exists"),
        ([f"live={tmp_path}"], "stage 'live' already exists"),
    ]:
        named = [word for one in folder for word in ("--loaded", str(one))]
        assert main(["audit", "--live", live.bootstrap_servers, "--topics", "loaded", *named]) == 2
        assert sentence in capsys.readouterr().err


def test_what_cannot_begin_says_so(
    live: Broker, offline: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    report(client, "reported", 1)
    address = ["audit", "--live", live.bootstrap_servers]
    for options, sentence in [
        (["--counts", "nobody"], "topic nobody, which should hold the producers' counts, does not exist"),
        (["--mirror", "m"], "--mirror requires --offline"),
        (["--offline", offline.bootstrap_servers, "--mirror", "a b"], "'a b' is not a valid mirror name"),
        (
            ["--offline", offline.bootstrap_servers, "--mirror", "never"],
            "no mirror named never has stored progress in the target",
        ),
        (["--offline", "x:y"], "--offline: 'x:y' is not host:port"),
        (["--topics", "("], "--topics: "),
        (["--since", "yesterday"], "'yesterday' is not a time"),
        (["--grace", "-1"], "is not a positive number of seconds"),
        (["--loaded", "s3://bucket/loaded"], "--loaded s3://bucket/loaded is a URL"),
        (["--loaded", "lake=hdfs://host/loaded"], "--loaded hdfs://host/loaded is a URL"),
        (["--loaded", "s3:/bucket"], "--loaded s3:/bucket is a URL"),
    ]:
        assert main([*address, *options]) == 2
        assert sentence in capsys.readouterr().err


def test_an_audit_that_judged_nothing_is_not_complete(
    live: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    report(client, "unjudged", 600)
    address = ["audit", "--live", live.bootstrap_servers, "-q", "--topics"]

    def told(*options: str) -> str:
        assert main([*address, *options]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1, err
        return err

    assert "no producer has reported counts for a topic that matches no[.]such" in told("no[.]such")
    outside = ("unjudged", "--since", "2020-01-01", "--until", "2020-01-02")
    assert "nothing to compare: no window of 1 topic in the requested time" in told(*outside)
    now = round(time.time() * 1000)
    client.admin.create_topic("fresh", 1)
    with AuditedProducer(client, server="web1") as producer:
        producer.send("fresh", 0, [one._replace(timestamp=now) for one in records(10)])
    assert "nothing to compare yet: 1 window still open or within --grace" in told("fresh", "--grace", "900000")
    assert main([*address, *outside, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["complete"] is False


@pytest.mark.parametrize("text", ["2023-11-14T22:14:00", "2023-11-14T23:14:00+01:00", str(STAMP)])
def test_windows_are_chosen_by_time(
    text: str, live: Broker, client: Client, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    topic = f"chosen-{len(text)}"
    client.admin.create_topic(topic, 1)
    with AuditedProducer(client, server="web1") as producer:
        producer.send(topic, 0, [one._replace(timestamp=one.timestamp - MINUTE) for one in records(1500)])
    status, found = audit(live, capsys, "--topics", topic, "--since", text, "--until", str(STAMP + MINUTE))
    assert (status, found["expected"], found["windows"]) == (0, 600, 1)
    assert found["stages"]["live"]["records"] == 900


def test_examples_of_the_documentation_run(live: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)[:2]
    names: dict[str, object] = {}
    for example in examples:
        text = example.replace("127.0.0.1:9092", live.bootstrap_servers)
        exec(compile(text, str(DOCUMENT), "exec"), names)  # noqa: S102  # our own text
    assert audit(live, capsys, "--topics", "visits")[1]["stages"]["live"]["records"] == 3


def test_files_that_compaction_replaces_while_they_are_read_are_looked_up_again(
    live: Broker, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report(client, "compacted-files", 100)
    for first in (0, 50):
        rows = list(range(first, first + 50))
        load_into(tmp_path, client, "compacted-files", rows, ["topic", "partition", "offset", "timestamp", "headers"])
    looked = []

    def look_and_compact(folder: str) -> list[DataFile]:
        found = loaded_files(folder)
        looked.append(len(found))
        if len(looked) == 1:
            compact(folder)
        return found

    monkeypatch.setattr(run_module, "loaded_files", look_and_compact)
    status, found = audit(live, capsys, "--topics", "compacted-files", "--loaded", str(tmp_path))
    assert (status, found["stages"]["loaded"]["records"], looked) == (0, 100, [2, 1])
    monkeypatch.setattr(run_module, "loaded_files", lambda _folder: [loaded_files(_folder)[0]._replace(path="gone")])
    assert (
        main(["audit", "--live", live.bootstrap_servers, "--topics", "compacted-files", "--loaded", str(tmp_path)]) == 2
    )
    assert "kept being replaced" in capsys.readouterr().err


def test_windows_go_by_the_producers_time_where_the_broker_gives_its_own(
    live: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.admin.create_topic("stamped", 1, configs={"message.timestamp.type": "LogAppendTime"})
    with AuditedProducer(client, server="web1") as producer:
        producer.send("stamped", 0, records(1500))
    (chunk,) = client.read("stamped", 0)
    assert chunk.columns.timestamps.min() > STAMP + 10 * MINUTE
    status, found = audit(live, capsys, "--topics", "stamped")
    assert (status, found["expected"], found["windows"]) == (0, 1500, 3)
