"""Quotas set on a broker through its API, and single requests of clients who are held to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.harness import wire
from tests.kit.harness.typed import TypedConnection

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTER = "setter"
"""The client id of the client that sets quotas here, so that a test can leave it out."""


def set_quotas(port: int, entity: Mapping[str, str | None], **values: float | None) -> None:
    """Sets keys of one entity; None takes one away."""
    entry = AlterClientQuotasRequestEntryData(
        entity=[
            AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    with Client(port, SETTER) as client:
        answer = client.ask(api.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries=[entry]))
    assert [one.error_code for one in answer.entries] == [0], answer


class Client(TypedConnection):
    """One connection of a client with this id."""

    def __init__(self, port: int, client_id: str | None = "typed") -> None:
        super().__init__(port)
        self.client_id = client_id

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def send_put(self, size: int, *, version: int = 12, acks: int = 1, topic: str = "t") -> tuple[int, int]:
        """Send one record with a value of `size` bytes."""
        batch = wire.batch_of([wire.Record(b"k", bytes(size))])
        named = {"topic_id": self.topic_id(topic)} if version >= 13 else {"name": topic}
        data = TopicProduceData(**named, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])
        return self.send_message(api.PRODUCE, version, request)

    def put(self, size: int, **options: Any) -> Any:
        answer = self.receive_message(*self.send_put(size, **options))
        assert answer.responses[0].partition_responses[0].error_code == 0
        return answer

    def send_get(
        self, *, version: int = 12, topic: str = "t", offset: int = 0, wait_ms: int = 0, times: int = 1, **fields: int
    ) -> tuple[int, int]:
        named = {"topic_id": self.topic_id(topic)} if version >= 13 else {"topic": topic}
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        wanted = FetchTopic(**named, partitions=[partition] * times)
        defaults = {"min_bytes": 1, "max_bytes": 50 << 20, "session_id": 0, "session_epoch": -1}
        request = FetchRequest(max_wait_ms=wait_ms, topics=[wanted], **(defaults | fields))
        return self.send_message(api.FETCH, version, request)

    def get(self, **options: Any) -> Any:
        return self.receive_message(*self.send_get(**options))

    def hears_nothing(self) -> bool:
        """Whether no answer has come so far; False: there is one, or the broker has closed."""
        self.socket.setblocking(False)
        try:
            self.socket.recv(1)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(30.0)
        return False


def records_in(answer: Any) -> int:
    """Bytes of records in a Fetch answer."""
    return sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions)
