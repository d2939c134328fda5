"""The commands as processes: start and its signals, pipes that close, Ctrl-C, the main job, log dump on real files."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite import __version__
from kafkalite._native.log.log_append import append_batch
from kafkalite.broker.log import transaction_index
from tests.kit.harness.log_harness import LogHarness, make_batch
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import REPOSITORY, free_port, wait_until

pytestmark = pytest.mark.integration

KAFKALITE = [sys.executable, "-m", "kafkalite"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
DEADLINE_S = 60.0


def call(*arguments: str, stdin: bytes = b"", **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*KAFKALITE, *arguments], input=stdin, capture_output=True, env=ENVIRONMENT, timeout=DEADLINE_S, **options
    )


class Running:
    """A `kafkalite start` that is ready."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.data = directory / "data"
        self.ready = directory / "ready"
        self.out = directory / "out"
        self.err = directory / "err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            command = [*KAFKALITE, "start", "--data-dir", str(self.data), "--ready-file", str(self.ready), *arguments]
            self.process = subprocess.Popen(command, stdout=out, stderr=err, env=ENVIRONMENT)
        wait_until(self.said_or_ended, DEADLINE_S, "the line, which comes after the ready file")
        assert self.process.poll() is None, self.err.read_text()
        self.bootstrap = self.ready.read_text().strip()

    def said_or_ended(self) -> bool:
        return "\n" in self.out.read_text() or self.process.poll() is not None

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path, "--listeners", "kafka://127.0.0.1:0")
    yield running
    running.process.kill()
    running.process.wait()


# --- start ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_start_says_where_and_stops_on_a_signal(broker: Running, number: int) -> None:
    assert broker.out.read_text() == (
        f"kafkalite is ready: bootstrap.servers={broker.bootstrap}, data in {broker.data}\n"
    )
    assert call("topics", "list", "-b", broker.bootstrap).returncode == 0
    assert broker.stop(number) == 0
    assert not broker.ready.exists()
    started, stopped = (
        line for line in broker.err.read_text().splitlines() if " serves " in line or " stopped: " in line
    )
    assert f"kafkalite {__version__} serves KAFKA://{broker.bootstrap} data={broker.data} partitions=0 " in started
    assert "last_stop=clean" in started
    assert re.search(rf"kafkalite stopped: {signal.Signals(number).name} clean=yes seconds=[0-9.]+$", stopped)


def test_start_in_json_logs_json_only(tmp_path: Path) -> None:
    running = Running(tmp_path, "--listeners", "kafka://127.0.0.1:0", "--log-format", "json", "--log-level", "debug")
    assert running.stop() == 0
    lines = running.err.read_text().splitlines()
    assert lines
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_settings_from_file_and_command_line(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("num.partitions=7\nlog.retention.ms=1000\n")
    listeners = "kafka://127.0.0.1:0"
    running = Running(tmp_path, "--config", str(config), "--set", "log.retention.ms=2000", "--listeners", listeners)
    rows = json.loads(call("configs", "describe", "broker", "-b", running.bootstrap, "--json").stdout)
    values = {row["name"]: row["value"] for row in rows}
    assert (values["num.partitions"], values["log.retention.ms"]) == ("7", "2000")
    assert running.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    sample(
        [
            (["--set", "no.such.setting=1"], "no.such.setting"),
            (["--set", "num.partitions=many"], "num.partitions"),
            (["--set", "num.partitions"], "KEY=VALUE"),
            (["--listeners", "ftp://x"], "listeners"),
            (["--config", "/no/such/file"], "/no/such/file"),
            (["--log-level", "loud"], "loud"),
            (["--data-dir", ""], "--data-dir: must not be empty"),
            (["--frobnicate"], "--frobnicate"),
            (
                [
                    "--listeners",
                    "kafka://127.0.0.1:0,kafka07://127.0.0.1:0",
                    "--set",
                    "zookeeper.connect=127.0.0.1:1",
                    "--set",
                    "zk.connectiontimeout.ms=200",
                ],
                "no ZooKeeper server at 127.0.0.1:1 answered",
            ),
        ],
        5,
    ),
)
def test_start_refuses_in_one_sentence(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = call("start", "--data-dir", str(tmp_path / "data"), *arguments)
    assert result.returncode == 2
    assert result.stdout == b""
    assert result.stderr.decode().startswith("kafkalite: ")
    assert result.stderr.count(b"\n") == 1
    assert said in result.stderr.decode()


def test_zookeeper_of_a_file_is_not_asked_without_a_listener_for_it(tmp_path: Path) -> None:
    running = Running(tmp_path, "--listeners", "kafka://127.0.0.1:0", "--set", "zookeeper.connect=127.0.0.1:1")
    assert running.stop() == 0
    assert "no effect without a kafka07:// listener" in running.err.read_text()


def test_a_second_broker_on_the_same_data_is_refused(broker: Running) -> None:
    result = call("start", "--data-dir", str(broker.data), "--listeners", "kafka://127.0.0.1:0")
    assert result.returncode == 2
    assert str(broker.data) in result.stderr.decode()


def test_a_port_in_use_is_refused(broker: Running, tmp_path: Path) -> None:
    result = call("start", "--data-dir", str(tmp_path / "other"), "--listeners", f"kafka://{broker.bootstrap}")
    assert result.returncode == 2
    assert broker.bootstrap.rpartition(":")[2] in result.stderr.decode()
    assert b"Traceback" not in result.stderr


@pytest.mark.parametrize("place", ["missing/ready", "."])
def test_a_ready_file_that_cannot_be_is_refused(tmp_path: Path, place: str) -> None:
    ready = tmp_path / place
    arguments = ("--listeners", "kafka://127.0.0.1:0", "--log-level", "error", "--ready-file", str(ready))
    result = call("start", "--data-dir", str(tmp_path / "data"), *arguments)
    assert (result.returncode, result.stdout) == (2, b"")
    assert result.stderr.decode().startswith(f"kafkalite: --ready-file {ready}: ")
    assert result.stderr.count(b"\n") == 1


def test_a_start_without_descriptors_is_refused(tmp_path: Path) -> None:
    command = (
        f"ulimit -n 8; exec {' '.join(KAFKALITE)} start --data-dir {tmp_path / 'data'} --listeners kafka://127.0.0.1:0"
    )
    result = subprocess.run(["sh", "-c", command], capture_output=True, env=ENVIRONMENT, timeout=DEADLINE_S)
    assert result.returncode == 2
    assert result.stderr.decode().splitlines()[-1].startswith("kafkalite: cannot start: Too many open files")
    assert b"Traceback" not in result.stderr


def test_with_a_listener_for_old_clients_only_that_is_where_it_is(tmp_path: Path) -> None:
    running = Running(tmp_path, "--listeners", "kafka07://127.0.0.1:0")
    assert running.out.read_text() == f"kafkalite is ready: Kafka 0.7 on {running.bootstrap}, data in {running.data}\n"
    assert f"kafkalite {__version__} serves KAFKA07://{running.bootstrap} " in running.err.read_text()
    assert running.stop() == 0


@pytest.mark.parametrize("redirected", sample(["", "<&- >&-", "<&- >&- 2>&-", ">/dev/full"], 2))
def test_a_broker_serves_though_its_output_is_not_read(tmp_path: Path, redirected: str) -> None:
    ready = tmp_path / "ready"
    flags = f"--data-dir {tmp_path / 'data'} --listeners kafka://127.0.0.1:0 --ready-file {ready}"
    command = f"exec {' '.join(KAFKALITE)} start {flags} {redirected}"
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(["sh", "-c", command], stdout=writer, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    os.close(writer)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, DEADLINE_S, "the ready file")
        assert process.poll() is None
        assert call("topics", "create", "x", "-b", ready.read_text().strip()).returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()


# --- pipes and signals ------------------------------------------------------------------------------------------------


def test_lines_through_pipes_come_back_byte_for_byte_after_kill_9(tmp_path: Path) -> None:
    port = free_port()
    listeners = f"kafka://127.0.0.1:{port}"
    running = Running(tmp_path, "--listeners", listeners)
    data = b"".join(b"%d %s\n" % (i, os.urandom(i % 60).replace(b"\n", b"")) for i in range(200_000))
    assert call("topics", "create", "job", "-b", running.bootstrap).returncode == 0
    sent = call("produce", "-t", "job", "-b", running.bootstrap, "--json", stdin=data)
    assert (sent.returncode, json.loads(sent.stdout)["records"]) == (0, 200_000)
    running.stop(signal.SIGKILL)
    running.ready.unlink()
    running = Running(tmp_path, "--listeners", listeners)
    back = call("consume", "-t", "job", "-o", "beginning", "-e", "-b", running.bootstrap)
    assert back.returncode == 0
    assert back.stdout == data
    assert running.stop() == 0


@pytest.mark.slow
def test_producing_continues_across_a_kill_9(tmp_path: Path) -> None:
    listeners = f"kafka://127.0.0.1:{free_port()}"
    running = Running(tmp_path, "--listeners", listeners)
    assert call("topics", "create", "job", "-b", running.bootstrap).returncode == 0
    command = [*KAFKALITE, "produce", "-t", "job", "-b", running.bootstrap, "--batch-size", "5000", "--json"]
    producer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert producer.stdin is not None
    lines = [b"%d\n" % i for i in range(60_000)]
    for number, start in enumerate(range(0, len(lines), 10_000)):
        producer.stdin.write(b"".join(lines[start : start + 10_000]))
        producer.stdin.flush()
        if number in {1, 3}:
            running.stop(signal.SIGKILL)
            running.ready.unlink()
            running = Running(tmp_path, "--listeners", listeners)
    out, _ = producer.communicate(timeout=DEADLINE_S)
    assert (producer.returncode, json.loads(out)["records"]) == (0, 60_000)
    back = call("consume", "-t", "job", "-o", "beginning", "-e", "-b", running.bootstrap)
    assert back.stdout == b"".join(lines)
    assert running.stop() == 0


def test_what_trickles_in_is_sent_at_once(broker: Running) -> None:
    assert call("topics", "create", "slow", "-b", broker.bootstrap).returncode == 0
    command = [*KAFKALITE, "produce", "-t", "slow", "-b", broker.bootstrap]
    consume = [*KAFKALITE, "consume", "-t", "slow", "-o", "beginning", "-b", broker.bootstrap, "-c", "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=ENVIRONMENT) as producer:
        with subprocess.Popen(consume, stdout=subprocess.PIPE, env=ENVIRONMENT) as consumer:
            assert producer.stdin is not None
            assert consumer.stdout is not None
            producer.stdin.write(b"first\nsec")
            producer.stdin.flush()
            assert consumer.stdout.readline() == b"first\n"
            producer.stdin.write(b"ond\n")
            producer.stdin.flush()
            assert consumer.stdout.readline() == b"second\n"
            assert consumer.wait(DEADLINE_S) == 0
        producer.stdin.close()
        assert producer.wait(DEADLINE_S) == 0


LEVEL = b"kafkalite: isolation level read_uncommitted\n"


def test_a_reader_that_goes_away_ends_consume_quietly(broker: Running) -> None:
    assert call("topics", "create", "much", "-b", broker.bootstrap).returncode == 0
    call("produce", "-t", "much", "-b", broker.bootstrap, stdin=b"line\n" * 500_000)
    command = [*KAFKALITE, "consume", "-t", "much", "-o", "beginning", "-b", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == b"line\n"
        consumer.stdout.close()
        assert consumer.wait(DEADLINE_S) == 1
        assert consumer.stderr.read() == LEVEL


@pytest.mark.parametrize("command", sample(["topics", "settings", "completion"], 1))
def test_a_reader_that_goes_away_ends_short_commands_quietly(broker: Running, command: str) -> None:
    arguments = {"topics": ["list", "-b", broker.bootstrap], "settings": [], "completion": ["bash"]}[command]
    read, write = os.pipe()
    os.close(read)
    try:
        result = subprocess.run(
            [*KAFKALITE, command, *arguments], stdout=write, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=DEADLINE_S
        )
    finally:
        os.close(write)
    assert result.stderr == b""
    assert result.returncode == 1


def test_ctrl_c_ends_consume_without_a_word(broker: Running) -> None:
    assert call("topics", "create", "quiet", "-b", broker.bootstrap).returncode == 0
    call("produce", "-t", "quiet", "-b", broker.bootstrap, stdin=b"seen\n")
    command = [*KAFKALITE, "consume", "-t", "quiet", "-o", "beginning", "-b", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == b"seen\n"
        consumer.send_signal(signal.SIGINT)
        assert consumer.wait(DEADLINE_S) == 130
        assert consumer.stderr.read() == LEVEL


def test_ctrl_c_leaves_the_group_with_everything_printed_committed(broker: Running) -> None:
    call("produce", "-t", "t", "--create", "-b", broker.bootstrap, stdin=b"line\n" * 1000)
    command = [*KAFKALITE, "consume", "-t", "t", "-g", "readers", "--from-beginning", "-b", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as consumer:
        assert consumer.stdout.read(5 * 1000) == b"line\n" * 1000

        def committed() -> list[int]:
            described = json.loads(call("groups", "describe", "readers", "-b", broker.bootstrap, "--json").stdout)
            return [row["committed"] for row in described[0]["partitions"] if row["committed"]]

        wait_until(lambda: committed() == [1000], DEADLINE_S, "the commit")
        consumer.send_signal(signal.SIGINT)
        assert consumer.wait(DEADLINE_S) == 130
        assert consumer.stderr.read() == LEVEL
    (group,) = json.loads(call("groups", "describe", "readers", "-b", broker.bootstrap, "--json").stdout)
    assert (group["state"], group["members"]) == ("Empty", [])


def test_a_transaction_interrupted_is_a_transaction_aborted(broker: Running) -> None:
    """Nothing of it is seen, and the next one is not held up."""
    call("topics", "create", "t", "-b", broker.bootstrap)
    command = [*KAFKALITE, "produce", "-t", "t", "--transactional-id", "id", "-b", broker.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as producer:
        producer.stdin.write(b"lost\n")
        producer.stdin.flush()
        ends = ["consume", "-t", "t", "-o", "beginning", "-e", "-b", broker.bootstrap]
        wait_until(lambda: call(*ends).stdout == b"lost\n", DEADLINE_S, "the record in the log")
        producer.send_signal(signal.SIGINT)
        assert producer.wait(DEADLINE_S) == 130
    assert call(*command[len(KAFKALITE) :], stdin=b"kept\n").returncode == 0
    assert call(*ends, "--isolation", "read_committed").stdout == b"kept\n"


def test_stdin_and_stdout_closed_is_no_traceback(broker: Running) -> None:
    for command in ("produce -t x --create", "consume -t x -o beginning -e", "topics list"):
        line = f"{' '.join(KAFKALITE)} {command} -b {broker.bootstrap} <&- >&-"
        result = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=DEADLINE_S)
        assert b"Traceback" not in result.stderr, command


@pytest.mark.slow
def test_with_stdout_closed_records_go_nowhere_and_not_into_a_socket(broker: Running) -> None:
    call("produce", "-t", "x", "--create", "-b", broker.bootstrap, stdin=b"one\ntwo\n")
    line = f"{' '.join(KAFKALITE)} consume -t x -o beginning -e -b {broker.bootstrap} <&- >&-"
    result = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=DEADLINE_S)
    assert (result.returncode, result.stderr) == (0, LEVEL)
    assert "kafkalite.broker.net" not in broker.err.read_text()  # which logs malformed requests


# --- log dump ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(broker: Running) -> Path:
    """The directory of a partition with several segments, its broker stopped."""
    call("topics", "create", "kept", "-b", broker.bootstrap, "--set", "segment.bytes=100000")
    lines = b"".join(b"k%d:value %d\n" % (i, i) for i in range(20_000))
    call("produce", "-t", "kept", "-b", broker.bootstrap, "-K", ":", "--batch-size", "5000", stdin=lines)
    assert broker.stop() == 0
    return broker.data / "kept-0"


def test_log_dump_of_a_sound_partition(stopped: Path) -> None:
    result = call("log", "dump", str(stopped), "--summary", "--json")
    assert (result.returncode, result.stderr) == (0, b"")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) > 3
    assert sum(row["records"] for row in rows) == 20_000
    assert [row["first_offset"] for row in rows[1:]] == [row["last_offset"] + 1 for row in rows[:-1]]
    records = call("log", "dump", str(stopped), "--records", "-f", "%o %k=%s\\n")
    assert records.stdout == b"".join(b"%d k%d=value %d\n" % (i, i, i) for i in range(20_000))
    batches = call("log", "dump", str(stopped)).stdout.decode()
    assert batches.count("offsets ") == sum(row["batches"] for row in rows)
    assert call("log", "dump", str(stopped.parent), "-s").stdout.count(b"\n") >= len(rows)


@pytest.mark.slow
def test_log_dump_as_json_records(stopped: Path) -> None:
    segment = min(stopped.glob("*.log"))
    first = json.loads(call("log", "dump", str(segment), "--records", "--json").stdout.splitlines()[0])
    assert (first["topic"], first["partition"], first["offset"], first["key"]) == ("kept", 0, 0, "k0")


@pytest.fixture
def with_transactions(tmp_path: Path) -> Path:
    """A closed partition directory with one committed and one aborted transaction."""
    harness = LogHarness(tmp_path)
    log = harness.open()
    log.ensure_producers()
    for producer_id in (1, 2):
        batch = make_batch(2, producer_id=producer_id, epoch=0, sequence=0, attributes=0x10)
        assert append_batch(log.core, batch, admitted=log.core.marker_count())[1] == 0
        log.append_marker(producer_id, 0, 5, commit=producer_id == 1)
    log.close()
    return harness.path


def test_log_dump_shows_markers_and_aborted_transactions(with_transactions: Path) -> None:
    result = call("log", "dump", str(with_transactions))
    assert (result.returncode, result.stderr) == (0, b"")
    lines = result.stdout.decode().splitlines()
    assert [mark for line in lines for mark in ("commit", "abort") if line.split("  ")[-2:-1] == [mark]] == [
        "commit",
        "abort",
    ]
    assert lines[-1].strip() == "aborted: producer 2, offsets 3-5, last stable offset 6"
    *batches, segment = map(json.loads, call("log", "dump", str(with_transactions), "--json").stdout.splitlines())
    assert [row["marker"] for row in batches] == [None, "commit", None, "abort"]
    expected = {"producer_id": 2, "first_offset": 3, "marker_offset": 5, "last_stable_offset": 6}
    assert segment["aborted"] == [expected]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (transaction_index.encode([(2, 3, 5, 6)])[:-1], b"truncated or damaged"),
        (transaction_index.encode([(1, 0, 2, 3)]), b"no abort marker has offset 2"),
    ],
    ids=["torn", "not aborted"],
)
def test_log_dump_holds_the_index_of_aborted_transactions_against_the_log(
    with_transactions: Path, data: bytes, problem: bytes
) -> None:
    (with_transactions / f"{0:020d}.txnindex").write_bytes(data)
    result = call("log", "dump", str(with_transactions), "--summary")
    assert result.returncode == 1
    assert problem in result.stderr


def test_log_dump_reports_faults(stopped: Path, tmp_path: Path) -> None:
    segment = min(stopped.glob("*.log"))
    raw = bytearray(segment.read_bytes())
    raw[200] ^= 1
    raw += b"garbage"
    other = tmp_path / "copied-3"
    other.mkdir()
    broken = other / segment.name
    broken.write_bytes(raw)
    index = segment.with_suffix(".klindex")
    if index.exists():
        shutil.copy(index, other)
    result = call("log", "dump", str(broken), "-s")
    assert result.returncode == 1
    text = result.stderr.decode()
    assert "wrong CRC in the batch with offset 0" in text
    assert f"at {len(raw) - 7}: 7 bytes are not a complete batch" in text
    assert "2 PROBLEMS" in result.stdout.decode()


CUT_WHILE_READ = """
import os, pathlib, sys
from kafkalite.cli.log import Segment, walk
segment = Segment(pathlib.Path(sys.argv[1]))
batches = walk(segment)
first = next(batches)
os.truncate(segment.path, first.info.size + int(sys.argv[2]))
rest = list(batches)
print(len(rest), segment.batch_count, segment.preallocated, "".join(segment.problems[-1:]), sep="|")
"""


@pytest.mark.slow
@pytest.mark.parametrize("beyond", [0, 70], ids=["behind a batch", "within one"])
def test_log_dump_of_a_segment_that_is_cut_meanwhile(stopped: Path, beyond: int) -> None:
    """Pages of the map that are gone would end it by SIGBUS. What ends behind a batch is whole."""
    segment = min(stopped.glob("*.log"))
    assert segment.stat().st_size > 16 * 4096
    arguments = [sys.executable, "-c", CUT_WHILE_READ, str(segment), str(beyond)]
    result = subprocess.run(arguments, capture_output=True, env=ENVIRONMENT, timeout=DEADLINE_S)
    assert (result.returncode, result.stderr) == (0, b"")
    *counts, problem = result.stdout.decode().rstrip("\n").split("|")
    assert counts == ["0", "1", "0"]
    assert problem.endswith("the file was truncated while it was read, or the disk returned an error" if beyond else "")
    assert bool(problem) is bool(beyond)


@pytest.mark.slow
def test_log_dump_holds_indexes_against_the_log(stopped: Path) -> None:
    segments = sorted(stopped.glob("*.log"))
    assert any(segment.with_suffix(".klindex").exists() for segment in segments)
    with_index = next(segment for segment in segments if segment.with_suffix(".klindex").exists())
    index = with_index.with_suffix(".klindex")
    index.write_bytes(index.read_bytes()[:-1])
    result = call("log", "dump", str(with_index), "-s")
    assert result.returncode == 1
    assert "klindex is truncated or damaged" in result.stderr.decode()


@pytest.mark.slow
def test_log_dump_of_a_preallocated_tail(stopped: Path, tmp_path: Path) -> None:
    segment = min(stopped.glob("*.log"))
    copy = tmp_path / segment.name
    copy.write_bytes(segment.read_bytes() + bytes(3_000_000))
    result = call("log", "dump", str(copy), "--summary", "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["preallocated"] == 3_000_000


@pytest.mark.slow
def test_consuming_a_topic_while_it_is_written(broker: Running) -> None:
    """The end of -e is the end at the start: a consumer beside a producer ends."""
    assert call("topics", "create", "live", "-b", broker.bootstrap).returncode == 0
    call("produce", "-t", "live", "-b", broker.bootstrap, stdin=b"x\n" * 1000)
    command = [*KAFKALITE, "produce", "-t", "live", "-b", broker.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=ENVIRONMENT) as producer:
        assert producer.stdin is not None
        began = time.monotonic()
        result = call("consume", "-t", "live", "-o", "beginning", "-e", "-b", broker.bootstrap)
        assert len(result.stdout) >= 2000
        assert time.monotonic() - began < DEADLINE_S
        producer.stdin.close()
        producer.wait(DEADLINE_S)
