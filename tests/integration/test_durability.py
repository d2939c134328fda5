"""acks=all means on the disk: the broker's system calls are traced while it answers.

strace shows, in order, the pwrite64 of a batch, the fdatasync of its file and the send of the answer.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kit.checkers.side_by_side import Side
from tests.kit.harness import wire
from tests.kit.harness.load import create_topic
from tests.kit.processes.broker import BrokerProcess, wait_until

SYSTEM_CALLS = "pwrite64,pwritev,write,fdatasync,fsync,sync_file_range,sendto,sendmsg,openat,rename,renameat2,close"
LINE = re.compile(r"^(?P<pid>\d+) +(?P<time>\d+\.\d+) (?P<call>\w+)\((?P<arguments>.*)$")
MARKER = b"durable-record-"


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[tuple[BrokerProcess, Path]]:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (apt-get install strace)")
    trace = tmp_path / "trace"
    options = ("strace", "-f", "-qq", "-ttt", "-y", "-s", "512", "-e", f"trace={SYSTEM_CALLS}", "-o", str(trace))
    if subprocess.run([*options, "true"], capture_output=True).returncode:
        pytest.skip("this place does not allow tracing")
    broker = BrokerProcess(tmp_path / "broker", {"auto.create.topics.enable": "false"}, prefix=options)
    broker.start()
    yield broker, trace
    for child in psutil.Process(broker.pid).children():  # strace's child is the broker
        child.kill()
    broker.close()


def calls_after(broker: BrokerProcess, trace: Path, position: int) -> list[re.Match[str]]:
    """Return the trace's lines from `position` to the response of a marker request: strace writes them in order."""
    name = f"end-of-trace-{position}"
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    Side(broker.port).ask(api.METADATA, 4, asked)
    wait_until(lambda: name.encode() in trace.read_bytes()[position:], 60, "the trace of the answer")
    text = trace.read_bytes()[position:].decode(errors="replace")
    return [match for line in text.splitlines() if (match := LINE.match(line))]


def index_of(calls: list[re.Match[str]], call: str, text: str, start: int = 0) -> int:
    """First call of that name (a regular expression) with that text among its arguments."""
    for number in range(start, len(calls)):
        if re.fullmatch(call, calls[number]["call"]) and text in calls[number]["arguments"]:
            return number
    listing = "\n".join(match.group(0)[:200] for match in calls)
    raise AssertionError(f"no {call} with {text!r} from line {start} of:\n{listing}")


@pytest.mark.integration
def test_acks_all_is_answered_after_fdatasync(traced: tuple[BrokerProcess, Path]) -> None:
    broker, trace = traced
    create_topic(broker.port, "durable", 1)
    with wire.Connection(broker.port) as connection:
        for number in range(5):
            position = trace.stat().st_size
            marker = MARKER + b"%d" % number
            answer = connection.produce("durable", 0, wire.batch_of([wire.Record(None, marker)]), acks=-1)
            assert answer.error == 0
            calls = calls_after(broker, trace, position)
            written = index_of(calls, "pwrite64|pwritev", marker.decode())
            synced = index_of(calls, "fdatasync|fsync", "durable-0", written)
            index_of(calls, "sendto|sendmsg", "durable", synced)


@pytest.mark.integration
def test_acks_one_waits_for_no_disk(traced: tuple[BrokerProcess, Path]) -> None:
    """The control: without acks=all there is no fdatasync, so the test above saw the cause."""
    broker, trace = traced
    create_topic(broker.port, "lazy", 1)
    with wire.Connection(broker.port) as connection:
        first = wire.batch_of([wire.Record(None, b"makes the files, which are synced")])
        assert connection.produce("lazy", 0, first, acks=1).error == 0
        position = trace.stat().st_size
        assert connection.produce("lazy", 0, wire.batch_of([wire.Record(None, MARKER)]), acks=1).error == 0
        calls = calls_after(broker, trace, position)
        assert not [call for call in calls if call["call"] == "fdatasync" and "lazy-0" in call["arguments"]]


@pytest.mark.integration
def test_concurrent_producers_share_a_flush(traced: tuple[BrokerProcess, Path]) -> None:
    """16 producers on one partition: fewer fdatasync calls than acknowledged batches, how many is up to the disk."""
    broker, trace = traced
    create_topic(broker.port, "shared", 1)
    position = trace.stat().st_size
    batch = wire.batch_of([wire.Record(None, b"shared flush")])
    body = wire.produce_body("shared", [(0, batch)], version=7, acks=-1)
    with contextlib.ExitStack() as stack:
        producers = [stack.enter_context(wire.Connection(broker.port)) for _ in range(16)]
        for _ in range(25):
            # All are sent before any is waited for: who comes while the first is flushed shares the next flush.
            numbers = [producer.send(wire.PRODUCE, 7, body) for producer in producers]
            for producer, number in zip(producers, numbers, strict=True):
                answered, answer = producer.receive()
                assert (answered, wire.parse_produce(answer, 7)[0].error) == (number, 0)
    calls = calls_after(broker, trace, position)
    flushes = [call for call in calls if call["call"] in ("fdatasync", "fsync") and "shared-0" in call["arguments"]]
    print(f"400 acknowledged batches, {len(flushes)} flushes")
    assert 1 <= len(flushes) < 400


@pytest.mark.integration
def test_new_topic_is_durable_before_it_is_acknowledged(traced: tuple[BrokerProcess, Path]) -> None:
    """The journal's line is synced before CreateTopics is answered."""
    broker, trace = traced
    position = trace.stat().st_size
    create_topic(broker.port, "fresh-topic", 1)
    calls = calls_after(broker, trace, position)
    written = index_of(calls, "write|pwrite64", "fresh-topic")
    synced = index_of(calls, "fdatasync|fsync", "journal", written)
    index_of(calls, "sendto|sendmsg", "fresh-topic", synced)
