"""Handle DeleteRecords 0-2: delete the oldest records of partitions, by raising the log start offset.

For a requested offset, the result is:

    from the log start offset to the high watermark    records below the offset are deleted
    -1                                                 records below the high watermark are deleted
    below the log start offset                         nothing is deleted, without an error
    above the high watermark                           OFFSET_OUT_OF_RANGE
    any, in a topic that is only compacted             POLICY_VIOLATION
    any, in an internal topic                          INVALID_TOPIC_EXCEPTION

The response has the low watermark: the lowest log start offset of all live replicas, or -1 with an error.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.log.leading import cancel_low_wait, low_watermark, wait_low
from kafkalite.base.deferred import Deferred
from kafkalite.broker.handlers.permissions import DELETE, TOPIC, allowed_names
from kafkalite.broker.handlers.topics import find_partition
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.broker.log import segment_removal
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.model import INTERNAL_TOPICS
from kafkalite.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite.broker.coordinator.timer_queue import TimerQueue
    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.broker.log.partition_log import PartitionLog

NO_LOW_WATERMARK: Final = -1


class _Followed(NamedTuple):
    """A log whose start offset was raised here, but not yet in the logs of all its followers.

    Its low watermark is the lowest log start offset of all live replicas.
    """

    log: PartitionLog
    offset: int
    result: DeleteRecordsPartitionResult

    def end(self, code: ErrorCode) -> None:
        self.result.error_code, self.result.low_watermark = code, NO_LOW_WATERMARK
        if code == ErrorCode.NONE:
            self.result.low_watermark = low_watermark(self.log.core)


class _Waiting:
    """A request that waits until the logs of all live followers start at the requested offsets, too.

    Any thread calls `_end` when the followers of one log are done.
    """

    def __init__(self, response: DeleteRecordsResponse, followed: Sequence[_Followed], timers: TimerQueue) -> None:
        self.answer: Deferred[DeleteRecordsResponse] = Deferred(abandoned=self.expire)
        self._timer = timers.timer(self.expire)
        self._response = response
        self._left = dict(enumerate(followed))
        self._numbers: dict[int, int] = {}
        self._lock = threading.Lock()

    def start(self, timeout_s: float) -> None:
        for at, each in list(self._left.items()):
            self._numbers[at] = wait_low(each.log.core, each.offset, functools.partial(self._end, at))
        self._timer.set(timeout_s)
        if self.answer.done:
            self._timer.cancel()

    def expire(self) -> None:
        """End the wait after the timeout, or when the client has disconnected. The records stay deleted."""
        for at, each in list(self._left.items()):
            cancel_low_wait(each.log.core, self._numbers[at])
            self._end(at, ErrorCode.REQUEST_TIMED_OUT)

    def _end(self, at: int, code: int) -> None:
        """Complete one log's result. `code` is NONE if all live followers start at the offset, otherwise the error that
        ended the wait."""
        with self._lock:
            ended = self._left.pop(at, None)
            if ended is None:
                return
            ended.end(ErrorCode(code))
            last = not self._left
        if last:
            self._timer.cancel()
            self.answer.complete(self._response)


def handle(
    context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Deferred[DeleteRecordsResponse]:
    allowed = allowed_names(context, DELETE, TOPIC, (topic.name for topic in checkpointed(request.topics)))
    asked: dict[str, dict[int, DeleteRecordsPartition]] = {}  # if a partition is named twice, the last one wins
    for topic in checkpointed(request.topics):
        asked.setdefault(topic.name, {}).update((item.partition_index, item) for item in checkpointed(topic.partitions))
    followed: list[_Followed] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _result(context, name, item, followed, allowed=name in allowed)
                    for item in checkpointed(items.values())
                ],
            )
            for name, items in checkpointed(asked.items())
        ]
    )
    if not followed:
        return response
    waiting = _Waiting(response, followed, context.broker.groups.timers)
    waiting.start(max(0, request.timeout_ms) / 1000)
    return waiting.answer


def _result(
    context: RequestContext, topic: str, item: DeleteRecordsPartition, followed: list[_Followed], *, allowed: bool
) -> DeleteRecordsPartitionResult:
    """Return a partition's result; if the result has to wait for followers, add the partition's log to `followed`."""
    log, start, code = None, NO_LOW_WATERMARK, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if allowed:
        log, start, code = _delete(context, topic, item)
    result = DeleteRecordsPartitionResult(partition_index=item.partition_index, low_watermark=start, error_code=code)
    if log is not None and log.core.replicated:  # if leadership was lost since, the wait ends at once
        followed.append(_Followed(log, start, result))
    return result


def _only_compacted(context: RequestContext, topic_name: str) -> bool:
    topic = context.broker.logs.topics.get(topic_name)  # None: just deleted, which delete_records will report
    return topic is not None and topic.config.cleanup_policy == ("compact",)


def _delete(
    context: RequestContext, topic_name: str, item: DeleteRecordsPartition
) -> tuple[PartitionLog | None, int, ErrorCode]:
    """Return (log, new log start, NONE), or (None, -1, error code)."""
    log, error = find_partition(context, topic_name, item.partition_index)
    if log is None:
        return None, NO_LOW_WATERMARK, error
    if topic_name in INTERNAL_TOPICS:
        return None, NO_LOW_WATERMARK, ErrorCode.INVALID_TOPIC_EXCEPTION
    if _only_compacted(context, topic_name):
        return None, NO_LOW_WATERMARK, ErrorCode.POLICY_VIOLATION
    try:
        return log, segment_removal.delete_records(log, item.offset), ErrorCode.NONE
    except KafkaError as failure:
        return None, NO_LOW_WATERMARK, failure.code
