"""Members of a group in a separate process.

    python -m tests.kit.processes.group_members BOOTSTRAP GROUP TOPIC SESSION_MS

Reads "join NAME" and "leave NAME" from its standard input, ends with it, and writes one JSON line for each assignment
(with its generation, taken from the consumer) and for each stretch of offsets that a member was given, before the
member commits it. A thread a member. One whose name begins with "newer" speaks the newer group protocol (KIP-848).
"""

from __future__ import annotations

import json
import sys
import threading

from confluent_kafka import Consumer, KafkaException

from tests.kit.harness.load import quiet

_printing = threading.Lock()


def report(**event: object) -> None:
    with _printing:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


class Member(threading.Thread):
    """One member: reports what it is given, then commits it."""

    def __init__(self, bootstrap: str, group: str, topic: str, session_ms: int, name: str) -> None:
        super().__init__(daemon=True)
        self.leaving = threading.Event()
        self.label = name
        self.topic = topic
        classic = {
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": "range",
        }
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 200,
                **({"group.protocol": "consumer"} if name.startswith("newer") else classic),
            },
            logger=quiet,
        )
        self.start()

    def run(self) -> None:
        self.consumer.subscribe([self.topic], on_assign=self._assigned)
        while not self.leaving.is_set():
            messages = [message for message in self.consumer.consume(500, 0.1) if message.error() is None]
            by_partition: dict[int, list[int]] = {}
            for message in messages:
                by_partition.setdefault(message.partition(), []).append(message.offset())
            for partition, offsets in by_partition.items():
                report(event="given", member=self.label, partition=partition, first=offsets[0], last=offsets[-1])
            if messages:
                try:
                    self.consumer.commit(asynchronous=False)
                except KafkaException as error:
                    report(event="refused", member=self.label, code=error.args[0].code())
        self.consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list) -> None:
        numbers = [part.partition for part in partitions]
        report(event="assigned", member=self.label, generation=generation_of(consumer), partitions=numbers)


def generation_of(consumer: Consumer) -> int:
    """From librdkafka's serialised group metadata: "CGMDv2:", generation i32 little-endian, …"""
    data = bytes(consumer.consumer_group_metadata())
    at = data.index(b"CGMDv2:") + len(b"CGMDv2:")
    return int.from_bytes(data[at : at + 4], "little", signed=True)


def main() -> None:
    bootstrap, group, topic, session_ms = sys.argv[1:]
    members: dict[str, Member] = {}
    for line in sys.stdin:
        what, name = line.split()
        if what == "join":
            members[name] = Member(bootstrap, group, topic, int(session_ms), name)
        else:
            members.pop(name).leaving.set()
    for member in members.values():
        member.leaving.set()
    for member in members.values():
        member.join(20)


if __name__ == "__main__":
    main()
