"""Kafka 0.7's port under kill -9 and hostile frames: what was seen stays, nothing comes twice, others are served on.

0.7 acknowledges nothing, so a message that was never visible may be lost; one that a fetch returned may not.
"""

import contextlib
import random
import socket
import struct
from pathlib import Path

import pytest

from tests.kit.harness.classic_client import ClassicClient
from tests.kit.harness.hostile_frames import HOSTILE_INTS
from tests.kit.oracles import classic_oracle as oracle
from tests.kit.oracles.classic_oracle import HELLO_1, OracleMessage, read_deep
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until

TIMEOUT_S = 60.0


def make_broker(directory: Path) -> tuple[BrokerProcess, int]:
    port, classic_port = free_port(), free_port()
    listeners = f"kafka://127.0.0.1:{port},kafka07://127.0.0.1:{classic_port}"
    settings = {"listeners": listeners, "log.flush.interval": "20", "log.segment.bytes": "20000"}
    return BrokerProcess(directory, settings, port=port), classic_port


@pytest.mark.parametrize("kill_count", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.scenario("0.7")
def test_what_a_consumer_saw_survives_kill_9_in_its_place(tmp_path: Path, kill_count: int) -> None:
    chance = random.Random(7)
    broker, port = make_broker(tmp_path)
    broker.start()
    number = 0
    seen = b""
    try:
        for _ in range(kill_count):
            with contextlib.suppress(ConnectionError, EOFError), ClassicClient(port) as client:
                for _ in range(chance.randrange(40, 400)):
                    number += 1
                    message = OracleMessage(b"%08d" % number * chance.randrange(1, 20))
                    data = message.encode() if number % 5 else oracle.gzip_wrapper([message]).encode()
                    client.send(oracle.produce("t", 0, data))
                    if number % 50 == 0:
                        seen += client.read_all("t", 0, len(seen))
            broker.kill()
            broker.start()
            with ClassicClient(port) as client:
                now = client.read_all("t")
            assert now.startswith(seen), "bytes that a consumer was given have changed or gone"
            numbers = [int(payload[:8]) for payload, _ in read_deep(now)]
            assert numbers == sorted(set(numbers)), "a message twice, or out of order"
            seen = now
        assert len(seen) > 1000
    finally:
        broker.close()


def hostile_frame(chance: random.Random) -> bytes:
    """A valid frame with some of its integers replaced, cut or stretched; the outer length stays truthful mostly."""
    good = chance.choice(
        [
            oracle.produce("t", 0, HELLO_1),
            oracle.multiproduce([("t", 0, HELLO_1), (f"new-{chance.randrange(5)}", -1, HELLO_1)]),
            oracle.fetch("t", 0, 0, 1000),
            oracle.multifetch([("t", 0, 0, 1000), ("t", 1, 5, 10)]),
            oracle.offsets("t", 0, -1, 5),
        ]
    )
    body = bytearray(good[4:])
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(body))
        match chance.randrange(4):
            case 0:
                body[at] = chance.randrange(256)
            case 1 if at + 4 <= len(body):
                struct.pack_into(">i", body, at, chance.choice(HOSTILE_INTS))
            case 2:
                del body[at:]
            case _:
                body[at:at] = chance.randbytes(chance.randrange(1, 9))
        if not body:
            break
    size = len(body) if chance.random() < 0.9 else chance.choice(HOSTILE_INTS)
    return struct.pack(">i", size) + bytes(body)


@pytest.mark.parametrize("count", [1500, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.scenario("0.7")
def test_hostile_frames_leave_the_broker_and_a_canary_alone(tmp_path: Path, count: int) -> None:
    chance = random.Random(11)
    broker, port = make_broker(tmp_path)
    broker.start()
    try:
        with ClassicClient(port) as canary:
            canary.send(oracle.produce("canary", 0, HELLO_1 * 20))
            canary.wait_for("canary", 0, 300)
            before = broker.usage()
            for i in range(count):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as client:
                    client.sendall(hostile_frame(chance))
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(65536):
                        pass
                if i % 100 == 0:
                    assert canary.fetch("canary", 0, 0) == (0, HELLO_1 * 20)
            assert broker.alive
            wait_until(
                lambda: broker.usage().descriptor_count <= before.descriptor_count + 40, TIMEOUT_S, "descriptors closed"
            )
            assert broker.usage().rss_bytes < before.rss_bytes + 200 * 1024 * 1024
        broker.stop()
        assert "Traceback" not in broker.log(), broker.log()[-4000:]
    finally:
        broker.close()
