"""Transitions of a transactional id: each state with each request, as Kafka answers it (KIP-98, 360, 890)."""

from dataclasses import replace

import pytest

from kafkalite.broker.coordinator import transaction_rules as rules
from kafkalite.broker.coordinator.transaction_rules import (
    EPOCH_LAST,
    EPOCH_MAX,
    LABELS,
    TV1,
    TV2,
    Metadata,
    TransactionState,
)
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from tests.kit.harness.named_case import named_case

PID, OTHER, SPARE = 7, 8, 99
EPOCH = 5
NOW = 1_000
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
OK, BUMP = "ok", "bump"
"""Answered 0 without a change; a change that raises the epoch."""


def metadata(state="Ongoing", **changes):
    base = Metadata(producer_id=PID, epoch=EPOCH, timeout_ms=60_000, state=LABELS[state], start_ms=10, update_ms=20)
    if LABELS[state] in {rules.ONGOING, *rules.PREPARED}:
        base = replace(base, partitions=frozenset((P0, P1)))
    return replace(base, **changes)


def ended(now, epoch, *, commit, version, producer_id=PID):
    return rules.end(now, producer_id, epoch, commit=commit, client_version=version, time_ms=NOW, spare_id=SPARE)


def judged(outcome, before):
    """OK, BUMP, or the error code."""
    if outcome.next is None:
        return OK if outcome.code == 0 else ErrorCode(outcome.code)
    assert outcome.code == 0
    assert outcome.next.epoch == before.epoch + 1
    return BUMP


FENCED, INVALID, AGAIN = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS

TV2_TABLE = [
    # state, commit/current, abort/current, commit/retry, abort/retry
    ("Empty", INVALID, BUMP, FENCED, FENCED),
    ("Ongoing", BUMP, BUMP, FENCED, FENCED),
    ("PrepareCommit", AGAIN, AGAIN, AGAIN, INVALID),
    ("PrepareAbort", AGAIN, AGAIN, INVALID, AGAIN),
    ("CompleteCommit", INVALID, BUMP, OK, INVALID),
    ("CompleteAbort", INVALID, BUMP, INVALID, OK),
]


@pytest.mark.parametrize(
    ("state", "commit", "back", "expected"),
    [
        pytest.param(state, commit, back, row[2 * back + (not commit)], id=f"{state}-{commit}-{back}")
        for state, *row in TV2_TABLE
        for commit in (True, False)
        for back in (0, 1)
    ],
)
def test_kip890_retry_table(state, commit, back, expected):
    now = metadata(state)
    assert judged(ended(now, EPOCH - back, commit=commit, version=TV2), now) == expected


@pytest.mark.parametrize("version", [TV1, TV2])
def test_any_other_epoch_is_fenced_in_every_state(version):
    for state, *_ in TV2_TABLE:
        for epoch in (EPOCH - 2, EPOCH + 1, EPOCH + 2, -1):
            for commit in (True, False):
                with named_case((state, epoch, commit)):
                    now = metadata(state)
                    assert judged(ended(now, epoch, commit=commit, version=version), now) is FENCED


@pytest.mark.parametrize("state", [row[0] for row in TV2_TABLE])
@pytest.mark.parametrize("version", [TV1, TV2])
def test_another_producer_id_is_not_known(state, version):
    outcome = ended(metadata(state), EPOCH, commit=True, version=version, producer_id=OTHER)
    assert outcome == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, None)


@pytest.mark.parametrize(
    ("state", "commit", "expected"),
    [
        ("Empty", True, INVALID),
        ("Empty", False, INVALID),
        ("PrepareCommit", True, AGAIN),
        ("PrepareCommit", False, INVALID),
        ("PrepareAbort", True, INVALID),
        ("PrepareAbort", False, AGAIN),
        ("CompleteCommit", True, OK),
        ("CompleteCommit", False, INVALID),
        ("CompleteAbort", True, INVALID),
        ("CompleteAbort", False, OK),
    ],
)
def test_end_in_the_old_protocol(state, commit, expected):
    now = metadata(state)
    assert judged(ended(now, EPOCH, commit=commit, version=TV1), now) == expected


@pytest.mark.parametrize(("commit", "prepared", "complete"), [
    (True, "PrepareCommit", "CompleteCommit"), (False, "PrepareAbort", "CompleteAbort"),
])  # fmt: skip
@pytest.mark.parametrize(("version", "epoch"), [(TV1, EPOCH), (TV2, EPOCH + 1)])
def test_an_open_transaction_is_prepared_then_complete(commit, prepared, complete, version, epoch):
    now = metadata()
    (code, coming) = ended(now, EPOCH, commit=commit, version=version)
    assert (code, coming.state.label, coming.epoch, coming.producer_id) == (0, prepared, epoch, PID)
    assert (coming.partitions, coming.start_ms, coming.update_ms) == (now.partitions, 10, NOW)
    after = rules.complete(coming, NOW + 1)
    assert (after.state.label, after.epoch, after.producer_id) == (complete, epoch, PID)
    assert (after.partitions, after.update_ms) == (frozenset(), NOW + 1)


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_kip890_abort_of_nothing_raises_the_epoch_and_writes_no_marker(state):
    (code, coming) = ended(metadata(state), EPOCH, commit=False, version=TV2)
    assert (code, coming.state.label, coming.partitions) == (0, "PrepareAbort", frozenset())
    assert rules.complete(coming, NOW).epoch == EPOCH + 1


def test_kip890_exhausted_epoch_rotates_to_a_new_producer_id():
    now = metadata(epoch=EPOCH_LAST)
    (_, coming) = ended(now, EPOCH_LAST, commit=True, version=TV2)
    assert (coming.producer_id, coming.epoch, coming.next_producer_id) == (PID, EPOCH_MAX, SPARE)
    # while it is prepared: the retry, the next transaction of the new id, and older requests
    assert judged(ended(coming, EPOCH_LAST, commit=True, version=TV2), coming) is AGAIN
    assert judged(ended(coming, EPOCH_LAST, commit=False, version=TV2), coming) is INVALID
    assert judged(ended(coming, 0, commit=True, version=TV2, producer_id=SPARE), coming) is AGAIN
    assert judged(ended(coming, EPOCH_LAST - 1, commit=True, version=TV2), coming) is FENCED
    after = rules.complete(coming, NOW)
    assert (after.producer_id, after.epoch, after.previous_producer_id, after.next_producer_id) == (SPARE, 0, PID, -1)
    assert judged(ended(after, EPOCH_LAST, commit=True, version=TV2), after) == OK
    assert judged(ended(after, EPOCH_LAST, commit=False, version=TV2), after) is INVALID
    assert (
        judged(ended(after, EPOCH_LAST - 1, commit=True, version=TV2), after) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    assert judged(ended(after, 0, commit=False, version=TV2, producer_id=SPARE), after) == BUMP


# ---- adding partitions ----------------------------------------------------------------------------------------------


def added(now, *partitions, epoch=EPOCH, producer_id=PID, version=TV1, count_max=10):
    return rules.add(now, producer_id, epoch, frozenset(partitions), version, NOW, count_max)


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_first_partitions_begin_a_transaction(state):
    (code, coming) = added(metadata(state), P2)
    assert (code, coming.state.label, coming.partitions, coming.start_ms) == (0, "Ongoing", frozenset((P2,)), NOW)


def test_more_partitions_join_and_the_start_stays():
    (code, coming) = added(metadata(), P2)
    assert (code, coming.partitions, coming.start_ms) == (0, frozenset((P0, P1, P2)), 10)
    assert added(metadata(), P0, P1) == (0, None)


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_no_partition_joins_what_is_ending(state):
    assert added(metadata(state), P2) == (AGAIN, None)


def test_who_may_not_add():
    assert added(metadata(), P2, epoch=EPOCH - 1) == (FENCED, None)
    assert added(metadata(), P2, epoch=EPOCH + 1) == (FENCED, None)
    assert added(metadata(), P2, producer_id=OTHER) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, None)
    rotating = metadata("PrepareCommit", epoch=EPOCH_MAX, next_producer_id=SPARE)
    assert added(rotating, P2, producer_id=SPARE, epoch=0) == (AGAIN, None)
    assert added(rotating, P2, producer_id=SPARE, epoch=1) == (FENCED, None)


def test_id_without_an_epoch_has_no_transactions():
    fresh = Metadata(producer_id=PID)
    assert added(fresh, P0, epoch=-1) == (FENCED, None)
    for version in (TV1, TV2):
        assert ended(fresh, -1, commit=False, version=version) == (FENCED, None)


def test_partitions_of_a_transaction_are_bounded():
    assert added(metadata(), P2, count_max=2) == (ErrorCode.POLICY_VIOLATION, None)
    assert added(metadata("Empty"), P0, P1, count_max=2).code == 0


def test_verified_is_what_was_added():
    assert rules.verify(metadata(), PID, EPOCH, P0) == 0
    assert rules.verify(metadata(), PID, EPOCH, P2) == ErrorCode.TRANSACTION_ABORTABLE
    assert rules.verify(metadata("Empty"), PID, EPOCH, P0) == ErrorCode.TRANSACTION_ABORTABLE
    assert rules.verify(metadata("PrepareCommit"), PID, EPOCH, P0) == AGAIN
    assert rules.verify(metadata(), PID, EPOCH - 1, P0) == FENCED
    assert rules.verify(metadata(), OTHER, EPOCH, P0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# ---- InitProducerId -------------------------------------------------------------------------------------------------


def initialised(now, asked=None, timeout_ms=30_000):
    return rules.initialise(now, asked, timeout_ms, NOW, SPARE)


def test_new_id_begins_at_epoch_0():
    (code, coming) = initialised(Metadata(producer_id=PID))
    assert (code, coming.epoch, coming.producer_id, coming.state.label) == (0, 0, PID, "Empty")
    assert (coming.timeout_ms, coming.update_ms, coming.start_ms) == (30_000, NOW, -1)


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_next_producer_gets_the_next_epoch(state):
    (code, coming) = initialised(metadata(state))
    assert (code, coming.epoch, coming.state.label, coming.partitions) == (0, EPOCH + 1, "Empty", frozenset())


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_next_producer_waits_for_what_is_ending(state):
    assert initialised(metadata(state)) == (AGAIN, None)


@pytest.mark.parametrize("version", [TV1, TV2])
def test_open_transaction_is_aborted_and_its_producer_fenced(version):
    (code, coming) = initialised(metadata(client_version=version))
    assert (code, coming.state.label, coming.epoch) == (AGAIN, "PrepareAbort", EPOCH + 1)  # once, not twice
    after = rules.complete(coming, NOW)
    assert initialised(after).next.epoch == EPOCH + 2
    assert judged(ended(after, EPOCH, commit=True, version=version), after) in {FENCED, INVALID}


def test_kip360_epoch_is_raised_for_whom_it_belongs_to():
    (code, coming) = initialised(metadata("Empty"), (PID, EPOCH))
    assert (code, coming.epoch, coming.last_epoch) == (0, EPOCH + 1, EPOCH)
    again = initialised(coming, (PID, EPOCH))
    assert (again.code, again.next.epoch) == (0, EPOCH + 1)  # the answer was lost
    other = initialised(coming).next  # somebody else came in between
    assert initialised(other, (PID, EPOCH + 1)) == (FENCED, None)
    assert initialised(other, (PID, EPOCH)) == (FENCED, None)


def test_kip360_fences_who_is_not_current():
    assert initialised(metadata("Empty"), (OTHER, EPOCH)) == (FENCED, None)
    assert initialised(metadata("Empty"), (PID, EPOCH - 1)) == (FENCED, None)
    assert initialised(metadata("Empty"), (PID, EPOCH + 1)) == (FENCED, None)
    assert initialised(metadata("Ongoing"), (OTHER, EPOCH)) == (FENCED, None)


def test_exhausted_epochs_rotate_the_producer_id():
    (code, coming) = initialised(metadata("CompleteCommit", epoch=EPOCH_LAST))
    assert (code, coming.producer_id, coming.epoch, coming.previous_producer_id) == (0, SPARE, 0, PID)
    (code, coming) = initialised(metadata("Empty", epoch=EPOCH_LAST), (PID, EPOCH_LAST))
    assert (code, coming.producer_id, coming.epoch, coming.last_epoch) == (0, SPARE, 0, EPOCH_LAST)
    again = initialised(coming, (PID, EPOCH_LAST))  # the answer was lost
    assert (again.code, again.next.producer_id, again.next.epoch) == (0, SPARE, 0)
    assert initialised(coming, (PID, EPOCH)) == (FENCED, None)


def test_fencing_at_the_last_epoch_is_followed_by_a_rotation():
    now = metadata(epoch=EPOCH_LAST)
    (_, coming) = initialised(now)
    assert (coming.epoch, coming.next_producer_id) == (EPOCH_MAX, -1)
    (code, fresh) = initialised(rules.complete(coming, NOW))
    assert (code, fresh.producer_id, fresh.epoch) == (0, SPARE, 0)
    (_, coming) = initialised(replace(now, client_version=TV2))
    assert (coming.epoch, coming.next_producer_id) == (EPOCH_MAX, SPARE)
    after = rules.complete(coming, NOW)
    assert (after.producer_id, after.epoch) == (SPARE, 0)


def test_labels_are_kafkas():
    assert [state.label for state in TransactionState] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip
