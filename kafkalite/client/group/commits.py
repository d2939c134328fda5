"""Commit and fetch the offsets of a group member.

    commit_async ─▶ sent, in order ──response──▶ callback, in order, run by a later call
    commit       ─▶ sent after pending commits, and waits; retried while the coordinator moves or loads, or the
                    group rebalances

Each commit contains the generation and the member id. If the group has rebalanced without this member, the broker
rejects the commit (CommitFailed).

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
"""The first OffsetFetch version that can leave out offsets which an open transaction may still change."""
COMMITS_MAX: Final = 100
"""Pending commits; one more waits for the oldest response."""
PASSING: Final = WAITING | {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
}
"""Codes after which a retry may succeed."""
GONE: Final = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
"""Codes after which this member no longer owns these partitions."""


class PendingCommit(NamedTuple):
    """A commit that was sent and has no response yet."""

    offsets: dict[TopicPartition, CommittedOffset]
    callback: Callback | None


class Commits:
    """The commits of one member; see the module."""

    def __init__(self, client: Cluster, group_id: str, instance_id: str | None) -> None:
        self._client = client
        self._group_id = group_id
        self._instance_id = instance_id
        self._lane = f"commits-{id(self)}"
        self._coordinator = Coordinator(client, group_id, lane=self._lane)
        self._under_way: deque[PendingCommit] = deque()
        self._connection: Connection | None = None
        """The connection on which pending commits were sent."""

    def close(self) -> None:
        """Close the connection and drop pending commits without a callback."""
        self._under_way.clear()
        self._client.close_lane(self._lane)

    # --- sending ------------------------------------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], identity: GroupIdentity, timeout_s: float
    ) -> None:
        """Commit and wait. Raises CommitFailed; retriable errors are retried for `timeout_s` seconds."""
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
        """Send a commit and return.

        The callback gets the error of a failed commit. The commit is not retried, because a later commit may be
        pending.
        """
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
        """Run the callbacks of commits that have a response, without waiting."""
        while self._under_way and self._connection is not None:
            if not self._connection.closed and not self._connection.overdue:
                poller = select.poll()
                poller.register(self._connection.fileno(), select.POLLIN)
                if not self._connection.buffered and not poller.poll(0):
                    return
            self._take_one()

    def drain(self) -> None:
        """Wait for all pending commits and run their callbacks."""
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
        """Return the first error in a response."""
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code:
                    self._coordinator.note(row.error_code)
                    return error_for(row.error_code, f"{topic.name}-{row.partition_index}")
        return None

    # --- fetching -----------------------------------------------------------------------------------------------------

    def fetch(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Fetch the committed offset of each partition; -1 if there is none. Sends one request. Raises KafkaError.

        If the error's code is in PASSING, call `fetch` again later. An example is UNSTABLE_OFFSET_COMMIT, while an open
        transaction may change an offset (KIP-447).
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
        """Forget the coordinator after its connection was lost, so that the next request looks it up."""
        self._coordinator.forget()


def failed(group_id: str, error: Exception) -> CommitFailed:
    """Convert the error of a failed commit to CommitFailed."""
    if isinstance(error, KafkaError):
        if error.code in GONE:
            return CommitFailed(
                f"this member is no longer in group {group_id} ({error.name}); the partitions' new owners start at the "
                f"last committed offsets"
            )
        return CommitFailed(f"the commit of group {group_id} failed: {error} ({error.name})")
    return CommitFailed(f"the commit of group {group_id} may have failed: {error}")
