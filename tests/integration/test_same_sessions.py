"""Fetch sessions on Apache Kafka 4.1 and on kafkalite: the same requests get the same responses, in every version.

Each version has its own topics and plays one story; the responses of both brokers are recorded and compared. Session
ids, topic ids and leader epochs differ by nature. Slow: Kafka takes seconds to start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.checkers.side_by_side import Side, comparable, two_brokers
from tests.kit.harness import wire

pytestmark = [pytest.mark.integration, pytest.mark.slow]

VERSIONS = range(7, 18)
IDS_FROM = 13
NOW = 1_700_000_000_000
INT32_MAX = 2**31 - 1
BATCH = wire.batch_of([wire.Record(value=b"v" * 50)], base_timestamp=NOW)
PARTITIONS = 3
UNKNOWN_ID = bytes(range(16))
SETTLE_S = 20
CODES_FOR = {
    "deleted": {False: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    "made anew": {False: 0, True: ErrorCode.INCONSISTENT_TOPIC_ID},
}
"""The first partition's final error code, by name and by id; Kafka takes a moment to return it."""

Part = tuple[str, int, int]
"""Topic, partition, offset."""


class Story:
    """One client of one broker in one version; `told` is what it was answered."""

    def __init__(self, side: Side, version: int) -> None:
        self.side, self.version = side, version
        self.topic = f"session-{version}"
        self.session, self.epoch = 0, 0
        self.told: list[tuple[str, Any]] = []

    # ---- the world ---------------------------------------------------------------------------------------------------
    def create(self) -> None:
        topic = CreatableTopic(name=self.topic, num_partitions=PARTITIONS, replication_factor=1)
        answer = self.side.ask(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert answer.topics[0].error_code == 0
        self.side.ids[self.topic] = answer.topics[0].topic_id

    def produce(self, *partitions: int) -> None:
        deadline = time.monotonic() + SETTLE_S
        left = list(partitions)
        while left:
            assert time.monotonic() < deadline, f"{self.topic} takes no records"
            data = [PartitionProduceData(index=index, records=BATCH) for index in left]
            topics = [TopicProduceData(name=self.topic, partition_data=data)]
            request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
            parts = self.side.ask(api.PRODUCE, 9, request).responses[0].partition_responses
            left = [part.index for part in parts if part.error_code]
            if left:
                time.sleep(0.05)  # Kafka answers CreateTopics before its partitions lead

    # ---- the client --------------------------------------------------------------------------------------------------
    def name(self, topic: str) -> dict[str, Any]:
        if self.version < IDS_FROM:
            return {"topic": topic}
        return {"topic_id": self.side.ids.get(topic, UNKNOWN_ID)}

    def ask(
        self,
        *wanted: Part,
        forget: tuple[tuple[str, int], ...] = (),
        session: tuple[int, int] | None = None,
        version: int | None = None,
        size_max: int = 1 << 25,
    ) -> Any:
        topics = [
            FetchTopic(
                **self.name(topic),
                partitions=[FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
            for topic, index, offset in wanted
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=size_max,
            topics=topics,
            session_id=(session or (self.session, self.epoch))[0],
            session_epoch=(session or (self.session, self.epoch))[1],
            forgotten_topics_data=[ForgottenTopic(**self.name(topic), partitions=[index]) for topic, index in forget],
        )
        return self.side.ask(api.FETCH, self.version if version is None else version, request)

    def tell(self, label: str, answer: Any) -> None:
        fields = comparable(answer, self.side.ids)
        if isinstance(fields, dict):
            fields["session_id"] = {0: "none", self.session: "ours"}.get(fields["session_id"], "another")
            # A topic may come in several pieces, whose order and number are the broker's own.
            fields["responses"] = sorted(
                (
                    {**part, "of": topic.get("topic") or topic.get("topic_id")}
                    for topic in fields["responses"]
                    for part in topic["partitions"]
                ),
                key=repr,
            )
        self.told.append((label, fields))

    def step(self, label: str, *wanted: Part, **how: Any) -> Any:
        """The next fetch of the session."""
        answer = self.ask(*wanted, **how)
        self.tell(label, answer)
        self.epoch += 1
        return answer

    def open(self, label: str, *wanted: Part) -> None:
        answer = self.ask(*wanted, session=(self.session, 0))
        self.tell(label, answer)
        self.session, self.epoch = answer.session_id, 1

    def refused(self, label: str, session: tuple[int, int], version: int | None = None) -> None:
        self.tell(label, self.ask((self.topic, 0, 0), session=session, version=version))

    # ---- the story ---------------------------------------------------------------------------------------------------
    def play(self) -> list[tuple[str, Any]]:
        topic = self.topic
        self.create()
        self.produce(*range(PARTITIONS))
        self.tell("without session", self.ask((topic, 0, 0), (topic, 9, 0), session=(0, -1)))
        self.open("open", *[(topic, index, 0) for index in range(PARTITIONS)])
        self.news()
        self.errors()
        self.turns()
        self.ends()
        self.incarnations()
        return self.told

    def news(self) -> None:
        topic = self.topic
        self.step("all again, nobody has moved")
        self.step("all read", *[(topic, index, 1) for index in range(PARTITIONS)])
        self.produce(1)
        self.step("one has records")
        self.step("and has them still")
        self.step("forgotten and moved", (topic, 1, 2), forget=((topic, 2),))
        self.produce(2)
        self.step("records where nobody looks")
        self.step("added again", (topic, 2, 2))
        self.step("added and forgotten", (topic, 2, 2), forget=((topic, 2),))
        self.step("forgotten that never was", forget=((topic, 8), ("nobody", 0)))
        part = DeleteRecordsPartition(partition_index=1, offset=1)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=10_000)
        self.side.ask(api.DELETE_RECORDS, 2, request)
        self.step("log start moved")
        self.step("and moved no more")

    def errors(self) -> None:
        topic = self.topic
        self.step("bad ones", (topic, 9, 0), ("nobody", 0, 0), (topic, 0, 77))
        self.step("bad ones still")
        self.step("mended", (topic, 0, 1), forget=((topic, 9), ("nobody", 0)))
        self.step("quiet")
        self.refused("epoch before", (self.session, self.epoch - 1))
        self.refused("epoch behind", (self.session, self.epoch + 1))
        self.refused("epoch far away", (self.session, INT32_MAX))
        self.refused("epoch below zero", (self.session, -2))
        self.refused("no session but an epoch", (0, self.epoch))
        self.refused("session that is not", (self.session ^ 1, self.epoch))
        self.refused("across ids", (self.session, self.epoch), version=12 if self.version >= IDS_FROM else 13)
        self.step("unmoved by all that")

    def turns(self) -> None:
        topic = self.topic
        self.produce(*range(PARTITIONS))
        self.produce(*range(PARTITIONS))
        self.step("all three", (topic, 2, 1))
        for number in range(4):
            answer = self.step(f"turn {number}", size_max=1)
            served = [part.partition_index for row in answer.responses for part in row.partitions if part.records]
            self.told.append((f"served in turn {number}", served))

    def ends(self) -> None:
        topic, old = self.topic, self.session
        self.open("another in its place", (topic, 0, 0), (topic, 1, 1))
        self.refused("the old one", (old, 1))
        self.step("everything forgotten", forget=((topic, 0), (topic, 1)))
        self.refused("nothing left", (self.session, self.epoch))
        self.open("one more", (topic, 0, 0))
        self.tell("closed", self.ask((topic, 0, 0), session=(self.session, -1)))
        self.refused("after the close", (self.session, 1))
        self.session = 0

    def incarnations(self) -> None:
        topic = self.topic
        self.open("before the end", *[(topic, index, 1) for index in range(2)])
        old = self.side.ids[topic]
        self.side.ask(
            api.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30_000)
        )
        self.in_the_end("deleted")
        self.create()
        self.side.ids["old"] = old
        self.produce(*range(PARTITIONS))
        self.in_the_end("made anew")
        self.side.ids.pop("old")

    def in_the_end(self, label: str) -> None:
        """Poll until the first partition has the expected answer, and record that answer alone."""
        expected, deadline = CODES_FOR[label][self.version >= IDS_FROM], time.monotonic() + SETTLE_S
        while True:
            answer = self.ask()
            self.epoch += 1
            codes = {part.partition_index: part.error_code for row in answer.responses for part in row.partitions}
            if set(codes.values()) <= {expected} and len(codes) == 2:
                break
            if expected == 0 and not codes:
                break  # told in the round before
            assert time.monotonic() < deadline, (label, self.version, codes)
            time.sleep(0.05)
        self.told.append((label, codes if expected else "served"))


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with two_brokers(tmp_path_factory.mktemp("kafka")) as both:
        yield both


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_kafkas(sides: tuple[Side, Side], version: int) -> None:
    kafka, ours = (Story(side, version).play() for side in sides)
    found = [
        f"{label}\n  Kafka {theirs}\n  ours  {mine}"
        for (label, theirs), (_, mine) in zip(kafka, ours, strict=True)
        if theirs != mine
    ]
    assert not found, "\n".join(found)
