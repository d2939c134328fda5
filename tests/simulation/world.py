"""Brokers' parts and their clients in one simulation: logs, groups, transactions, on disks in memory.

    with World(seed) as world:
        node = world.node("one", log_segment_bytes=2000)
        world.client("producer", program)       a generator: yields a Deferred and is given its response, or seconds
        world.cut_power_at(node, change)        the power goes before a change of the disk, and comes back
        world.run(seconds)

A client that waits for an answer when the power goes is thrown Lost: what it asked for may have happened.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Self

from kafkalite.base.deferred import Deferred
from kafkalite.broker.coordinator.groups import GroupCoordinator
from kafkalite.broker.coordinator.producer_ids import ProducerIds
from kafkalite.broker.coordinator.timer_queue import TimerQueue
from kafkalite.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafkalite.broker.log.manager import LogManager
from kafkalite.errors import StartupError
from kafkalite.settings.broker import BrokerConfig
from tests.kit.harness import seams
from tests.simulation.disk import SimulatedDisk
from tests.simulation.scheduler import Scheduler, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kafkalite.broker.log.partition_log import PartitionLog

    Program = Callable[["Client"], Generator[Any, Any, None]]

logger = logging.getLogger(__name__)

DEFAULTS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.cleaner.backoff.ms": "2000",
    "log.cleaner.dedupe.buffer.size": "1048576",
}


class Lost(Exception):
    """The broker is gone, and with it the answer."""


class Client:
    """A program that talks to nodes, one request at a time."""

    def __init__(self, world: World, name: str, program: Program, node: Node | None = None) -> None:
        self.world = world
        self.node = node
        self.name = name
        self.draw = world.scheduler.draw
        self.done = False
        self._waits_for: Deferred[Any] | None = None
        self._response: Any = None
        self._error: Exception | None = None
        self._program = program(self)
        self._worker = Site(world.scheduler, name).worker("client", self._turn)
        self._worker.start()

    def _turn(self) -> float | None:
        error, self._error = self._error, None
        response, self._response = self._response, None
        self._waits_for = None
        try:
            wanted = self._program.send(response) if error is None else self._program.throw(error)
        except StopIteration:
            self.done = True
            self._worker.stop()
            return None
        if not isinstance(wanted, Deferred):
            return float(wanted)
        self._waits_for = wanted
        wanted.then(lambda answer: self._answered(wanted, answer))
        return None

    def _answered(self, deferred: Deferred[Any], response: Any) -> None:
        if self._waits_for is deferred:
            self._response = response
            self._worker.call_locked()

    def lose(self) -> None:
        """The connection is gone."""
        if self._waits_for is not None:
            self._waits_for = None
            self._error = Lost()
            self._worker.call_locked()


class Node:
    """One broker without its network: everything under `log` and `coordinator`."""

    logs: LogManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator

    def __init__(self, world: World, name: str, settings: dict[str, str]) -> None:
        self.world = world
        self.name = name
        self.root = f"/{name}"
        self.config = BrokerConfig.load(None, {**DEFAULTS, **settings, "log.dirs": f"{self.root}/data"})
        self.changes = 0
        self.cut_at: int | None = None
        self.left = "durable"
        self.up = False
        self.starts = 0
        self.fatal: list[BaseException] = []
        self._watch = Site(world.scheduler, name).worker("power", self._restart)
        world.disks.mount(self.root)

    def start(self) -> None:
        """As Broker.start does it. StartupError."""
        self.starts += 1
        site = self.site = Site(self.world.scheduler, f"{self.name}.{self.starts}")
        clock = self.world.scheduler.clock
        self.logs = LogManager(self.config, clock, on_fatal=self.fatal.append, executors=site)
        self.logs.open()
        pool: Any = site
        timers = TimerQueue(clock, executors=site)
        self.groups = GroupCoordinator(self.config, self.logs, pool, clock, timers, executors=site)
        self.groups.start()
        self.transactions = TransactionCoordinator(
            self.config, self.logs, pool, clock, self.groups, ProducerIds(self.logs), timers, executors=site
        )
        self.transactions.start()
        self.up = True

    def stop(self) -> None:
        """A clean stop."""
        self.up = False
        self.transactions.stop()
        self.groups.stop()
        self.logs.close()
        self.site.kill()

    def pool(self, work: Callable[[], Any]) -> Deferred[Any]:
        """The answer of something that blocks, which handlers do on the I/O pool; an exception is an answer."""
        answer: Deferred[Any] = Deferred()

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - the client looks at it
                result = error
            answer.complete(result)

        self.site.submit(run)
        return answer

    def log(self, topic: str, partition: int) -> PartitionLog:
        """KeyError where there is none."""
        logs: dict[int, PartitionLog] = dict(enumerate(self.logs.topics[topic].partitions))
        return logs[partition]

    def note(self, what: str, path: str, size: int) -> None:
        """A change of its disk is about to happen."""
        self.changes += 1
        self.world.scheduler.note("disk", what, path, size)
        if self.cut_at is not None and self.changes >= self.cut_at:
            self.cut_power()

    def cut_power(self) -> None:
        """Now. What runs at this moment finds a disk that fails; nothing else of it runs any more."""
        self.cut_at = None
        self.up = False
        self.world.scheduler.note(self.name, "loses power")
        self.world.disks.power_off(self.root)
        self.site.kill()
        for client in self.world.clients:
            if client.node in (None, self):
                client.lose()
        if self._watch not in self.world.scheduler.workers:
            self._watch.start()
        self._watch.call_locked()

    def _restart(self) -> None:
        if self.up:
            return
        self.logs.abandon()
        self.world.disks.crash(self.root, self.world.scheduler.draw, self.left)
        self.world.scheduler.note(self.name, "has power again")
        try:
            self.start()
        except StartupError:
            if self.up or not self.site.dead:
                raise  # not since the power went again


class World:
    """A simulation."""

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.disks = SimulatedDisk(self.scheduler.clock, self._note)
        self.nodes: dict[str, Node] = {}
        self.clients: list[Client] = []
        self._seams = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._seams.enter_context(seams.disk_instead(self.disks))
        self._seams.enter_context(seams.drawn_from(self.scheduler.chance.randbytes))
        return self

    def __exit__(self, *exc: object) -> None:
        for node in self.nodes.values():
            node.site.kill()
            with contextlib.suppress(OSError):
                node.logs.abandon()
        self._seams.close()
        self.disks.close()

    def node(self, name: str, **settings: object) -> Node:
        """A broker that is started; settings by name with `_` for `.`."""
        texts = {key.replace("_", "."): str(value) for key, value in settings.items()}
        node = self.nodes[name] = Node(self, name, texts)
        node.start()
        return node

    def client(self, name: str, program: Program, node: Node | None = None) -> Client:
        """A client that begins with the next run; without `node` it loses its answers whichever node goes."""
        client = Client(self, name, program, node)
        self.clients.append(client)
        return client

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        self.scheduler.run_for(seconds)

    def finish(self) -> None:
        """Runs until every client is done."""
        self.scheduler.run_until(lambda: all(client.done for client in self.clients))

    def _note(self, root: str, what: str, path: str, size: int) -> None:
        self.nodes[root.removeprefix("/")].note(what, path, size)
