"""Load, serve and unload the partitions of a coordinator's topic: `__consumer_offsets` or `__transaction_state`.

    standalone  start ─▶ loading (COORDINATOR_LOAD_IN_PROGRESS) ─▶ serving ─▶ stop (COORDINATOR_NOT_AVAILABLE)
    cluster     a partition is loaded when this broker becomes its leader, and unloaded when it no longer is its leader:
                see `shard_leadership`

If a partition cannot be read, only the groups or transactional ids (*owners*) in this partition are not served.

Source: CoordinatorRuntime of Kafka 4.1, which both of its coordinators use.

Thread rule: any thread may query. `start_loading`, `coordinate_led` and `stop` belong to the thread that starts or
stops the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkalite.broker.coordinator.shard_epoch import ShardEpoch
from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.base.executors import Executors, Job
    from kafkalite.broker.coordinator.state_log import StateLog
    from kafkalite.broker.log.assigned import AssignedTopics
    from kafkalite.broker.log.partition_log import PartitionLog


class ShardState(Protocol):
    """The part of a coordinator that loads and drops its state by partition."""

    def read_log(self, log: PartitionLog, home: ShardEpoch | None) -> Callable[[], object]:
        """Replay a partition, and return a function that installs its state. May block.

        In a cluster, `home` is the partition with the leader epoch in which it is read.
        """

    def begin_partition(self, number: int) -> None:
        """Start work that must run while the partition is served. Its state was just installed. In a cluster only."""

    def drop_partition(self, number: int) -> None:
        """Forget a partition's state. Waiting requests are refused. In a cluster only."""


class Shards:
    """Loads the partitions of one coordinator, and tracks which of them are served."""

    def __init__(self, log: StateLog, state: ShardState, executors: Executors) -> None:
        self.log = log
        self.executors = executors
        self.loaded = executors.event()
        self.stopped = False
        self._state = state
        self._unreadable: set[int] = set()
        self._loader: Job | None = None

    # --- start and stop -----------------------------------------------------------------------------------------------

    def start_empty(self) -> bool:
        """If nothing has to be loaded, serve everything at once and return True; else return False."""
        if any(log.log_end_offset for log in self.log.partitions):
            return False
        self.loaded.set()
        return True

    def start_loading(self, name: str, load: Callable[[], object]) -> None:
        """Call `load` on a new thread with this name; `load` must call `load_all`."""
        self._loader = self.executors.job(name, load)

    def coordinate_led(self, topics: AssignedTopics) -> None:
        """Serve the partitions that this broker leads. Call this once, after start. In a cluster only."""
        from kafkalite.broker.coordinator.shard_leadership import LedPartitions

        self.log.led = LedPartitions(self.log.name, self, self.executors)
        self.log.led.start()
        topics.leadership[self.log.name] = self.log.led.take

    def stop(self) -> None:
        """Stop serving, and return when loading has ended."""
        self.stopped = True
        if self.log.led is not None:
            self.log.led.stop()
        if self._loader is not None:
            self._loader.join()

    def load_all(self, failed: Callable[[int, Exception], object]) -> bool:
        """Load all partitions at a start, and call `failed` for each failure. Return False if the broker stops."""
        for number, log in enumerate(self.log.partitions):
            if self.stopped:
                return False
            try:
                self._state.read_log(log, None)()
            except Exception as error:  # noqa: BLE001 - any error: the other partitions can be served
                self._unreadable.add(number)
                failed(number, error)
        return True

    # --- state of service ---------------------------------------------------------------------------------------------

    def wait_loaded(self, timeout_s: float) -> bool:
        """Wait until loading ends, at most `timeout_s` seconds; return whether it has ended."""
        return self.loaded.wait(timeout_s)

    def error_of(self, owner: str) -> int:
        """Return the error code if an owner (a group or transactional id) cannot be served now, else 0."""
        if self.stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self.loaded.is_set():
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if self.log.led is not None:
            return self.log.led.error_of(self.log.partition_of(owner))
        if self._unreadable and self.log.partition_of(owner) in self._unreadable:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return 0

    @property
    def loading_error(self) -> int:
        """Return the error code if the list of all owners would be incomplete now, else 0."""
        if self.stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.log.led is not None and self.log.led.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return 0 if self.loaded.is_set() else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def home_of(self, owner: str) -> ShardEpoch | None:
        """Return an owner's partition with the leader epoch in which it is served now; None on a standalone broker."""
        return None if self.log.led is None else self.log.home_of(owner)

    # --- implements `shard_leadership.Coordinator` --------------------------------------------------------------------

    def read_partition(self, number: int) -> Callable[[], object]:
        """Replay a partition; return a function that installs its state. May block."""
        assert self.log.led is not None, "in a cluster alone"
        return self._state.read_log(self.log.partitions[number], ShardEpoch(number, self.log.led.epoch_of(number)))

    def when_read(self, number: int, epoch: int, callback: Callable[[int], object]) -> None:
        """Call back when the records that were read from a partition are safe (see `StateLog.when_read`)."""
        self.log.when_read(number, epoch, callback)

    def begin_partition(self, number: int) -> None:
        """Start work that must run while a partition is served. Its state was just installed."""
        self._state.begin_partition(number)

    def drop_partition(self, number: int) -> None:
        """Forget a partition's state; waiting requests are refused."""
        self._state.drop_partition(number)
