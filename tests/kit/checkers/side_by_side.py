"""The same requests to Apache Kafka and to kafkalite, and the answers compared field by field.

A story is a list of steps: a label, the API, the versions to play it in, and what makes the request of one version for
one side. Both brokers see the same requests in the same order, so they are in the same state all along. What must
differ (ids, addresses, times, the words of texts for people) is left out of the comparison.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafkalite import Broker
from kafkalite.broker.handlers import table
from kafkalite.errors import ErrorCode
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api, header
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from tests.kit.processes.apache_kafka import NEWEST_VERSION, ApacheKafka, NotAvailable, jars

TIMEOUT_S = 10
UUID_SIZE = 16
LEFT_OUT = {
    *("throttle_time_ms", "cluster_id", "host", "port", "rack", "controller_id", "log_dir"),
    *("replica_directory_id", "last_fetch_timestamp", "last_caught_up_timestamp", "log_end_offset"),
    *("producer_id", "total_bytes", "usable_bytes", "partition_size", "documentation", "log_append_time_ms"),
    "listeners",  # of a quorum's voters: Kafka's controllers have a separate listener
    "leader_epoch",  # Kafka's rises when a topic's broker restarts, ours when a start was unclean
}

TEXTS = {"error_message", "batch_index_error_message"}
"""Texts for people: compared as null, empty, NONE or any other."""
NOT_HERE = {
    *("consumer.assignment.interval.ms", "share.assignment.interval.ms", "streams.assignment.interval.ms"),
    *("errors.deadletterqueue.copy.record.enable", "errors.deadletterqueue.topic.name"),
    *("share.delivery.count.limit", "share.partition.max.record.locks", "share.renew.acknowledge.enable"),
    *("streams.assignor.name", "streams.initial.rebalance.delay.ms", "streams.rack.aware.assignment.tags"),
}
"""Settings of groups that Kafka has since 4.2, of share and streams groups and of how it assigns."""
UNORDERED = {
    *("replica_election_results", "partition_result", "credential_infos"),
    *("topics", "partitions", "responses", "results", "groups", "members", "topic_partitions"),
    *("results_by_topic_v3_and_below", "configs"),
}
"""Lists whose order says nothing."""


@dataclass
class Side:
    """One of the two brokers, and what the story has to remember of it."""

    port: int
    ids: dict[str, bytes] = field(default_factory=dict)
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)  # id and epoch by transactional id

    def ask(self, key: int, version: int, request: object) -> Any:
        """The response, or "closed" or "silent" when the broker closes the connection or says nothing."""
        for _ in range(100):
            try:
                answer = self._ask(key, version, request)
            except TimeoutError:
                return "silent"
            if getattr(answer, "error_code", None) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            time.sleep(0.1)  # Kafka fetches its first block of producer ids
        return answer

    def _ask(self, key: int, version: int, request: object) -> Any:
        with self._connect() as connection:
            connection.sendall(protocol.encode_request_frame(key, version, 1, "story", request))
            size = self._receive(connection, 4)
            if not size:
                return "closed"
            answer = self._receive(connection, int.from_bytes(size, "big"))
        _, position = header.decode_response_header(key, version, answer)
        return protocol.decode_response(key, version, answer[position:])

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)

    @staticmethod
    def _receive(connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = connection.recv(size - len(data))
            if not more:
                return b""
            data += more
        return data


Make = Callable[[int, Side], Any]
Step = tuple[str, int, range, Make]


def versions(key: int, oldest: int = 0, newest: int = 99) -> range:
    row = table.find(key)
    assert row is not None
    return range(max(row.oldest, oldest), min(row.newest, newest) + 1)


def comparable(message: Any, ids: dict[str, bytes]) -> Any:
    """A response without what must differ; topic ids as names, settings only those both brokers have."""
    if isinstance(message, list):
        return [comparable(item, ids) for item in message]
    if isinstance(message, bytes) and len(message) != UUID_SIZE:
        return message.hex()
    if isinstance(message, bytes):
        return {value: name for name, value in ids.items()}.get(message, "some id" if message.strip(b"\0") else "none")
    if not hasattr(message, "FIELDS"):
        return message
    fields = {row[0]: comparable(getattr(message, row[0]), ids) for row in message.FIELDS if row[0] not in LEFT_OUT}
    for name in TEXTS & fields.keys():
        fields[name] = fields[name] if fields[name] in (None, "", "NONE") else "some text"
    if "current_voters" in fields:
        fields.pop("high_watermark")  # of metadata, which the two keep in their own ways
    if "num_partitions" in fields:
        fields["configs"] = None  # the two brokers have different settings
    if fields.get("error_code"):  # on errors Kafka fills in the log start in some cases and not in others
        fields.pop("log_start_offset", None)
        if not fields.get("aborted_transactions"):
            fields.pop("aborted_transactions", None)
    if isinstance(fields.get("configs"), list):
        fields["configs"] = [each for each in fields["configs"] if each.get("name") not in NOT_HERE]
    for name in UNORDERED:
        if isinstance(fields.get(name), list):
            fields[name].sort(key=repr)
    return fields


AT_4_1 = ("--release-version", "4.1")
"""Options that format a directory with the features that this broker has from the start."""


@contextmanager
def two_brokers(
    directory: Path, *, version: str = NEWEST_VERSION, format_options: Sequence[str] = AT_4_1, **settings: str
) -> Iterator[tuple[Side, Side]]:
    """Apache Kafka and kafkalite with the same settings; skips the test where Kafka cannot run."""
    texts = {name.replace("_", "."): value for name, value in settings.items()}
    try:
        jars(version)
    except NotAvailable as missing:
        pytest.skip(f"ANSWERS NOT COMPARED WITH APACHE KAFKA: {missing}")
    with (
        ApacheKafka(directory, texts, version=version, format_options=format_options) as kafka,
        Broker(texts) as broker,
    ):
        yield Side(kafka.port), Side(broker.port)


def differences(sides: tuple[Side, Side], story: Iterable[Step], on_purpose: Mapping[str, str]) -> list[str]:
    """Plays the story; one text per answer that differs and is not listed as differing on purpose."""
    found = []
    served = {row.api_key: row.max_version for row in sides[0].ask(api.API_VERSIONS, 0, ApiVersionsRequest()).api_keys}
    for label, key, wanted, make in story:
        for version in wanted:
            if version > served[key]:
                continue
            kafka, ours = (comparable(side.ask(key, version, make(version, side)), side.ids) for side in sides)
            if kafka != ours and label not in on_purpose:
                found.append(f"{label} v{version}\n  Kafka {kafka}\n  ours  {ours}")
    return found
