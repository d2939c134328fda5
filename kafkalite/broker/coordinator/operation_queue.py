"""What a group of the newer protocol (KIP-848) does, whoever asks it to: turns, and the changes that they make.

    a request, a timeout, a topic that changed ─▶ queue ─▶ turn: plays all that wait on the staged state
                                                              │ what changed, as one write
                                                              ▼
                          answers, timers ◀── durable ◀── staged becomes durable (or is thrown away)

What changes nothing is answered at once. What does is answered when the change is on the disk; what comes meanwhile
waits and is played as the next turn, so that a burst of joins costs few writes, and nobody is told what a crash could
take back. A turn whose write fails has not happened: its callers are told to look again.

Thread rule: as `base` says. Turns run under the lock, on the thread of whoever came, or on the I/O pool.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING

from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator.base import is_too_large, write_error
from kafkalite.broker.coordinator.consumer_environment import Move
from kafkalite.broker.coordinator.membership import Membership
from kafkalite.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.coordinator.consumer_state import ConsumerState
    from kafkalite.broker.coordinator.staged_changes import Successor

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)


class OperationQueue(Membership):
    """See the module."""

    def _ask(self, move: Move) -> None:
        """Plays somebody's request when its turn comes."""
        with self.changing():
            if self._dead:
                self._refuse_locked(move, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                self._deliver_locked(move)
            else:
                self._submit_locked(move)

    def _submit_locked(self, move: Move) -> None:
        self._queue.append(move)
        if self._writing is None:
            self._turn_locked()

    def _turn_locked(self) -> None:
        """Plays all that waits; one write for all that it changed."""
        moves, self._queue = self._queue, []
        try:
            for place, move in enumerate(moves, 1):
                self._play_locked(move)
                if self._successor is not None:  # what comes behind is for the group that this one becomes
                    moves, self._queue = moves[:place], moves[place:]
                    break
        except Exception:
            logger.exception("a group's turn failed and is taken back", extra=fields(group=self.group_id))
            self._staged, self._records, self._successor = self._durable, [], None
            self._count_again_locked()
            self._end_locked(moves, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        records, self._records = self._records, []
        if not records:
            self._end_locked(moves, 0)
            return
        self._writing = moves
        self._environment.write(self.group_id, self._preface + records, self._turn_stored)

    def _play_locked(self, move: Move) -> None:
        try:
            move.response = move.play()
        except KafkaError as error:
            self._refuse_locked(move, error.code, str(error))
        else:
            self._heard_locked(move)

    def _turn_stored(self, code: int) -> None:
        with self.changing():
            moves, self._writing = self._writing or [], None
            successor, self._successor = self._successor, None
            if code:
                self._staged = self._durable
                self._count_again_locked()
                if not self._dead:
                    self._set_again_locked()
            elif successor is None:
                before, self._durable = self._durable, self._staged
                self._preface = []
                self._set_timers_locked(before)
            if code and len(moves) > 1:  # whose fault it was cannot be told: each may try again, alone if need be
                self._end_locked(moves, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            elif is_too_large(code):  # Kafka answers UNKNOWN_SERVER_ERROR, which does not say whose fault it is
                self._end_locked(moves, ErrorCode.INVALID_REQUEST, "the member does not fit into the group's log")
            else:
                self._end_locked(moves, write_error(code))
            if not code and successor is not None and not self._dead:
                self._give_way_locked(successor)
            if self._queue:
                self.later_locked(lambda: self._consumers.run_soon(self._next_turn))

    def _give_way_locked(self, successor: Successor) -> None:
        """The classic group begins; what was asked meanwhile is asked of it."""
        self._consumers.succeed(self, successor.group)
        successor.group.begin_locked(successor.rebalances)
        moves, self._queue = self._queue, []
        for move in moves:
            move.elsewhere = True
        self._end_locked(moves, 0)

    def _next_turn(self) -> None:
        with self.changing():
            if self._queue and self._writing is None:
                self._turn_locked()

    def _end_locked(self, moves: list[Move], code: int, text: str | None = None) -> None:
        for move in moves:
            if code:
                self._refuse_locked(move, code, text)
            else:
                self._heard_locked(move)
                if move.ends is not None and not move.refused and not move.elsewhere:
                    move.ends(move.response)
            self._deliver_locked(move)

    def _refuse_locked(self, move: Move, code: int, text: str | None = None) -> None:
        move.refused = True
        if move.refuse is not None:
            move.response = move.refuse(code, text)

    def _heard_locked(self, move: Move) -> None:
        if move.said_by is not None and not move.refused and not move.elsewhere:
            self._touch_locked(move.said_by(move.response))

    def _deliver_locked(self, move: Move) -> None:
        answer, again = move.answer, move.again
        if answer is None:
            return
        if move.elsewhere and not move.refused and again is not None:
            self.later_locked(lambda: self._consumers.run_soon(lambda: again().then(answer.complete)))
            return
        if move.response is None:
            self._refuse_locked(move, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        response = move.response
        self.later_locked(lambda: answer.complete(response))

    def _play_later(self, play: Callable[[], None]) -> None:
        with self.changing():
            if not self._dead:
                self._submit_locked(Move(play))

    @abstractmethod
    def _touch_locked(self, member_id: str) -> None:
        """A member was heard of, and what it said was good."""

    @abstractmethod
    def _set_timers_locked(self, before: ConsumerState) -> None:
        """Something else is durable now: what is to be waited for has changed with it."""

    @abstractmethod
    def _set_again_locked(self) -> None:
        """What timers have found to be over could not be written down: they look again."""

    def topic_changed(self, name: str) -> None:
        """A topic came, went, or has more partitions."""
        with self.changing():
            staged = self._staged
            if not self._dead and (self._queue or self._writing or staged.expressions or name in staged.subscribed()):
                self._submit_locked(Move(lambda: self._play_topics({name})))
