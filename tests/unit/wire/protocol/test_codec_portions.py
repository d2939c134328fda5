"""Long messages in portions: the pace is called while they are read, written and freed, and may end it."""

from __future__ import annotations

import gc
import weakref

import pytest

from kafkalite.wire import protocol
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import metadata, offset_fetch

COUNT = 10_000


class Ended(BaseException):
    """The exception that a pace raises."""


class Pace:
    def __init__(self, calls_max: int = 1 << 60) -> None:
        self.calls = 0
        self.sizes: list[int] = []
        self._calls_max = calls_max

    def __call__(self, size: int = 0) -> None:
        self.calls += 1
        self.sizes.append(size)
        if self.calls > self._calls_max:
            raise Ended


def request(count: int = COUNT) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=f"t{i}") for i in range(count)])


def groups(topics: int, partitions: int) -> offset_fetch.OffsetFetchRequest:
    topic = [offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=list(range(partitions)))]
    return offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=topic) for _ in range(topics)]
    )


@pytest.mark.parametrize("message", [groups(3000, 1), groups(1, 9000)], ids=["structs", "scalars"])
def test_a_pace_is_called_every_few_items_and_changes_nothing(message: offset_fetch.OffsetFetchRequest) -> None:
    program = protocol.request_program(api.OFFSET_FETCH, 9)
    written = program.encode(message)
    reading, writing = Pace(), Pace()
    assert program.decode(written, pace=reading) == message
    assert program.encode_frame(message, b"", writing)[4:] == written
    for calls in (reading.calls, writing.calls):
        assert 100 <= calls <= 300, "of 9,000 items"
    assert writing.sizes == sorted(writing.sizes)
    assert writing.sizes[-1] <= len(written) + 4


def test_a_pace_that_raises_ends_the_work() -> None:
    program = protocol.request_program(api.METADATA, 9)
    written = program.encode(request())
    with pytest.raises(Ended):
        program.decode(written, pace=Pace(3))
    with pytest.raises(Ended):
        program.encode_frame(request(), b"", Pace(3))
    assert program.decode(written) == request(), "the program is as before"


def test_too_many_objects_are_refused_with_a_pace_as_without() -> None:
    program = protocol.request_program(api.METADATA, 9)
    written = program.encode(request())
    for pace in (None, Pace()):
        assert program.decode(written, objects_max=COUNT + 1, pace=pace) == request()
        with pytest.raises(protocol.DecodeError, match="too many items"):
            program.decode(written, objects_max=COUNT, pace=pace)


@pytest.mark.parametrize(
    ("message", "count"),
    [(request(0), 0), (request(7), 7), (metadata.MetadataRequest(topics=None), 0)],
    ids=["empty", "some", "null"],
)
def test_items_are_counted(message: metadata.MetadataRequest, count: int) -> None:
    assert protocol.request_program(api.METADATA, 9).count_items(message) == count


def test_items_of_lists_in_lists_are_counted() -> None:
    assert protocol.request_program(api.OFFSET_FETCH, 9).count_items(groups(3, 5)) == 3 + 3 + 3 * 5


class Watched(str):
    """A text whose end can be seen."""

    __slots__ = ("__weakref__",)


def test_release_frees_in_portions_what_nothing_else_has() -> None:
    program = protocol.request_program(api.METADATA, 9)
    names = [Watched(f"t{i}") for i in range(200)]
    seen = [weakref.ref(name) for name in names]
    message = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name) for name in names])
    del names
    left: list[int] = []
    gc.disable()
    try:
        program.release(message, lambda: left.append(sum(ref() is not None for ref in seen)))
    finally:
        gc.enable()
    assert left == [136, 72, 8]
    assert not any(ref() is not None for ref in seen)


def test_release_leaves_what_is_shared_as_it_is() -> None:
    program = protocol.response_program(api.METADATA, 9)
    rows = [metadata.MetadataResponsePartition(partition_index=i, replica_nodes=[1]) for i in range(300)]
    message = metadata.MetadataResponse(
        topics=[
            metadata.MetadataResponseTopic(name="a", partitions=rows),
            metadata.MetadataResponseTopic(name="b", partitions=list(rows)),
        ]
    )
    topics = message.topics
    program.release(message, Pace())
    assert len(topics) == 2, "this list is the test's, too"
    del topics
    program.release(message, Pace())
    assert len(message.topics) == 0
    assert [row.partition_index for row in rows] == list(range(300))
    assert all(row.replica_nodes == [1] for row in rows)


def test_release_of_something_else_does_nothing() -> None:
    program = protocol.response_program(api.METADATA, 9)
    program.release(request(), Pace())
    program.release(None, Pace())
