"""A topic of Kafka 0.7's messages for clients of today: both magics, gzip and snappy wrappers, 60 messages.

`plant` writes it through 0.7's port. A client passes when it stops, commits and resumes at each of OFFSETS and has seen
PAYLOADS, each once. The bytes are the oracle's, snappy wrappers apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkalite.broker import Broker
from kafkalite.wire.record.message_set import wrap
from tests.kit.harness.classic_client import ClassicClient
from tests.kit.oracles import classic_oracle as oracle
from tests.kit.oracles.classic_oracle import OracleMessage, encode_set

GZIP, SNAPPY = 1, 2


def _plan() -> Iterator[tuple[bytes, list[bytes]]]:
    """(outer entry, the payloads in it) one after the other."""
    number = 0
    for codec, count in ((0, 1), (GZIP, 7), (0, 2), (SNAPPY, 6), (GZIP, 1), (SNAPPY, 1), (GZIP, 9), (0, 3)) * 2:
        payloads = [b"%02d " % (number + i) * (1 + i % 5) for i in range(count)]
        number += count
        if codec == 0:
            for i, payload in enumerate(payloads):
                yield OracleMessage(payload, magic=i % 2).encode(), [payload]
        elif codec == GZIP:
            yield oracle.gzip_wrapper([OracleMessage(payload) for payload in payloads]).encode(), payloads
        else:
            yield wrap(encode_set([OracleMessage(payload) for payload in payloads]), SNAPPY), payloads


ENTRIES = list(_plan())
PAYLOADS = [payload for _, payloads in ENTRIES for payload in payloads]
OFFSETS = [
    sum(len(entry) for entry, _ in ENTRIES[:number]) + i
    for number, (_, payloads) in enumerate(ENTRIES)
    for i in range(len(payloads))
]
"""Where each payload's record is: its message's position, and its place in the wrapper added."""
END = sum(len(entry) for entry, _ in ENTRIES)


@contextmanager
def classic_broker() -> Iterator[Broker]:
    """A broker with 0.7's port, whose messages are visible at once."""
    listeners = "kafka://127.0.0.1:0,kafka07://127.0.0.1:0"
    broker = Broker({"listeners": listeners, "log.flush.interval": 1}).start()
    try:
        yield broker
    finally:
        broker.stop()


def plant(broker: Broker, topic: str) -> None:
    """Writes the messages, in several requests, to partition 0 of a new topic."""
    assert broker.classic_endpoint is not None
    with ClassicClient(broker.classic_endpoint.port) as client:
        for first in range(0, len(ENTRIES), 5):
            client.send(oracle.produce(topic, 0, b"".join(entry for entry, _ in ENTRIES[first : first + 5])))
        client.wait_for(topic, 0, END)
