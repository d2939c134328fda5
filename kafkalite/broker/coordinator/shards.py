"""The life of the partitions that a coordinator's state is kept in, the same for groups and for transactions.

    alone       start ─▶ loading (COORDINATOR_LOAD_IN_PROGRESS) ─▶ serving ─▶ stop (COORDINATOR_NOT_AVAILABLE)
    a cluster   each partition is read when it is led here and dropped when it no longer is: see `led`

A partition that cannot be read keeps its owners (groups, transactional ids) from being served, and no others.

Source: CoordinatorRuntime of Kafka 4.1, which both of its coordinators use.
Thread rule: any thread may ask; start, coordinate_led and stop belong to whoever starts the broker.
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
    """What a coordinator knows, by partition."""

    def read_log(self, log: PartitionLog, home: ShardEpoch | None) -> Callable[[], object]:
        """Replays a partition, and returns what makes known what it says. May block. `home`: in a cluster, the leader
        epoch that it is read in."""

    def begin_partition(self, number: int) -> None:
        """In a cluster: it is known, and about to be served. What has to be under way by then begins."""

    def drop_partition(self, number: int) -> None:
        """In a cluster: forgets what it says; requests that wait are answered with NOT_COORDINATOR."""


class Shards:
    """The partitions of one coordinator: whether they are served, and how they come and go."""

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
        """Whether there is nothing to load, so that all is served from now on."""
        if any(log.log_end_offset for log in self.log.partitions):
            return False
        self.loaded.set()
        return True

    def start_loading(self, name: str, load: Callable[[], object]) -> None:
        """Runs `load`, which calls `load_all`, on a thread of this name."""
        self._loader = self.executors.job(name, load)

    def coordinate_led(self, topics: AssignedTopics) -> None:
        """In a cluster: serves those partitions from now on that are led here. Once, after start."""
        from kafkalite.broker.coordinator.shard_leadership import LedPartitions

        self.log.led = LedPartitions(self.log.name, self, self.executors)
        self.log.led.start()
        topics.leadership[self.log.name] = self.log.led.take

    def stop(self) -> None:
        """Nothing is served from now on. Returns when nothing is loaded any more."""
        self.stopped = True
        if self.log.led is not None:
            self.log.led.stop()
        if self._loader is not None:
            self._loader.join()

    def load_all(self, failed: Callable[[int, Exception], object]) -> bool:
        """Reads all partitions, at start; `failed` is called for one that cannot be read. False: the broker stops."""
        for number, log in enumerate(self.log.partitions):
            if self.stopped:
                return False
            try:
                self._state.read_log(log, None)()
            except Exception as error:  # noqa: BLE001 - whatever it is, what other partitions keep can be served
                self._unreadable.add(number)
                failed(number, error)
        return True

    # --- what is served -----------------------------------------------------------------------------------------------

    def wait_loaded(self, timeout_s: float) -> bool:
        """Whether loading ended in time."""
        return self.loaded.wait(timeout_s)

    def error_of(self, owner: str) -> int:
        """Why nothing can be said of an owner now, 0 when it can."""
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
        """Why not all owners can be listed now, 0 when they can."""
        if self.stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.log.led is not None and self.log.led.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return 0 if self.loaded.is_set() else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def home_of(self, owner: str) -> ShardEpoch | None:
        """In a cluster: where an owner is kept, and in which leader epoch it is served now."""
        return None if self.log.led is None else self.log.home_of(owner)

    # --- see `led.Coordinator` ----------------------------------------------------------------------------------------

    def read_partition(self, number: int) -> Callable[[], object]:
        """See `led.Coordinator`."""
        assert self.log.led is not None, "in a cluster alone"
        return self._state.read_log(self.log.partitions[number], ShardEpoch(number, self.log.led.epoch_of(number)))

    def when_read(self, number: int, epoch: int, callback: Callable[[int], object]) -> None:
        """See `led.Coordinator`."""
        self.log.when_read(number, epoch, callback)

    def begin_partition(self, number: int) -> None:
        """See `led.Coordinator`."""
        self._state.begin_partition(number)

    def drop_partition(self, number: int) -> None:
        """See `led.Coordinator`."""
        self._state.drop_partition(number)
