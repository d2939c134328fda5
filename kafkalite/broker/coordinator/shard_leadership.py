"""Load the partitions of a coordinator's topic that this broker leads in a cluster, and unload the others.

    take(partition, epoch) ─▶ read ─▶ wait until all records are safe ─▶ install the state ─▶ start timeouts ─▶ serve
    take(partition, None)  ─▶ unload at once

Records are *safe* when they are on every in-sync replica. While a partition is being loaded, requests get
COORDINATOR_LOAD_IN_PROGRESS.

State is installed and written only in the leader epoch in which it was read (`ShardEpoch`). So a request that began
before an election cannot overwrite newer state.

Source: CoordinatorRuntime of Kafka 4.1, which does not wait until the records are safe.

Thread rule: `take` belongs to the metadata thread; any thread may query. Partitions are loaded on a
separate thread. The lock is taken before the coordinator's own lock.
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
    """The coordinator that keeps its state in the partitions."""

    def read_partition(self, number: int) -> Callable[[], object]:
        """Read a partition to its end, and return a function that installs its state. May block."""

    def when_read(self, number: int, epoch: int, callback: Callable[[int], object]) -> None:
        """Call back when the records that were read are safe, as `StateLog.when_read` does."""

    def begin_partition(self, number: int) -> None:
        """Start work that must run while the partition is served, such as timeouts. The partition's state was just
        installed.
        """

    def drop_partition(self, number: int) -> None:
        """Forget a partition's state. Waiting requests are refused, so that clients look for the coordinator again."""


class _Led:
    """A partition that this broker leads."""

    __slots__ = ("code", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.code = _LOADING


class LedPartitions:
    """The partitions of one topic that this broker leads. `name` is the topic's name."""

    def __init__(self, name: str, coordinator: Coordinator, executors: Executors) -> None:
        self._name = name
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._led: dict[int, _Led] = {}  # guarded by _lock; read without it
        self._to_do: deque[Callable[[], object]] = deque()  # guarded by the worker's lock
        self._worker = executors.worker(f"kafkalite-load-{name.strip('_')}", self._turn)

    def start(self) -> None:
        """Start loading the partitions that were taken."""
        self._worker.start()

    def stop(self) -> None:
        """Stop loading; return when the loading thread has ended."""
        with self._worker.lock:
            self._to_do.clear()
        self._worker.stop()

    def error_of(self, number: int) -> int:
        """Return the error code if the groups or transactional ids in a partition cannot be served now, else 0."""
        led = self._led.get(number)
        return int(ErrorCode.NOT_COORDINATOR) if led is None else led.code

    def epoch_of(self, number: int) -> int:
        """Return the leader epoch of a partition that this broker leads, else -1."""
        led = self._led.get(number)
        return -1 if led is None else led.epoch

    def home(self, number: int) -> ShardEpoch:
        """Return the ShardEpoch of a partition: its number and its leader epoch, NO_EPOCH while it is not served."""
        led = self._led.get(number)
        return ShardEpoch(number, NO_EPOCH if led is None or led.code else led.epoch)

    @property
    def loading(self) -> bool:
        """Return whether a partition is being loaded."""
        return any(led.code == _LOADING for led in list(self._led.values()))

    def take(self, number: int, epoch: int | None) -> None:
        """Start to load a partition, because this broker leads it in this epoch from now on. If the epoch is None,
        unload the partition: this broker resigned, or the partition was deleted.

        Calls must be in the order of the metadata log. Each one ends the epoch of the previous call for the partition.
        """
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
        """Do one loading step for one partition; return the seconds until the next step, None if there is none.

        A partition that cannot be read is not served until its next election.
        """
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
        except Exception as error:  # any error: the other partitions can be served
            led.code = _UNREADABLE
            if isinstance(error, KafkaError) and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return  # this epoch is over; `take` reports that
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
                if code:  # this epoch is over, which `take` reports, or the disk has failed
                    led.code = _UNREADABLE
                    return
                install()
            self._coordinator.begin_partition(number)
            led.code = 0
        except Exception:  # any error, as in `_load`
            led.code = _UNREADABLE
            logger.exception(
                "could not take over a coordinator partition; it is unavailable",
                extra=fields(log=f"{self._name}-{number}"),
            )
