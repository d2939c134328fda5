"""Run all timers of the coordinators, such as session timeouts, on one thread and one clock.

    set(delay) ─▶ heap of (due, timer) ─▶ run_due ─▶ function()

After a pause of the broker, timers with `awaits_client` get a grace period. Without it, all members of a group could
lose their sessions at once.

Thread rule: any thread may set and cancel timers. The timer thread calls functions without a lock. A timer may be
set again after it fired and before its function runs. So the function has to check whether it is still due.
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
"""The longest sleep in seconds, so that a clock change is noticed."""
CANCELLED_KEPT_MIN: Final = 256
"""Entries of cancelled timers that may stay in the heap."""
PAUSE_S_MIN: Final = 0.5
"""A turn that is late by this much shows that the process was paused: by a signal, a suspended machine or overload."""
GRACE_S_MAX: Final = 3.0
"""Grace period for clients after a pause, unless it exceeds half of the timeout.

The default heartbeat.interval.ms of Java clients. After a pause, a client that gets a response first sends a heartbeat.
"""


class Timer:
    """Calls a function once, at a later time, unless it is set again or cancelled. `TimerQueue.timer` creates it."""

    __slots__ = ("_queue", "awaits_client", "due", "entry_due", "function", "grace_s", "heard_since")

    def __init__(self, queue: TimerQueue, function: Callable[[], object], *, awaits_client: bool) -> None:
        self._queue = queue
        self.function = function
        self.awaits_client = awaits_client
        self.grace_s = 0.0  # 0 after it was used, so that an overloaded broker still expires sessions
        self.heard_since = -math.inf  # the end of the last pause when it was set
        self.entry_due: float | None = None  # of its entry in the queue, whose lock guards it
        self.due: float | None = None

    @property
    def armed(self) -> bool:
        """Whether the timer is set and has not fired yet."""
        return self.due is not None

    def set(self, delay_s: float) -> None:
        """Fire `delay_s` seconds from now, instead of at the time that was set before."""
        self._queue.set(self, delay_s)

    def heard(self, delay_s: float, *, one_at_a_time: bool) -> None:
        """Restart the timer because its client sent a request: fire `delay_s` seconds from now.

        After a pause of the broker that was longer than half of the delay, the request may be from before the pause.
        Such a request does not restart the timer; the timer only waits for the end of the grace period. The member may
        no longer exist, since librdkafka rejoins as another member, and the group should not wait long for it.

        With `one_at_a_time`, the client sends no other request before the response to this one. So its next request is
        certainly from after the pause.
        """
        self._queue.set(self, delay_s, heard=True, proves=one_at_a_time)

    def cancel(self) -> None:
        """Do not fire. If the function is already running, it continues."""
        self.due = None
        if self.entry_due is not None:
            self._queue.note_cancelled()


class TimerQueue:
    """The timers of the coordinators.

    Most timers are set again before they are due, for example by each heartbeat. A later time changes only the timer.
    Its heap entry keeps the old time, and is pushed again at that time.

    A test with threaded=False advances the clock and calls `run_due`.
    """

    def __init__(self, clock: Clock, *, threaded: bool = True, executors: Executors = THREADS) -> None:
        self.clock = clock
        self._worker = executors.worker("kafkalite-timers", self._turn)
        self._lock = self._worker.lock
        self._heap: list[tuple[float, int, Timer]] = []  # guarded by _lock, as what follows
        self._cancelled = 0  # timers cancelled since the last purge; an estimate, since some were set again
        self._numbers = itertools.count()
        self._started = not threaded  # or never will be
        self._stopping = False
        self._turn_due = math.inf  # guarded by _lock, as the next
        self._resumed = -math.inf
        self._stood_s = 0.0

    def timer(self, function: Callable[[], object], *, awaits_client: bool = False) -> Timer:
        """Return a new timer, which is not set. With `awaits_client`, a pause of the broker extends it."""
        return Timer(self, function, awaits_client=awaits_client)

    def set(self, timer: Timer, delay_s: float, *, heard: bool = False, proves: bool = True) -> None:
        """Set a timer, for `Timer.set` and `Timer.heard`."""
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
        """Fire the timers that are due; return the seconds until the next timer is due, None if no timer is set."""
        fired: list[Timer] = []
        with self._lock:
            now = self.clock.monotonic()
            while self._heap and self._heap[0][0] <= now:
                due, _, timer = heapq.heappop(self._heap)
                if due != timer.entry_due:
                    continue  # set to an earlier time meanwhile, which has its own entry
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
        """Stop firing; return when the thread has ended."""
        with self._lock:
            self._stopping = True
            self._heap.clear()
        self._worker.stop()

    def stopping(self) -> bool:
        """Whether the queue was stopped."""
        return self._stopping

    def _push_locked(self, timer: Timer, due: float) -> None:
        timer.entry_due = due
        heapq.heappush(self._heap, (due, next(self._numbers), timer))

    def note_cancelled(self) -> None:
        """Count a cancelled timer that still has a heap entry. Remove such entries when they outnumber the others.

        Otherwise they could stay long, since a client may set a timer far ahead.
        """
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
        """Note that a pause has just ended, if `now` is at least PAUSE_S_MIN after `due`."""
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
