"""The in-sync set as a leader proposes it and the controllers answer: each response, both orders, random runs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from kafkalite.broker.cluster.in_sync import Answer, InSync, Proposal, Verdict
from kafkalite.errors import ErrorCode
from tests.kit.harness.samples import sample

LEADER = 1


def led(isr: tuple[int, ...] = (1, 2), *, leader_epoch: int = 5, partition_epoch: int = 10) -> InSync:
    found = InSync()
    assert found.told(leader_epoch, partition_epoch, isr)
    return found


def proposed(in_sync: InSync, joining: tuple[int, ...] = (3,), leaving: tuple[int, ...] = ()) -> Proposal:
    proposal = in_sync.propose(joining, leaving)
    assert proposal is not None
    return proposal


def test_one_that_joins_is_behind_those_that_are_in_sync() -> None:
    in_sync = led()
    assert proposed(in_sync) == Proposal(5, 10, (1, 2, 3))
    assert in_sync.maximal == {1, 2, 3}
    assert in_sync.isr == (1, 2)


def test_those_that_leave_count_until_the_controllers_have_said_so() -> None:
    in_sync = led((1, 2, 3))
    assert proposed(in_sync, (), (3, 2)).isr == (1,)
    assert in_sync.maximal == {1, 2, 3}


def test_nothing_is_proposed_while_something_is_or_where_nothing_changes() -> None:
    in_sync = led()
    assert in_sync.propose((2,), (7,)) is None
    proposed(in_sync)
    assert in_sync.propose((4,), ()) is None


def test_an_answer_is_taken_and_its_metadata_changes_nothing_then() -> None:
    in_sync = led()
    proposal = proposed(in_sync)
    assert in_sync.answered(proposal, Answer(0, 5, 11, (1, 2, 3))) is Verdict.TAKEN
    assert (in_sync.isr, in_sync.partition_epoch, in_sync.pending) == ((1, 2, 3), 11, None)
    later = proposed(in_sync, (4,))
    assert not in_sync.told(5, 11, (1, 2, 3))
    assert in_sync.pending is later, "what is told a second time does not take back what was proposed since"


def test_metadata_that_comes_first_makes_the_answer_stale() -> None:
    in_sync = led()
    proposal = proposed(in_sync)
    assert in_sync.told(5, 11, (1, 2, 3))
    later = proposed(in_sync, (4,))
    assert in_sync.answered(proposal, Answer(0, 5, 11, (1, 2, 3))) is Verdict.STALE
    assert in_sync.pending is later


def test_an_answer_without_a_change_has_the_epoch_that_is_known() -> None:
    in_sync = led()
    assert in_sync.answered(proposed(in_sync), Answer(0, 5, 10, (1, 2))) is Verdict.TAKEN
    assert in_sync.pending is None


@pytest.mark.parametrize("answer", [Answer(0, 4, 11, (1,)), Answer(0, 6, 11, (1,)), Answer(0, 5, 9, (1,))])
def test_an_answer_of_another_epoch_leaves_it_to_metadata(answer: Answer) -> None:
    in_sync = led()
    assert in_sync.answered(proposed(in_sync), answer) is Verdict.WAITS
    assert in_sync.maximal == {1, 2, 3}
    assert in_sync.told(6, 12, (1, 3))
    assert in_sync.maximal == {1, 3}


@pytest.mark.parametrize("code", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_what_was_not_done_is_dropped_and_may_be_proposed_again(code: ErrorCode) -> None:
    in_sync = led()
    assert in_sync.answered(proposed(in_sync), Answer(code)) is Verdict.DROPPED
    assert (in_sync.isr, in_sync.maximal) == ((1, 2), {1, 2})
    assert proposed(in_sync).partition_epoch == 10


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_what_the_controllers_know_better_stays_pending_until_metadata_tells(code: ErrorCode) -> None:
    in_sync = led()
    proposal = proposed(in_sync)
    assert in_sync.answered(proposal, Answer(code)) is Verdict.WAITS
    assert in_sync.pending is proposal
    assert in_sync.maximal == {1, 2, 3}
    assert in_sync.told(5, 11, (1,))
    assert (in_sync.pending, in_sync.maximal) == (None, {1})


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT, 999]
)
def test_what_says_nothing_is_sent_again(code: int) -> None:
    in_sync = led()
    proposal = proposed(in_sync)
    assert in_sync.answered(proposal, Answer(code)) is Verdict.AGAIN
    assert in_sync.pending is proposal


def test_older_metadata_is_no_news() -> None:
    in_sync = led()
    assert not in_sync.told(5, 9, (1,))
    assert not in_sync.told(4, 12, (1,))
    assert in_sync.isr == (1, 2)
    assert in_sync.told(6, 12, (1,))


# --- random runs: a leader, a controller that compares and sets, a network that delays and loses ----------------------


@dataclass
class Controller:
    """One partition, as its controllers decide it; `log` are the records that metadata brings."""

    leader_epoch: int = 0
    partition_epoch: int = 0
    isr: tuple[int, ...] = (LEADER,)
    log: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=lambda: [(0, 0, (LEADER,))])

    def decide(self, isr: tuple[int, ...], *, elects: bool = False) -> None:
        self.leader_epoch += elects
        self.partition_epoch += 1
        self.isr = isr
        self.log.append((self.leader_epoch, self.partition_epoch, isr))

    def asked(self, proposal: Proposal, draw: random.Random) -> Answer:
        if draw.random() < 0.1:
            return Answer(draw.choice([ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR]))
        if draw.random() < 0.1:
            return Answer(draw.choice([ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED]))
        if proposal.leader_epoch != self.leader_epoch:
            return Answer(ErrorCode.FENCED_LEADER_EPOCH)
        if proposal.partition_epoch != self.partition_epoch:
            return Answer(ErrorCode.INVALID_UPDATE_VERSION)
        if proposal.isr != self.isr:
            self.decide(proposal.isr)
        return Answer(0, self.leader_epoch, self.partition_epoch, self.isr)


@pytest.mark.parametrize("seed", sample(range(40), 10))
def test_each_electable_replica_is_in_the_maximal_isr_and_both_sides_converge(seed: int) -> None:
    draw = random.Random(seed)
    controller, leader = Controller(), InSync()
    applied = 0
    waiting: Proposal | None = None  # to be sent
    answers: list[tuple[Proposal, Answer]] = []

    def apply_one() -> None:
        nonlocal applied
        if applied < len(controller.log):
            leader.told(*controller.log[applied])
            applied += 1

    def answer_one() -> None:
        nonlocal waiting
        proposal, answer = answers.pop(0)
        if leader.answered(proposal, answer) is Verdict.AGAIN:
            waiting = proposal

    def send() -> None:
        nonlocal waiting
        assert waiting is not None
        lost_before, lost_after = draw.random() < 0.1, draw.random() < 0.1
        if lost_before:
            return
        answer = controller.asked(waiting, draw)
        if not lost_after:
            answers.append((waiting, answer))
            waiting = None

    apply_one()
    for _ in range(300):
        act = draw.random()
        if act < 0.3:
            some = draw.sample(range(2, 6), draw.randint(0, 2))
            proposal = leader.propose(some, ()) if draw.random() < 0.5 else leader.propose((), some)
            waiting = proposal or waiting
        elif act < 0.5 and waiting is not None and not answers:
            send()
        elif act < 0.7 and answers:
            answer_one()
        elif act < 0.93:
            apply_one()
        elif controller.leader_epoch == leader.leader_epoch:
            gone = draw.choice([0, 2, 3, 4, 5])
            controller.decide(tuple(each for each in controller.isr if each != gone), elects=draw.random() < 0.5)
        # Only a replica that the controllers have in sync can be elected, and the leader of that epoch counts it.
        if leader.leader_epoch == controller.leader_epoch:
            assert {*controller.isr} <= leader.maximal
    while applied < len(controller.log):
        apply_one()
    while leader.pending is not None:
        if waiting is leader.pending and not answers:
            send()
        elif answers:
            answer_one()
        else:
            waiting = leader.pending
        while applied < len(controller.log):
            apply_one()
    assert (leader.isr, leader.partition_epoch) == (controller.isr, controller.partition_epoch)
