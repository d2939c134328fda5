"""A paused partition of another client: what is read of it meanwhile is there at once when it is resumed."""

from collections.abc import Mapping

from kafkalite.failures.adapters.listening import KEPT_BYTES_MAX, KEPT_MAX, Listening
from kafkalite.failures.events import Message
from kafkalite.failures.runner import Fetch
from kafkalite.model import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Scripted(Listening):
    """A client whose reads are a test's."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[list[Fetch]] = []
        self.said: list[tuple[str, TopicPartition]] = []
        self.timeouts: list[float] = []
        self.lost_in_read: list[TopicPartition] = []
        self.assigned([A, B])

    def _read(self, timeout_s: float) -> list[Fetch]:
        self.timeouts.append(timeout_s)
        self.revoked(self.lost_in_read)
        return self.reads.pop(0) if self.reads else []

    def _halt(self, partition: TopicPartition) -> None:
        self.said.append(("halt", partition))

    def _unhalt(self, partition: TopicPartition) -> None:
        self.said.append(("unhalt", partition))

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        self.said.append(("seek", partition))

    def _position(self, partition: TopicPartition) -> int:
        return 9999

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...


def fetch(partition: TopicPartition, first: int, count: int = 1, value: bytes = b"") -> Fetch:
    messages = [Message(*partition, first + number, 0, None, value) for number in range(count)]
    return Fetch(partition, messages, first + count)


def test_what_is_read_of_a_paused_partition_comes_first_when_it_is_resumed() -> None:
    port = Scripted()
    port.pause(A)
    port.reads = [[fetch(A, 0, 5), fetch(B, 0)], [fetch(A, 5)], [fetch(A, 6), fetch(B, 1)]]
    assert port.poll(0.1) == [fetch(B, 0)]
    assert port.poll(0.1) == []
    assert port.position(A) == 0
    port.resume(A)
    assert port.poll(0.1) == [fetch(A, 0, 5), fetch(A, 5), fetch(A, 6), fetch(B, 1)]
    assert port.position(A) == 9999
    assert port.timeouts == [0.1, 0.1, 0.0]
    assert port.said == []


def test_the_client_is_paused_when_enough_is_kept() -> None:
    for read in (fetch(A, 0, KEPT_MAX), fetch(A, 0, 1, bytes(KEPT_BYTES_MAX))):
        port = Scripted()
        port.pause(A)
        port.reads = [[read], [fetch(A, read.next_offset)]]
        port.poll(0.1)
        assert port.poll(0.1) == []
        assert port.said == [("halt", A)]
        port.resume(A)
        assert port.said == [("halt", A), ("unhalt", A)]
        assert port.poll(0.1) == [read, fetch(A, read.next_offset)]


def test_what_is_kept_goes_with_its_partition() -> None:
    port = Scripted()
    port.pause(A)
    port.reads = [[fetch(A, 0)]]
    port.poll(0.1)
    port.resume(A)
    port.lost_in_read = [A]
    assert port.poll(0.1) == []
    port.assigned([A])
    port.lost_in_read = []
    port.reads = [[fetch(A, 0)]]
    assert port.poll(0.1) == [fetch(A, 0)]


def test_a_seek_forgets_what_is_kept() -> None:
    port = Scripted()
    port.pause(A)
    port.reads = [[fetch(A, 0)], [fetch(A, 7)]]
    port.poll(0.1)
    port.seek(A, 7)
    port.resume(A)
    assert port.poll(0.1) == [fetch(A, 7)]
