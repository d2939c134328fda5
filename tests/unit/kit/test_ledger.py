"""The checker of the reliability tests must itself fail when something is wrong: one seeded fault per finding."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.checkers.ledger import Identity, Ledger, ReadRecord, compare_reads, make_key, make_value

Log = dict[int, list[ReadRecord]]


def honest_run(producer_count: int = 2, partition_count: int = 3, per_partition: int = 40) -> tuple[Ledger, Log]:
    """A ledger, and the log a faultless broker would hold."""
    ledger = Ledger()
    log: Log = {partition: [] for partition in range(partition_count)}
    for number in range(per_partition):
        for producer in range(producer_count):
            for partition in log:
                identity, key, value = ledger.next_record(producer, partition, size=number % 7)
                offset = len(log[partition])
                log[partition].append(ReadRecord(offset, key, value))
                ledger.acknowledge(identity, offset)
    return ledger, log


def renumber(records: list[ReadRecord]) -> list[ReadRecord]:
    return [record._replace(offset=offset) for offset, record in enumerate(records)]


def test_honest_log_passes() -> None:
    ledger, log = honest_run()
    assert ledger.judge(log), str(ledger.judge(log))
    assert compare_reads(log, log)


def test_unacknowledged_records_may_be_there_or_not() -> None:
    ledger, log = honest_run()
    _, key, value = ledger.next_record(0, 0, size=5)
    assert ledger.judge(log)
    log[0].append(ReadRecord(len(log[0]), key, value))
    assert ledger.judge(log)


def forget_last(log: Log) -> None:
    log[1].pop()


def forget_middle(log: Log) -> None:
    log[1] = renumber(log[1][:10] + log[1][11:])


def double(log: Log) -> None:
    log[1].append(log[1][-1]._replace(offset=len(log[1])))


def flip_value(log: Log) -> None:
    record = log[2][13]
    assert record.value
    log[2][13] = record._replace(value=bytes([record.value[0] ^ 1]) + record.value[1:])


def flip_key(log: Log) -> None:
    record = log[2][13]
    assert record.key
    log[2][13] = record._replace(key=record.key[:-1] + bytes([record.key[-1] ^ 1]))


def drop_key(log: Log) -> None:
    log[0][3] = log[0][3]._replace(key=None)


def empty_value(log: Log) -> None:
    log[0][13] = log[0][13]._replace(value=None)


def swap(log: Log) -> None:
    """Records of one producer change places, offsets stay."""
    first, second = log[0][10], log[0][12]
    log[0][10], log[0][12] = second._replace(offset=10), first._replace(offset=12)


def move(log: Log) -> None:
    log[2].append(log[1].pop()._replace(offset=len(log[2])))


def invent(log: Log) -> None:
    identity = Identity(0, 0, 10_000)
    value = make_value(identity, 8)
    log[0].append(ReadRecord(len(log[0]), make_key(identity, value), value))


def leave_gap(log: Log) -> None:
    log[0] = [record._replace(offset=record.offset + (record.offset > 20)) for record in log[0]]


FAULTS = [
    pytest.param(forget_last, "lost", id="forget-last"),
    pytest.param(forget_middle, "lost", id="forget-middle"),
    pytest.param(double, "doubled", id="double"),
    pytest.param(flip_value, "changed", id="flip-value"),
    pytest.param(flip_key, "changed", id="flip-key"),
    pytest.param(drop_key, "changed", id="drop-key"),
    pytest.param(empty_value, "changed", id="empty-value"),
    pytest.param(swap, "reordered", id="swap"),
    pytest.param(move, "moved", id="move-partition"),
    pytest.param(invent, "invented", id="invent"),
    pytest.param(leave_gap, "gap", id="gap"),
]


@pytest.mark.parametrize(("fault", "kind"), FAULTS)
def test_seeded_fault_is_found(fault: Callable[[Log], None], kind: str) -> None:
    ledger, log = honest_run()
    fault(log)
    verdict = ledger.judge(log)
    assert not verdict
    assert kind in verdict.kinds, str(verdict)


def test_acknowledged_offset_that_is_another_records_is_moved() -> None:
    ledger, log = honest_run()
    identity, key, value = ledger.next_record(0, 0, size=3)
    log[0].append(ReadRecord(len(log[0]), key, value))
    ledger.acknowledge(identity, offset=3)
    assert ledger.judge(log).kinds == {"moved"}


def test_doubles_pass_only_where_allowed() -> None:
    ledger, log = honest_run()
    double(log)
    assert ledger.judge(log, doubles_allowed=True)
    assert "doubled" in ledger.judge(log).kinds


@pytest.mark.parametrize("fault", [forget_last, flip_value, swap], ids=["forget", "flip", "swap"])
def test_second_read_that_differs_is_found(fault: Callable[[Log], None]) -> None:
    _, log = honest_run()
    second = {partition: list(records) for partition, records in log.items()}
    fault(second)
    assert compare_reads(log, second).kinds == {"vanished"}


def test_second_read_may_have_more_at_the_end() -> None:
    _, log = honest_run()
    second = {partition: list(records) for partition, records in log.items()}
    second[0].append(ReadRecord(len(log[0]), b"k", b"v"))
    assert compare_reads(log, second)
