"""Every timeout of every group, on one thread and one clock.

    set(delay) ─▶ heap of (due, timer) ─▶ run_due ─▶ function()

A timer is mostly set again before it is due (each heartbeat does). So setting a later time only notes it in the timer;
the entry in the heap stays, and is put back with the new time when it comes up. Entries of timers that were cancelled
go when there are as many of them as of others: a timer may be set as far ahead as a client likes.

A broker that stood still (stopped by a signal, a machine paused or starved) has heard nobody meanwhile, so its own
silence is not its clients': a timer that waits for a client fires a moment later then, when what waits in the sockets
was read. Else all members of a group lose their sessions at once, and come back one by one, a rebalance for each. After
a pause so long that clients may have given up (more than half of their time), the first heartbeat and the commits that
come then may be from before it, of a member that is no more (librdkafka joins as another one): they are worth no more
than that moment, so that a group does not wait long for it.

Thread rule: any thread may set and cancel. Functions run on the timer thread, which is started by the first timer, with
no lock held; one that finds its timer `armed` again was overtaken and has nothing to do. A test that makes the queue
with threaded=False turns its clock and calls `run_due`.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from typing import TYPE_CHECKING, Final

from kafkalite.base.executors import THREADS
from kafkalite.base.logging import RepeatLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.base.clock import Clock
    from kafkalite.base.executors import Executors

logger = RepeatLogger(logging.getLogger(__name__))

SLEEP_S_MAX: Final = 1.0
"""The longest sleep, so that a clock which was turned is noticed."""
CANCELLED_KEPT_MIN: Final = 256
"""So many entries of cancelled timers may stay in the heap."""
PAUSE_S_MIN: Final = 0.5
"""A turn that comes so much later than it was due tells that the process stood still."""
GRACE_S_MAX: Final = 3.0
"""What clients have to be heard after a pause, if it is not more than half of the time they have anyway.

A Java client's usual heartbeat.interval.ms. Its heartbeat is the first thing that it sends when it gets an answer.
"""


class Timer:
    """Something to be done once, later, unless it is set again or cancelled. Made by `TimerQueue.timer`."""

    __slots__ = ("_queue", "awaits_client", "due", "entry_due", "function", "grace_s", "heard_since")

    def __init__(self, queue: TimerQueue, function: Callable[[], object], *, awaits_client: bool) -> None:
        self._queue = queue
        self.function = function
        self.awaits_client = awaits_client
        self.grace_s = 0.0  # 0 when it has had it, so that a broker that is starved all the time ends sessions too
        self.heard_since = -math.inf  # the end of the last pause of ours when it was set
        self.entry_due: float | None = None  # of its entry in the queue, whose lock guards it
        self.due: float | None = None

    @property
    def armed(self) -> bool:
        """Whether it is still to fire."""
        return self.due is not None

    def set(self, delay_s: float) -> None:
        """Fires `delay_s` seconds from now, and not before, whatever was set earlier."""
        self._queue.set(self, delay_s)

    def heard(self, delay_s: float, *, one_at_a_time: bool) -> None:
        """Sets it again as its client was heard.

        One at a time: it sends no other before this is answered, so the next one after a pause was sent after it.
        """
        self._queue.set(self, delay_s, heard=True, proves=one_at_a_time)

    def cancel(self) -> None:
        """Does not fire, unless its function is running already."""
        self.due = None
        if self.entry_due is not None:
            self._queue.note_cancelled()


class TimerQueue:
    """The timers of one coordinator."""

    def __init__(self, clock: Clock, *, threaded: bool = True, executors: Executors = THREADS) -> None:
        self.clock = clock
        self._worker = executors.worker("kafkalite-timers", self._turn)
        self._lock = self._worker.lock
        self._heap: list[tuple[float, int, Timer]] = []  # guarded by _lock, as what follows
        self._cancelled = 0  # timers since the last purge, some of them set again: an estimate
        self._numbers = itertools.count()
        self._started = not threaded  # or never will be
        self._stopping = False
        self._turn_due = math.inf  # guarded by _lock, as the next
        self._resumed = -math.inf
        self._stood_s = 0.0

    def timer(self, function: Callable[[], object], *, awaits_client: bool = False) -> Timer:
        """A timer that is not set yet; whether it counts the silence of a client, which a pause of ours prolongs."""
        return Timer(self, function, awaits_client=awaits_client)

    def set(self, timer: Timer, delay_s: float, *, heard: bool = False, proves: bool = True) -> None:
        """See `Timer.set` and `Timer.heard`."""
        now = self.clock.monotonic()
        due = now + delay_s
        with self._lock:
            if timer.awaits_client:
                self._note_pause_locked(now, self._turn_due)
                timer.grace_s = min(delay_s / 2, GRACE_S_MAX)
                moment_ends = self._resumed + timer.grace_s
                may_be_old = heard and now < moment_ends and self._stood_s > delay_s / 2
                if may_be_old and not (proves and timer.heard_since == self._resumed):
                    due = moment_ends if timer.due is None else max(timer.due, moment_ends)
                if proves:
                    timer.heard_since = self._resumed
            timer.due = due
            if timer.entry_due is not None and timer.entry_due <= due:
                return
            self._push_locked(timer, due)
            if self._stopping:
                return
            if not self._started:
                self._started = True
                self._worker.start()
            elif self._heap[0][2] is timer:
                self._worker.call_locked()

    def run_due(self) -> float | None:
        """Fires what is due; seconds until the next may be, None when there is none."""
        fired: list[Timer] = []
        with self._lock:
            now = self.clock.monotonic()
            while self._heap and self._heap[0][0] <= now:
                due, _, timer = heapq.heappop(self._heap)
                if due != timer.entry_due:
                    continue  # set to an earlier time meanwhile, which has an entry of its own
                timer.entry_due = None
                if timer.due is None:
                    continue
                if now < self._resumed + timer.grace_s:
                    timer.due = max(timer.due, self._resumed + timer.grace_s)
                    timer.grace_s = 0.0
                if timer.due > now:
                    self._push_locked(timer, timer.due)
                    continue
                timer.due = None
                fired.append(timer)
        for timer in fired:
            try:
                timer.function()
            except Exception:
                logger.exception("a timer callback failed")
        with self._lock:
            return max(0.0, self._heap[0][0] - self.clock.monotonic()) if self._heap else None

    def stop(self) -> None:
        """Fires nothing more; returns when the thread has ended."""
        with self._lock:
            self._stopping = True
            self._heap.clear()
        self._worker.stop()

    def stopping(self) -> bool:
        """Whether nothing fires any more."""
        return self._stopping

    def _push_locked(self, timer: Timer, due: float) -> None:
        timer.entry_due = due
        heapq.heappush(self._heap, (due, next(self._numbers), timer))

    def note_cancelled(self) -> None:
        """A timer that has an entry was cancelled."""
        self._cancelled += 1
        if self._cancelled > max(CANCELLED_KEPT_MIN, len(self._heap) // 2):
            with self._lock:
                self._purge_locked()

    def _purge_locked(self) -> None:
        kept = []
        for entry in self._heap:
            if entry[2].due is not None:
                kept.append(entry)
            elif entry[0] == entry[2].entry_due:
                entry[2].entry_due = None
        heapq.heapify(kept)
        self._heap = kept
        self._cancelled = 0

    def _note_pause_locked(self, now: float, due: float) -> None:
        """If it is far beyond the time at which something was due here, the process stood still until now."""
        if now > due + PAUSE_S_MIN:
            self._resumed = now
            self._stood_s = now - due
            self._turn_due = math.inf

    def _turn(self) -> float | None:
        if self._stopping:
            return None
        began = self.clock.monotonic()
        with self._lock:
            self._note_pause_locked(began, self._turn_due)
            self._turn_due = math.inf
        rest_s = self.run_due()
        delay_s = SLEEP_S_MAX if rest_s is None else min(rest_s, SLEEP_S_MAX)
        with self._lock:
            now = self.clock.monotonic()
            self._note_pause_locked(now, began)
            self._turn_due = now + delay_s
        return delay_s
