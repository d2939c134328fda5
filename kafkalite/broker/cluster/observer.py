"""Follow the controllers' metadata log as an observer (KRaft's word for a node without a vote).

    1  request(version) returns a Fetch request, or a FetchSnapshot request for a snapshot
    2  the caller sends the request to quorum.address
    3  fetched(response) or snapshot(response) applies the response, and may return a new image
    4  failed() is called instead if there is no response

Records are applied only when they are committed. Published records are never undone. Nothing is stored on disk.

Source: KIP-595, KIP-630 (snapshots), KafkaRaftClient of Kafka 4.1. Does no I/O. Belongs to one thread,
but any thread may read `committed_end`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.broker.cluster.quorum import Address
from kafkalite.broker.cluster.records import Batch, MetadataFault, read_batches
from kafkalite.broker.cluster.replay import Replay
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkalite.wire.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
    FetchSnapshotRequestTopicSnapshot,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkalite.broker.cluster.image import Image
    from kafkalite.broker.cluster.quorum import Quorum
    from kafkalite.wire.protocol.messages.fetch import FetchResponse
    from kafkalite.wire.protocol.messages.fetch_snapshot import FetchSnapshotResponse

TOPIC: Final = "__cluster_metadata"
TOPIC_ID: Final = bytes(15) + b"\x01"
FETCH_OLDEST: Final = 13
"""The first version that identifies topics by id."""
MAX_WAIT_MS: Final = 500
FETCH_BYTES_MAX: Final = 8 << 20
_REPLICA_STATE_SINCE: Final = 15
_HIGH_WATERMARK_SINCE: Final = 18
_LEADER_CODES: Final = frozenset(
    {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH}
)


@dataclass(slots=True)
class _Snapshot:
    """A snapshot that is being fetched."""

    end_offset: int
    epoch: int
    data: bytearray


class Observer:
    """Fetches and applies the metadata log. `cluster_id` and `directory_id` are this broker's."""

    def __init__(self, node_id: int, cluster_id: str, directory_id: bytes, quorum: Quorum) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self.quorum = quorum
        self._replay = Replay()
        self._held: deque[Batch] = deque()  # fetched, but not known to be committed
        self._high_watermark = -1
        self._snapshot: _Snapshot | None = None

    @property
    def image(self) -> Image:
        """The latest image."""
        return self._replay.image

    @property
    def committed_end(self) -> int:
        """The offset after the last record that is known to be committed, or -1."""
        return self._high_watermark

    @property
    def api_key(self) -> int:
        """The API of the next request: Fetch or FetchSnapshot."""
        return api.FETCH if self._snapshot is None else api.FETCH_SNAPSHOT

    @property
    def _end(self) -> tuple[int, int]:
        """The offset after the last fetched batch, and the batch's epoch."""
        if self._held:
            return self._held[-1].last_offset + 1, self._held[-1].epoch
        return self._replay.end_offset, self._replay.last_epoch

    def request(self, version: int) -> object:
        """Return the next request, in this version of the API `api_key`."""
        return self._fetch_request(version) if self._snapshot is None else self._snapshot_request(self._snapshot)

    def _fetch_request(self, version: int) -> FetchRequest:
        offset, epoch = self._end
        partition = FetchPartition(
            current_leader_epoch=self.quorum.epoch,
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            partition_max_bytes=FETCH_BYTES_MAX,
            replica_directory_id=self._directory_id,
        )
        if version >= _HIGH_WATERMARK_SINCE:
            partition.high_watermark = self._high_watermark
        request = FetchRequest(
            cluster_id=self._cluster_id,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=0,
            max_bytes=FETCH_BYTES_MAX,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
        )
        if version >= _REPLICA_STATE_SINCE:
            request.replica_state = ReplicaState(replica_id=self._node_id)
        else:
            request.replica_id = self._node_id
        return request

    def _snapshot_request(self, wanted: _Snapshot) -> FetchSnapshotRequest:
        partition = FetchSnapshotRequestPartitionSnapshot(
            current_leader_epoch=self.quorum.epoch,
            snapshot_id=FetchSnapshotRequestSnapshotId(end_offset=wanted.end_offset, epoch=wanted.epoch),
            position=len(wanted.data),
            replica_directory_id=self._directory_id,
        )
        return FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=self._node_id,
            max_bytes=FETCH_BYTES_MAX,
            topics=[FetchSnapshotRequestTopicSnapshot(name=TOPIC, partitions=[partition])],
        )

    def failed(self) -> float:
        """Note that the last request got no usable answer; return the seconds to wait before the next one."""
        self._snapshot = None
        return self.quorum.failed()

    def fetched(self, response: FetchResponse) -> tuple[Image | None, float]:
        """Handle a Fetch response. Raises MetadataFault.

        The leader also sends records that are not committed yet. They are kept until the high watermark has passed
        them, and dropped if the leader's log diverges from them.

        Return (the image to publish, or None; the seconds to wait before the next request).
        """
        self._check(response.error_code)
        part = _only_partition(response.responses) if not response.error_code else None
        if part is None:
            return None, self.failed()
        if part.error_code:
            return None, self._refused(part, response)
        self.quorum.answered()
        if part.snapshot_id.end_offset >= 0:
            self._snapshot = _Snapshot(part.snapshot_id.end_offset, part.snapshot_id.epoch, bytearray())
            return None, 0.0
        if part.diverging_epoch.end_offset >= 0:
            self._diverged()
            return None, 0.0
        self._hold(read_batches(part.records or b""))
        end = self._end[0]
        self._high_watermark = max(self._high_watermark, min(part.high_watermark, end))
        return self._replay.apply(self._committed()), 0.0

    def snapshot(self, response: FetchSnapshotResponse) -> tuple[Image | None, float]:
        """Handle a FetchSnapshot response. The result is that of `fetched`."""
        self._check(response.error_code)
        wanted = self._snapshot
        part = _only_partition(response.topics) if not response.error_code else None
        if part is None or wanted is None:
            return None, self.failed()
        if part.error_code:
            self._snapshot = None  # it may be another leader's or deleted: the next Fetch returns what to read instead
            return None, self._refused(part, response)
        if part.position != len(wanted.data) or (not part.unaligned_records and part.position < part.size):
            return None, self.failed()
        wanted.data += part.unaligned_records
        if len(wanted.data) < part.size:
            return None, 0.0
        self._snapshot = None
        self._held.clear()
        self._high_watermark = max(self._high_watermark, wanted.end_offset)
        return self._replay.load(wanted.data, wanted.end_offset, wanted.epoch), 0.0

    def _check(self, code: int) -> None:
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise MetadataFault(
                f"this broker belongs to cluster {self._cluster_id}, but the controllers belong to another one"
            )
        if code == ErrorCode.INVALID_REQUEST:
            raise MetadataFault("the controllers refused to send the metadata log to this broker")

    def _refused(self, part: Any, response: Any) -> float:
        """Handle a partition's error; return the seconds to wait before the next request."""
        if part.error_code in _LEADER_CODES:
            before = (self.quorum.epoch, self.quorum.leader_id)
            endpoints = {each.node_id: Address(each.host, each.port) for each in response.node_endpoints}
            self.quorum.told(part.current_leader.leader_id, part.current_leader.leader_epoch, endpoints, self.image)
            if (self.quorum.epoch, self.quorum.leader_id) != before and self.quorum.leader is not None:
                return 0.0
        return self.quorum.failed()

    def _diverged(self) -> None:
        if not self._held:
            raise MetadataFault("the controllers' metadata log diverges from records that were already committed")
        self._held.clear()

    def _hold(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            end, epoch = self._end
            if batch.last_offset < end:
                continue  # the leader returns whole batches
            if batch.base_offset > end or batch.epoch < epoch:
                raise MetadataFault(f"the metadata log continues at offset {batch.base_offset}; expected {end}")
            self._held.append(batch)

    def _committed(self) -> Iterator[Batch]:
        while self._held and self._held[0].last_offset < self._high_watermark:
            yield self._held.popleft()


def _only_partition(topics: Sequence[Any]) -> Any:
    """Return the only partition in a response; None if it has none or several."""
    found = [part for topic in topics for part in topic.partitions]
    return found[0] if len(found) == 1 else None
