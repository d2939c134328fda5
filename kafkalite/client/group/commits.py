"""Committed offsets of a group's member: sent, awaited, fetched.

    commit_async ─▶ on the wire, in order ──answered──▶ callback, in order (poll, or the next commit, takes answers)
    commit       ─▶ after those, awaited; repeated while the coordinator moves, loads or the group rebalances

A commit names generation and member, so that one which comes too late is refused (CommitFailed): others may read the
partitions by then.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import select
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.client.cluster import RETRY_BACKOFF_S_MAX, by_topic, raise_for
from kafkalite.client.committed import (
    OFFSET_COMMIT_VERSION_MAX,
    OFFSET_FETCH_VERSION_MAX,
    CommittedOffset,
    topics_to_commit,
)
from kafkalite.client.coordinators import WAITING, Coordinator
from kafkalite.client.errors import UNREACHED, ClientError, CommitFailed, ConnectionLost
from kafkalite.errors import ErrorCode, KafkaError, error_for
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol.api import OFFSET_COMMIT, OFFSET_FETCH
from kafkalite.wire.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.wire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.client.cluster import Cluster
    from kafkalite.client.connection import Connection
    from kafkalite.client.group.membership import GroupIdentity

    Callback = Callable[[dict[TopicPartition, CommittedOffset], Exception | None], None]

STABLE_SINCE: Final = 7
"""From this version on OffsetFetch can ask for offsets that no open transaction may change."""
COMMITS_MAX: Final = 100
"""Commits under way; one more waits for the oldest answer."""
PASSING: Final = WAITING | {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
}
"""Codes after which the same question may be answered a moment later."""
GONE: Final = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
"""Codes that say: this member has no say about these partitions any more."""


class PendingCommit(NamedTuple):
    """A commit that is not answered yet."""

    offsets: dict[TopicPartition, CommittedOffset]
    callback: Callback | None


class Commits:
    """See the module."""

    def __init__(self, client: Cluster, group_id: str, instance_id: str | None) -> None:
        self._client = client
        self._group_id = group_id
        self._instance_id = instance_id
        self._lane = f"commits-{id(self)}"
        self._coordinator = Coordinator(client, group_id, lane=self._lane)
        self._under_way: deque[PendingCommit] = deque()
        self._connection: Connection | None = None
        """Where the answers to those under way come from."""

    def close(self) -> None:
        """Drops the connection; what is under way is not heard of."""
        self._under_way.clear()
        self._client.close_lane(self._lane)

    # --- sending ------------------------------------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], identity: GroupIdentity, timeout_s: float
    ) -> None:
        """Commits and waits. CommitFailed; what can pass is repeated for `timeout_s`."""
        self.drain()
        deadline = time.monotonic() + timeout_s
        backoff_s = self._client.retry_backoff_s
        while True:
            error: Exception
            try:
                connection = self._coordinator.connection()
                answer = connection.request(
                    OFFSET_COMMIT, self._request(offsets, identity), version_max=OFFSET_COMMIT_VERSION_MAX
                )
                found = self._refusal(answer)
                if found is None:
                    return
                error = found
            except UNREACHED as lost:
                self._coordinator.forget()
                error = lost
            except KafkaError as refused:
                error = refused
            passing = error.code in PASSING or error.retriable if isinstance(error, KafkaError) else True
            if not passing or time.monotonic() + backoff_s > deadline:
                raise failed(self._group_id, error) from error
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, RETRY_BACKOFF_S_MAX)

    def commit_async(
        self, offsets: dict[TopicPartition, CommittedOffset], identity: GroupIdentity, callback: Callback | None
    ) -> None:
        """Sends a commit and returns. A failure is the callback's to hear; it is not repeated, since a later one may be
        on its way."""
        while len(self._under_way) >= COMMITS_MAX:
            self._take_one()
        under_way = PendingCommit(offsets, callback)
        try:
            connection = self._coordinator.connection()
            if self._connection is not connection:
                self.drain()
                self._connection = connection
            connection.send(OFFSET_COMMIT, self._request(offsets, identity), version_max=OFFSET_COMMIT_VERSION_MAX)
        except (KafkaError, ClientError) as error:
            self.drain()
            self._coordinator.forget()
            self._finish(under_way, error)
            return
        self._under_way.append(under_way)

    def take_answers(self) -> None:
        """Calls back for what has been answered, without waiting."""
        while self._under_way and self._connection is not None:
            if not self._connection.closed and not self._connection.overdue:
                poller = select.poll()
                poller.register(self._connection.fileno(), select.POLLIN)
                if not self._connection.buffered and not poller.poll(0):
                    return
            self._take_one()

    def drain(self) -> None:
        """Waits for every answer under way, and calls back."""
        while self._under_way:
            self._take_one()

    def _take_one(self) -> None:
        assert self._connection is not None, "commits are under way somewhere"
        under_way = self._under_way.popleft()
        error: Exception | None
        try:
            if self._connection.closed:
                raise ConnectionLost("the connection was lost before the broker confirmed the commit")
            error = self._refusal(self._connection.receive()[1])
        except ClientError as lost:
            self._coordinator.forget()
            error = lost
        self._finish(under_way, error)

    def _finish(self, under_way: PendingCommit, error: Exception | None) -> None:
        wrapped = None
        if error is not None:
            wrapped = failed(self._group_id, error)
            wrapped.__cause__ = error
        if under_way.callback is not None:
            under_way.callback(under_way.offsets, wrapped)

    def _request(
        self, offsets: Mapping[TopicPartition, CommittedOffset], identity: GroupIdentity
    ) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=self._instance_id,
            topics=topics_to_commit(offsets),
        )

    def _refusal(self, answer: Any) -> KafkaError | None:
        """The first error in an answer."""
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code:
                    self._coordinator.note(row.error_code)
                    return error_for(row.error_code, f"{topic.name}-{row.partition_index}")
        return None

    # --- fetching -----------------------------------------------------------------------------------------------------

    def fetch(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """What is committed, -1 where nothing is. Asked once; KafkaError with a code of PASSING: ask again later.

        Offsets that an open transaction may still change are not answered (KIP-447).
        """
        self.drain()
        connection = self._coordinator.connection()
        version = connection.version_for(OFFSET_FETCH, OFFSET_FETCH_VERSION_MAX)
        request = OffsetFetchRequest(
            group_id=self._group_id,
            topics=[OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in by_topic(keys)],
            require_stable=version >= STABLE_SINCE,
        )
        answer = connection.request(OFFSET_FETCH, request, version_max=version)
        self._coordinator.note(answer.error_code)
        raise_for(answer.error_code, f"cannot fetch the committed offsets of group {self._group_id}")
        found = {}
        for topic in answer.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    self._coordinator.note(row.error_code)
                    raise_for(row.error_code, f"cannot fetch the committed offset of group {self._group_id} in {key}")
                found[key] = CommittedOffset(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
        return found

    def lost_connection(self) -> None:
        """The next question looks for the coordinator again."""
        self._coordinator.forget()


def failed(group_id: str, error: Exception) -> CommitFailed:
    """What a refused commit means, in a sentence."""
    if isinstance(error, KafkaError):
        if error.code in GONE:
            return CommitFailed(
                f"this member is no longer in group {group_id} ({error.name}); the partitions' new owners start at the "
                f"last committed offsets"
            )
        return CommitFailed(f"the commit of group {group_id} failed: {error} ({error.name})")
    return CommitFailed(f"the commit of group {group_id} may have failed: {error}")
