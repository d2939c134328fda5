"""In a cluster: which partitions of a coordinator's topic are led here, and so whose keys it answers for.

    take(partition, epoch) ─▶ LOADING ─▶ read on a thread of its own ─▶ safe ─▶ installed ─▶ begun ─▶ ACTIVE
    take(partition, None)  ─▶ unloaded at once, whatever it was

A partition is read to its end, and nothing of it is known before all was read and every replica in sync has it: what an
earlier leader wrote last may not have been told to anybody, and is told by this one when it cannot go any more. What
was read for an epoch that is over is not installed. One that cannot be read stays unserved until its next election.

What is known of a partition belongs to the epoch in which it was read, its `ShardEpoch`, and is written in that
alone: who has found something before an election does not write it after that, over what was read then.

Elections and resignations come in the order of the metadata that says so, from one thread: a resignation always means
the epoch that was taken last, and so does a deletion, which has none.

Source: CoordinatorRuntime of Kafka 4.1, which serves already while the high watermark has yet to pass what was read.
Thread rule: `take` belongs to the metadata thread, everything else to any. The lock is held while what was read is
installed: it is above the coordinator's own.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from kafkalite.base.logging import fields
from kafkalite.broker.coordinator.shard_epoch import NO_EPOCH, ShardEpoch
from kafkalite.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.base.executors import Executors

logger = logging.getLogger(__name__)

_LOADING: Final = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_UNREADABLE: Final = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Coordinator(Protocol):
    """Whose partitions they are."""

    def read_partition(self, number: int) -> Callable[[], object]:
        """Reads one to its end, and returns what makes known what it says. May block."""

    def when_read(self, number: int, epoch: int, callback: Callable[[int], object]) -> None:
        """See `StateLog.when_read`."""

    def begin_partition(self, number: int) -> None:
        """It is known, and about to be served: what has to be under way by then begins."""

    def drop_partition(self, number: int) -> None:
        """Forgets what it says; who waits is told to look for the coordinator again."""


class _Led:
    """A partition that is led here."""

    __slots__ = ("code", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.code = _LOADING


class LedPartitions:
    """See the module. `name` is the topic's."""

    def __init__(self, name: str, coordinator: Coordinator, executors: Executors) -> None:
        self._name = name
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._led: dict[int, _Led] = {}  # guarded by _lock; read without it
        self._to_do: deque[Callable[[], object]] = deque()  # guarded by the worker's lock
        self._worker = executors.worker(f"kafkalite-load-{name.strip('_')}", self._turn)

    def start(self) -> None:
        """Begins to load what is taken."""
        self._worker.start()

    def stop(self) -> None:
        """Returns when nothing is loaded any more."""
        with self._worker.lock:
            self._to_do.clear()
        self._worker.stop()

    def error_of(self, number: int) -> int:
        """Why nothing can be said of the keys of a partition now, 0 when it can."""
        led = self._led.get(number)
        return int(ErrorCode.NOT_COORDINATOR) if led is None else led.code

    def epoch_of(self, number: int) -> int:
        """The leader epoch in which a partition is led here; -1: it is not."""
        led = self._led.get(number)
        return -1 if led is None else led.epoch

    def home(self, number: int) -> ShardEpoch:
        """Where what is found or begun in a partition now belongs."""
        led = self._led.get(number)
        return ShardEpoch(number, NO_EPOCH if led is None or led.code else led.epoch)

    @property
    def loading(self) -> bool:
        """Whether some partition is read now."""
        return any(led.code == _LOADING for led in list(self._led.values()))

    def take(self, number: int, epoch: int | None) -> None:
        """A partition is led here from now on, in this epoch, or (None) not any longer."""
        with self._lock:
            before = self._led.pop(number, None)
            now = None
            if epoch is not None:
                now = self._led[number] = _Led(epoch)
        if before is not None:
            self._coordinator.drop_partition(number)
        if now is not None:
            self._soon(functools.partial(self._load, number, now))

    def _soon(self, step: Callable[[], object]) -> None:
        with self._worker.lock:
            self._to_do.append(step)
            self._worker.call_locked()

    def _turn(self) -> float | None:
        """One step of one partition; the seconds until the next."""
        with self._worker.lock:
            if not self._to_do:
                return None
            step = self._to_do.popleft()
        step()
        return 0.0

    def _load(self, number: int, led: _Led) -> None:
        if self._led.get(number) is not led:
            return
        try:
            install = self._coordinator.read_partition(number)
            safe = functools.partial(self._when_safe, number, led, install)
            self._coordinator.when_read(number, led.epoch, safe)
        except Exception as error:  # whatever it is, the other partitions can be served
            led.code = _UNREADABLE
            if isinstance(error, KafkaError) and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return  # this epoch is over, which will be told
            logger.exception(
                "could not load a coordinator partition; it is unavailable", extra=fields(log=f"{self._name}-{number}")
            )

    def _when_safe(self, number: int, led: _Led, install: Callable[[], object], code: int) -> None:
        self._soon(functools.partial(self._install, number, led, install, code))

    def _install(self, number: int, led: _Led, install: Callable[[], object], code: int) -> None:
        try:
            with self._lock:
                if self._led.get(number) is not led:
                    return
                if code:  # this epoch is over, which will be told, or the disk has failed
                    led.code = _UNREADABLE
                    return
                install()
            self._coordinator.begin_partition(number)
            led.code = 0
        except Exception:  # as where it is read
            led.code = _UNREADABLE
            logger.exception(
                "could not take over a coordinator partition; it is unavailable",
                extra=fields(log=f"{self._name}-{number}"),
            )
