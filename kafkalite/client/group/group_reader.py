"""Read topics as a member of a consumer group, with rebalances, callbacks and offset commits.

`Membership` has a thread that joins the group and sends heartbeats. `Commits` fetches and commits offsets. A poll has
three steps:

1. During and after a rebalance, revoke and add partitions, and run the callbacks.
2. Look up the start offsets of new partitions.
3. Return records from the Reader.

Thread rule: one thread at a time, that of the Client. Any thread may call `close`. Callbacks run within a
call, without a lock.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kafkalite.client.cluster import READ_UNCOMMITTED
from kafkalite.client.committed import CommittedOffset, GroupMetadata, committed_offsets
from kafkalite.client.errors import UNREACHED, CommitFailed, NoOffset, ReaderClosed
from kafkalite.client.group.assignors import ASSIGNORS
from kafkalite.client.group.commits import PASSING, Commits
from kafkalite.client.group.holdings import Holdings
from kafkalite.client.group.membership import MemberSettings, Membership, Phase
from kafkalite.client.group.one_thread import OneThread
from kafkalite.client.history import find_divergences
from kafkalite.client.read.marks import Mark
from kafkalite.client.read.reader import FETCH_SIZE, MAX_WAIT_MS, Reader
from kafkalite.errors import KafkaError, UnknownTopicOrPartition, UnstableOffsetCommit
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from kafkalite.wire.consumer_protocol import NO_GENERATION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from re import Pattern

    from kafkalite.client.cluster import Cluster
    from kafkalite.client.committed import Offsets
    from kafkalite.client.group.assignors import Assignor
    from kafkalite.client.group.commits import Callback
    from kafkalite.client.read.reader import Chunk

    OnPartitions = Callable[[list[TopicPartition]], None]

SESSION_TIMEOUT_S: Final = 45.0
HEARTBEAT_INTERVAL_S: Final = 3.0
MAX_POLL_INTERVAL_S: Final = 300.0
TOPICS_AGE_MAX_S: Final = 60.0
CLOSE_TIMEOUT_S: Final = 10.0
PLACE_AGAIN_S: Final = 0.1
"""Seconds until committed offsets that could not be fetched are requested again."""

logger = logging.getLogger(__name__)


class Callbacks(NamedTuple):
    """The caller's callbacks; see GroupReader."""

    assigned: OnPartitions | None
    revoked: OnPartitions | None
    lost: OnPartitions | None


class GroupReader:
    """A consumer group member, created by `Client.group_reader`. Iterate over it, or call `poll`.

    `topics`                a name, several names, or a compiled pattern that must match the full name
    `assignors`             assignment strategies in order of preference: "range", "cooperative-sticky"; with
                            "cooperative-sticky" alone, the member keeps reading during a rebalance
    `instance_id`           makes a static member (KIP-345): a restart within the session causes no rebalance
    `reset`                 where to start if a committed offset is missing or out of range: "earliest", "latest" or
                            None, which raises NoOffset, OffsetOutOfRange or LogTruncated (see Reader)
    `auto_commit_interval_s`   seconds between automatic commits, also made before partitions are revoked; None: only
                            the caller commits
    `on_assigned`           called after each rebalance with the added partitions, possibly none
    `on_revoked`            called with partitions that are being revoked; a commit still works
    `on_lost`               called with partitions that were lost; it is too late to commit
    `session_timeout_s`     the group removes the member after this time without a heartbeat
    `max_poll_interval_s`   longest time between polls; a rebalance waits this long for the member
    `isolation`, `fetch_size`, `max_wait_ms`, `check_crcs`, `raises_truncation`   as in Reader
    """

    def __init__(
        self,
        client: Cluster,
        group_id: str,
        topics: Iterable[str] | str | Pattern[str],
        *,
        assignors: Sequence[str] = ("range", "cooperative-sticky"),
        instance_id: str | None = None,
        reset: str | None = "latest",
        auto_commit_interval_s: float | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S,
        max_poll_interval_s: float = MAX_POLL_INTERVAL_S,
        topics_age_max_s: float = TOPICS_AGE_MAX_S,
        isolation: int = READ_UNCOMMITTED,
        fetch_size: int = FETCH_SIZE,
        max_wait_ms: int = MAX_WAIT_MS,
        check_crcs: bool = True,
        raises_truncation: bool = False,
    ) -> None:
        if not group_id:
            raise ValueError("group_id must not be empty")
        names, pattern = topics_of(topics)
        self._settings = MemberSettings(
            group_id=group_id,
            instance_id=instance_id,
            assignors=assignors_of(assignors),
            topics=names,
            pattern=pattern,
            session_timeout_s=session_timeout_s,
            heartbeat_interval_s=heartbeat_interval_s,
            max_poll_interval_s=max_poll_interval_s,
            topics_age_max_s=topics_age_max_s,
        )
        client.refresh([])  # raises here, not in a later poll, if no broker is reachable
        self._client = client
        self._callbacks = Callbacks(on_assigned, on_revoked, on_lost)
        self._auto_commit_s = auto_commit_interval_s
        self._commit_at = 0.0
        self._reset = reset
        self._isolation = isolation
        self._reader = Reader(
            client,
            {},
            isolation=isolation,
            fetch_size=fetch_size,
            max_wait_ms=max_wait_ms,
            reset=reset,
            check_crcs=check_crcs,
            await_topics=True,
            raises_truncation=raises_truncation,
            find_divergences=functools.partial(find_divergences, client),
        )
        self._commits = Commits(client, group_id, instance_id)
        self._holdings = Holdings()
        self._one_thread = OneThread(f"the reader of group {group_id}")
        self._membership = Membership(client, self._settings, self._one_thread.bell.ring)

    # --- its end ------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Close the reader. After an exception, skip the automatic commit: the last records may not have been
        processed.
        """
        self.close(commit=kind is None)

    def close(self, *, commit: bool = True, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Commit (if automatic), run on_revoked, leave the group and end the thread. Idempotent; any thread.

        A poll that is running in another thread raises ReaderClosed; a `for` loop ends.
        `commit` False skips the automatic commit. A static member does not leave: the group waits for it until its
        session expires. In a forked child the method does nothing, because the membership belongs to the parent.
        """
        if self._client.inherited:
            return
        with self._one_thread.shut(timeout_s) as first:
            if first:
                try:
                    self._give_up_all(timeout_s, commit=commit)
                finally:
                    self._membership.close(leave=True, timeout_s=timeout_s)
                    self._commits.close()
                    self._reader.close()

    def _give_up_all(self, timeout_s: float, *, commit: bool) -> None:
        """Revoke all partitions in `close`. An error of a callback is raised after everything else."""
        settled = self._membership.identity(0.0) is not None
        if self._auto_commit_s is not None and settled and commit:
            self._commit_before_giving_up(timeout_s)
        try:
            if self._holdings.owned:
                # A member that keeps partitions during a rebalance still owns them: they were not reassigned.
                known = self._membership.known_as().generation != NO_GENERATION
                self._call(self._callbacks.revoked if known else self._callbacks.lost, self._holdings.owned)
        finally:
            self._commits.drain()
            self._forget(self._holdings.owned)

    # --- reading ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Chunk]:
        """Yield chunks until the reader is closed.

        A chunk's records count as processed when the next chunk is requested.
        """
        while True:
            try:
                with self._one_thread.entered():
                    self._look(None)
                    chunk = self._holdings.hand_out()
            except ReaderClosed:
                return
            yield chunk

    def poll(self, timeout_s: float = 1.0) -> list[Chunk]:
        """Return the records that have arrived; wait at most `timeout_s` for the first.

        The returned records count as processed at the next poll, commit or close. Joins the group on the first call and
        takes part in rebalances. Raises KafkaError and ClientError. A fatal error such as FencedInstanceId is raised
        again by every call.
        """
        with self._one_thread.entered():
            self._look(time.monotonic() + timeout_s)
            return self._holdings.hand_out_all()

    def _look(self, deadline: float | None) -> None:
        """Take part in the group and read, until there are chunks or the deadline has passed."""
        while True:
            self._membership.polled()
            self._one_thread.go_on()
            self._serve_group()
            self._place()
            self._commits.take_answers()
            self._commit_when_due()
            if self._holdings.hold(()):
                return
            now = time.monotonic()
            limit_s = self._settings.heartbeat_interval_s if deadline is None else max(deadline - now, 0.0)
            if self._holdings.unplaced:
                limit_s = min(limit_s, max(self._holdings.place_at - now, 0.0))
            if self._auto_commit_s is not None:
                limit_s = min(limit_s, max(self._commit_at - now, 0.0))
            held = self._holdings.hold(self._reader.poll(limit_s, wake=self._one_thread.bell))
            self._go_back()
            if not held and deadline is not None and time.monotonic() >= deadline:
                return

    def _go_back(self) -> None:
        """Set the positions in diverged (truncated or restored) logs to where the Reader continues."""
        for key, offset in self._reader.gone_back.items():
            self._holdings.drop_chunks({key})
            self._holdings.positions[key] = offset
        self._reader.gone_back.clear()

    # --- the group ----------------------------------------------------------------------------------------------------

    def _serve_group(self) -> None:
        membership = self._membership
        phase = membership.phase
        if phase == Phase.FAILED:
            assert membership.failure is not None, "failed for a reason"
            self._lose()
            raise membership.failure
        if phase == Phase.IDLE:
            membership.join(())
        elif phase == Phase.LOST:
            self._lose()
            membership.join(())
        elif phase == Phase.REBALANCING:
            if self._auto_commit_s is not None:
                self._commit_before_giving_up(self._settings.session_timeout_s / 3)
            if not self._settings.cooperative:
                self._revoke(self._holdings.owned)
            membership.join(tuple(sorted(self._holdings.owned)))
        elif phase == Phase.STABLE:
            assignment = membership.take_assignment()
            if assignment is not None:
                self._apply(set(assignment))
        elif phase == Phase.JOINING and membership.unreached is not None:
            since, error = membership.unreached
            if time.monotonic() - since > self._client.retry_timeout_s:
                raise error

    def _apply(self, assigned: set[TopicPartition]) -> None:
        """Revoke and add partitions.

        After revoking partitions, a cooperative member rejoins, so that other members can get them.
        """
        revoked, added = self._holdings.owned - assigned, assigned - self._holdings.owned
        try:
            if revoked:
                if self._auto_commit_s is not None:
                    self._commit_before_giving_up(self._settings.session_timeout_s / 3)
                self._revoke(revoked)
        finally:
            self._holdings.take(added, time.monotonic())
            if revoked and self._settings.cooperative:
                self._membership.join(tuple(sorted(self._holdings.owned)))
        self._call(self._callbacks.assigned, added)

    def _revoke(self, keys: set[TopicPartition]) -> None:
        given_up = set(keys)
        try:
            if given_up:
                self._call(self._callbacks.revoked, given_up)
        finally:
            self._forget(given_up)

    def _lose(self) -> None:
        lost = set(self._holdings.owned)
        self._forget(lost)
        if lost:
            self._call(self._callbacks.lost, lost)

    def _forget(self, keys: set[TopicPartition]) -> None:
        gone = set(keys)
        self._reader.drop(gone)
        self._holdings.drop(gone)

    @staticmethod
    def _call(callback: OnPartitions | None, keys: set[TopicPartition]) -> None:
        if callback is not None:
            callback(sorted(keys))

    def _place(self) -> None:
        """Find the start offsets of new partitions. After a retriable error a later poll tries again."""
        now = time.monotonic()
        unplaced = self._holdings.unplaced
        if not unplaced or now < self._holdings.place_at:
            return
        self._holdings.place_at = now + PLACE_AGAIN_S
        try:
            committed = self._commits.fetch(sorted(unplaced))
        except UNREACHED:
            self._commits.lost_connection()
            if now - self._holdings.unplaced_since > self._client.retry_timeout_s:
                raise
            return
        except KafkaError as error:
            if error.code not in PASSING and not error.retriable:
                raise
            return
        starts = {key: row.offset for key, row in committed.items() if row.offset >= 0 and key in unplaced}
        marks = {key: Mark(committed[key].leader_epoch) for key in starts}
        self._was_placed({key: committed[key] for key in starts})
        missing = sorted(unplaced - starts.keys())
        if missing:
            if self._reset is None:
                names = ", ".join(map(str, missing))
                raise NoOffset(
                    f"group {self._settings.group_id} has no committed offset for {names}, and reset is None"
                )
            asked = OFFSET_EARLIEST if self._reset == "earliest" else OFFSET_LATEST
            with contextlib.suppress(UnknownTopicOrPartition):  # deleted meanwhile; a rebalance will follow
                found = self._client.list_offsets(dict.fromkeys(missing, asked), isolation=self._isolation)
                starts |= {key: row.offset for key, row in found.items()}
        self._begin(starts, marks)

    def _begin(self, starts: dict[TopicPartition, int], marks: dict[TopicPartition, Mark] | None = None) -> None:
        self._reader.add(starts, marks=marks)
        self._holdings.begin(starts)

    # --- committing ---------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, *, timeout_s: float | None = None) -> None:
        """Commit offsets of assigned partitions, and wait. By default, commit the positions after the records handed
        out.

        Raises CommitFailed. Retries while the coordinator moves or the group rebalances, for `timeout_s` seconds
        (default: the client's retry_timeout_s).
        """
        with self._one_thread.entered():
            rows = self._rows(offsets)
            if rows:
                limit_s = self._client.retry_timeout_s if timeout_s is None else timeout_s
                identity = self._membership.identity(limit_s)
                if identity is None:
                    raise CommitFailed(f"cannot commit: this reader is not in group {self._settings.group_id} now")
                self._commits.commit(rows, identity, limit_s)
                self._was_committed(rows)

    def commit_async(self, offsets: Offsets | None = None, callback: Callback | None = None) -> None:
        """Send a commit and return. A later call runs `callback(offsets, error or None)`.

        If nothing can be sent, the callback runs at once. Callbacks run in the order of the commits. A failed commit is
        not retried, because a later commit covers its offsets.
        """
        with self._one_thread.entered():
            rows = self._rows(offsets)
            identity = self._membership.holder()
            if rows and identity is not None:
                self._commits.commit_async(rows, identity, self._noting(callback))
                return
            self._commits.drain()  # callbacks come in order
            if callback is not None:
                callback(rows, CommitFailed(f"group {self._settings.group_id} is rebalancing") if rows else None)

    def _noting(self, callback: Callback | None) -> Callback:
        """Return a callback that first stores the committed offsets and then calls the caller's callback."""

        def finished(offsets: dict[TopicPartition, CommittedOffset], error: Exception | None) -> None:
            if error is None:
                self._was_committed(offsets)
            if callback is not None:
                callback(offsets, error)

        return finished

    def _was_committed(self, rows: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Store offsets that the group has committed."""
        self._holdings.note_committed({key: row.offset for key, row in rows.items()})

    def _was_placed(self, rows: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Store the committed offsets from which new partitions start."""
        self._was_committed(rows)

    def _rows(self, offsets: Offsets | None) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets to commit: the given offsets, or all positions that are not committed yet."""
        if offsets is None:
            return self.with_epochs(self._holdings.uncommitted())
        strangers = [str(key) for key in offsets if key not in self._holdings.owned]
        if strangers:
            raise CommitFailed(
                f"cannot commit {', '.join(strangers)}: not assigned to this member of group {self._settings.group_id}"
            )
        return self.with_epochs(offsets)

    def with_epochs(self, offsets: Offsets) -> dict[TopicPartition, CommittedOffset]:
        """Add to each offset the leader epoch of the record before it, if this member has read that record. Any thread.

        The epoch lets the partition's next owner detect a truncated log (KIP-320).
        """
        return {
            key: row if row.leader_epoch >= 0 else row._replace(leader_epoch=self._reader.epoch_before(key, row.offset))
            for key, row in committed_offsets(offsets).items()
        }

    def _commit_when_due(self) -> None:
        now = time.monotonic()
        if self._auto_commit_s is not None and now >= self._commit_at:
            self._commit_at = now + self._auto_commit_s
            rows = self._rows(None)
            identity = self._membership.holder()
            if rows and identity is not None:
                self._commits.commit_async(rows, identity, self._noting(self._warn))

    def _warn(self, offsets: dict[TopicPartition, CommittedOffset], error: Exception | None) -> None:
        if error is not None:
            logger.warning("automatic commit of %d partitions failed: %s", len(offsets), error)

    def _commit_before_giving_up(self, timeout_s: float) -> None:
        """Commit before partitions are revoked. If the commit fails, their new owner reads the records again."""
        try:
            self.commit(timeout_s=timeout_s)
        except CommitFailed as error:
            logger.warning("automatic commit before partitions are revoked failed: %s", error)

    def committed(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """Fetch the group's committed offset of each partition, assigned or not; None if there is none."""
        wanted = list(keys)

        def ask() -> dict[TopicPartition, CommittedOffset | None]:
            try:
                found = self._commits.fetch(wanted)
            except UNREACHED:
                self._commits.lost_connection()
                raise
            return {key: row if row.offset >= 0 else None for key, row in found.items()}

        with self._one_thread.entered():
            return self._client.with_retries(ask)

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions assigned to this member, in order."""
        return sorted(self._holdings.owned)

    @property
    def subscription(self) -> tuple[str, ...]:
        """The subscribed topics; for a pattern, the topics that it matched last."""
        return self._membership.topics

    @property
    def group_metadata(self) -> GroupMetadata:
        """This member's generation and ids, for `Producer.send_offsets_to_transaction`."""
        identity = self._membership.known_as()
        return GroupMetadata(self._settings.group_id, *identity, self._settings.instance_id)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset after the last record handed out, for each partition whose start is known. `commit` commits these
        offsets.
        """
        return dict(self._holdings.positions)

    def position(self, key: TopicPartition) -> int:
        """Return the next offset to hand out.

        Raises KeyError if the partition is not assigned or has no start offset yet.
        """
        return self._holdings.positions[key]

    def lag(self, key: TopicPartition) -> int | None:
        """Return the number of offsets from the position to the readable end in the last response.

        None before the first response.
        """
        position = self._holdings.positions.get(key)
        end = -1 if position is None else self._reader.readable_end(key)
        return None if position is None or end < 0 else max(end - position, 0)

    def has_read_to(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether all records before `ends` were handed out, in all partitions of this member.

        False while the member joins or the group rebalances. A partition that is not in `ends` counts as read.
        """
        with self._one_thread.entered():
            if self._membership.phase != Phase.STABLE or self._membership.has_new_assignment or self._holdings.unplaced:
                return False
            positions = self._holdings.positions
            return all(positions[key] >= ends.get(key, 0) for key in self._holdings.owned)

    def seek(self, key: TopicPartition, offset: int) -> None:
        """Continue at another offset. Raises KeyError if the partition is not assigned."""
        with self._one_thread.entered():
            if key not in self._holdings.owned:
                raise KeyError(key)
            self._holdings.drop_chunks({key})
            if key in self._holdings.unplaced:
                self._begin({key: offset})
            self._reader.seek(key, offset)
            self._holdings.positions[key] = offset

    def pause(self, keys: Iterable[TopicPartition]) -> None:
        """Hand out no records of these assigned partitions until `resume`, or until they are revoked."""
        with self._one_thread.entered():
            chosen = set(keys)
            self._place_for(chosen)
            self._reader.pause(chosen)
            for key in self._holdings.drop_chunks(chosen):
                self._reader.seek(key, self._holdings.positions[key])

    def resume(self, keys: Iterable[TopicPartition]) -> None:
        """Hand out records of these partitions again."""
        with self._one_thread.entered():
            self._reader.resume(keys)

    @property
    def paused(self) -> list[TopicPartition]:
        """The paused partitions, in order."""
        return self._reader.paused

    def _place_for(self, keys: set[TopicPartition]) -> None:
        """Wait until these partitions have a position, because on_assigned may pause them before their start
        is known.
        """
        strangers = keys - self._holdings.owned
        if strangers:
            raise KeyError(min(strangers))
        deadline = time.monotonic() + self._client.retry_timeout_s
        while keys & self._holdings.unplaced:
            self._holdings.place_at = 0.0
            self._place()
            if keys & self._holdings.unplaced:
                if time.monotonic() > deadline:
                    raise UnstableOffsetCommit
                time.sleep(PLACE_AGAIN_S)


def assignors_of(names: Sequence[str]) -> tuple[Assignor, ...]:
    """Return the assignors with these names. Raises ValueError."""
    if not names or any(name not in ASSIGNORS for name in names):
        raise ValueError(f"assignors must be one or more of {', '.join(sorted(ASSIGNORS))}, not {list(names)}")
    return tuple(ASSIGNORS[name] for name in names)


def topics_of(topics: Iterable[str] | str | Pattern[str]) -> tuple[tuple[str, ...], Pattern[str] | None]:
    """Return the topic names, or the pattern, that the caller passed. Raises ValueError for no topics."""
    if isinstance(topics, re.Pattern):
        return (), topics
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not names:
        raise ValueError("no topics given")
    return names, None
