"""Brokers, consumers and a ZooKeeper as processes, messages for them, and afterwards everything that happened.

    Cluster ─┬─ ZooKeeper          its transaction log: claims, releases, stored offsets
             ├─ BrokerProcess ...  their segment files: what is stored
             ├─ Member ...         their notes: what was handed out; each reaches ZooKeeper through its own proxy,
             │                     brokers and producers through one for all
             └─ Load               what was sent, and what was refused

`history` reads these four when all is quiet and gives the events that `tests.kit.checkers.classic_checker.judge` takes.
Faults are methods; each returns whether it hit. Not thread-safe.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from kafkalite.classic import ClassicError, Producer, ProducerConfig, ProducerData
from tests.kit.checkers import classic_checker as events
from tests.kit.fakes.proxy import Proxy
from tests.kit.oracles import zookeeper_log
from tests.kit.oracles.classic_oracle import read_deep, read_entries
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, free_port, wait_until
from tests.kit.processes.classic_member import NOT_JOINED, STALL_S
from tests.kit.processes.zookeeper import ZooKeeper

GROUP = "g"
TOPIC = "t"
SETTLE_S = 120.0
OWNERS = f"/consumers/{GROUP}/owners/{TOPIC}"
IDS = f"/consumers/{GROUP}/ids"
OFFSETS = f"/consumers/{GROUP}/offsets/{TOPIC}"
PAYLOAD_SIZE = 200
WRAPPED_COUNT = 10
"""Messages in each compressed wrapper."""


class Member:
    """One consumer and the processes it is: a killed one does not come back under its name."""

    def __init__(self, directory: Path, name: str, zookeeper_port: int, streams: int, config: Mapping[str, Any],
                 pace_s: float) -> None:  # fmt: skip
        self.name = name
        self.notes = directory / f"{name}.notes"
        self.log = directory / f"{name}.log"
        self.proxy = Proxy(zookeeper_port)
        self.frozen = self.cut_off = self.leaving = self._joined = False
        self._given_count = self._looked_size = 0
        self.killed_s: float | None = None
        given = {
            "notes": str(self.notes),
            "topic": TOPIC,
            "streams": streams,
            "pace_s": pace_s,
            "config": {"groupid": GROUP, "consumerid": name, "zk_connect": self.proxy.bootstrap, **config},
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.processes.classic_member", json.dumps(given)],
                cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def joined(self) -> bool:
        if not self._joined:
            self._joined = any(line[0] == "J" for line in self.lines())
        return self._joined

    def given_count(self) -> int:
        """Messages handed out so far."""
        if self.notes.exists():
            with self.notes.open("rb") as notes:
                notes.seek(self._looked_size)
                lines = notes.read().split(b"\n")[:-1]
            self._looked_size += sum(len(line) + 1 for line in lines)
            self._given_count += sum(line.startswith(b"M") for line in lines)
        return self._given_count

    @property
    def sound(self) -> bool:
        """Whether it does its work, as far as its tormentor knows."""
        return self.alive and not (self.frozen or self.cut_off or self.leaving)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        if self.alive:
            self.process.send_signal(signal.SIGCONT)
        self.frozen = False

    def cut(self) -> None:
        """What it and ZooKeeper say to each other is swallowed from now on."""
        self.proxy.drop = self.cut_off = True

    def mend(self) -> None:
        self.proxy.drop = self.cut_off = False
        self.proxy.cut()

    def kill(self) -> None:
        self.killed_s = time.time()
        self.process.kill()
        self.process.wait()
        self.close()

    def leave(self) -> None:
        """It ends by itself, soon."""
        self.leaving = True
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> None:
        if self.alive:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self.proxy.close()

    def lines(self) -> Iterator[list[str]]:
        if self.notes.exists():
            for line in self.notes.read_text().splitlines():
                yield line.split(" ", 3)

    def events(self) -> Iterator[events.Event]:
        for line in self.lines():
            time_s = int(line[1]) / 1e6
            if line[0] == "M":
                yield events.Given(time_s, self.name, line[3])
            elif line[0] == "S":
                yield events.Stalled(time_s, self.name, int(line[2]) / 1e6)
        if self.killed_s is not None:
            yield events.Killed(self.killed_s, self.name)

    def errors(self) -> list[str]:
        return [" ".join(line) for line in self.lines() if line[0] == "E"]


class Load(threading.Thread):
    """One producer: single messages, or wrappers of several. 0.7 acknowledges nothing; it knows what was refused."""

    def __init__(self, zookeeper: str, name: str, rate_per_s: float, *, wrapped: bool) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.sent: set[str] = set()
        self.refused: set[str] = set()
        self._wrapped = wrapped
        self._rate_per_s = rate_per_s
        self._config = ProducerConfig(
            zk_connect=zookeeper, compression_codec=int(wrapped), socket_timeout_ms=1500, connect_timeout_ms=300,
            zk_session_timeout_ms=5000, zk_connection_timeout_ms=60_000,
        )  # fmt: skip
        self._ending = threading.Event()

    def run(self) -> None:
        count = WRAPPED_COUNT if self._wrapped else 1
        number = 0
        with Producer(self._config) as producer:
            due = time.monotonic()
            while not self._ending.is_set():
                names = [f"{self.name}-{number + place:07d}" for place in range(count)]
                number += count
                try:
                    producer.send(ProducerData(TOPIC, [payload_of(name) for name in names]))
                    self.sent.update(names)
                except ClassicError:
                    self.refused.update(names)
                due = max(due + count / self._rate_per_s, time.monotonic() - 0.1)
                self._ending.wait(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        self._ending.set()
        self.join(SETTLE_S)


def payload_of(name: str) -> bytes:
    return f"{name}|".encode().ljust(PAYLOAD_SIZE, b".")


class Watcher(threading.Thread):
    """Asks ZooKeeper something all the time, and remembers when the answer was late."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        super().__init__(daemon=True)
        self.stalls: list[events.Stalled] = []
        self._zookeeper = zookeeper
        self._ending = threading.Event()

    def run(self) -> None:
        client = self._zookeeper.client()
        while not self._ending.wait(0.02):
            began, asked = time.time(), time.monotonic()
            with contextlib.suppress(KazooException, KazooTimeoutError):
                client.get_async("/").get(timeout=1.0)
            if time.monotonic() - asked > STALL_S:
                self.stalls.append(events.Stalled(began, events.ZOOKEEPER, time.monotonic() - asked))
        client.stop()
        client.close()

    def stop(self) -> None:
        self._ending.set()
        self.join(SETTLE_S)


@dataclass
class Cluster:
    """Everything together; `close` ends it all."""

    directory: Path
    partition_counts: tuple[int, ...]
    session_ms: int = 2000
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    member_config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.zookeeper = ZooKeeper().start()
        self.look = self.zookeeper.client()
        self.front = Proxy(self.zookeeper.port)
        self.watcher = Watcher(self.zookeeper)
        self.watcher.start()
        self.brokers = [self._broker(number, count) for number, count in enumerate(self.partition_counts)]
        self.frozen_brokers: set[int] = set()
        self.members: list[Member] = []
        self.loads: list[Load] = []
        self.hits: Counter[str] = Counter()

    @property
    def session_s(self) -> float:
        return self.session_ms / 1000

    def _broker(self, number: int, partition_count: int) -> BrokerProcess:
        port, classic_port = free_port(), free_port()
        settings = {
            "listeners": f"kafka://127.0.0.1:{port},kafka07://127.0.0.1:{classic_port}",
            "zookeeper.connect": self.front.bootstrap,
            "zk.sessiontimeout.ms": str(self.session_ms),
            "zk.connectiontimeout.ms": "60000",
            "node.id": str(number),
            "num.partitions": str(partition_count),
            "log.flush.interval": "20",
            "log.default.flush.interval.ms": "100",
            "log.segment.bytes": "100000",
            **self.broker_settings,
        }
        return BrokerProcess(self.directory / f"broker-{number}", settings, port=port)

    def start_brokers(self) -> None:
        for broker in self.brokers:
            if not broker.alive:
                broker.launch()
        for broker in self.brokers:
            broker.wait_ready()

    def make_topic(self) -> None:
        """One message for each broker, which makes the topic everywhere; they are read like all others."""
        for number in range(len(self.brokers)):
            load = Load(self.front.bootstrap, f"first{number}", 1.0, wrapped=False)
            with Producer(ProducerConfig(broker_list=self.address_of(number))) as producer:
                producer.send(ProducerData(TOPIC, [payload_of(f"{load.name}-0")]))
            load.sent.add(f"{load.name}-0")
            self.loads.append(load)
        wait_until(lambda: len(self.children(f"/brokers/topics/{TOPIC}")) == len(self.brokers), SETTLE_S, "the topic")

    def address_of(self, number: int) -> str:
        _, host, port = self.look.get(f"/brokers/ids/{number}")[0].decode().split(":")
        return f"{number}:{host}:{port}"

    def start_load(self, rate_per_s: float) -> None:
        for name, wrapped in (("plain", False), ("wrapped", True)):
            self.loads.append(Load(self.front.bootstrap, name, rate_per_s / 2, wrapped=wrapped))
            self.loads[-1].start()

    def join(self, name: str, streams: int = 1, pace_s: float = 0.0) -> Member:
        config = {"zk_session_timeout_ms": self.session_ms, "zk_connection_timeout_ms": 60_000, **self.member_config}
        member = Member(self.directory, name, self.zookeeper.port, streams, config, pace_s)
        self.members.append(member)
        return member

    # ---- what ZooKeeper shows now -----------------------------------------------------------------------------------

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self.look.get_children(path))
        except NoNodeError:
            return []

    def owners(self) -> dict[str, str]:
        """Partition to its owner's thread."""
        found = {}
        for partition in self.children(OWNERS):
            with contextlib.suppress(NoNodeError):
                found[partition] = self.look.get(f"{OWNERS}/{partition}")[0].decode().removeprefix(f"{GROUP}_")
        return found

    def wait_owners(self, wanted: Mapping[str, str]) -> None:
        wait_until(lambda: self.owners() == wanted, SETTLE_S, f"owners {wanted}")

    def all_owned(self) -> bool:
        """Whether every partition is a living member's."""
        owners = self.owners()
        sound = {member.name for member in self.members if member.sound}
        return len(owners) == sum(self.partition_counts) and all(
            thread.rpartition("-")[0] in sound for thread in owners.values()
        )

    def session_of(self, path: str) -> int | None:
        stat = self.look.exists(path)
        return None if stat is None else int(stat.ephemeralOwner)

    def expire(self, path: str) -> bool:
        """Ends the session that made a node; whether there was one."""
        session = self.session_of(path)
        if not session:
            return False
        self.zookeeper.expire_session(session)
        return True

    def given_count(self) -> int:
        return sum(member.given_count() for member in self.members)

    def stop_zookeeper(self) -> None:
        self._refuse(refuse=True)
        self.zookeeper.kill()

    def start_zookeeper(self) -> None:
        """Refuse clients until it serves: they would wait for a session's length."""
        self.zookeeper.start()
        self._refuse(refuse=False)
        wait_until(lambda: self.look.connected, SETTLE_S, "ZooKeeper is back")

    def _refuse(self, *, refuse: bool) -> None:
        for proxy in (self.front, *(member.proxy for member in self.members)):
            proxy.refuse = refuse

    # ---- the end ----------------------------------------------------------------------------------------------------

    def caught_up(self) -> bool:
        """Whether the group has stored, for each partition, the end of its log."""
        for partition in self.all_partitions():
            try:
                stored = int(self.look.get(f"{OFFSETS}/{partition}")[0])
            except NoNodeError:
                stored = 0
            if stored != self.log_end(partition):
                return False
        return True

    def all_partitions(self) -> list[str]:
        return [f"{broker}-{part}" for broker, count in enumerate(self.partition_counts) for part in range(count)]

    def segments(self, partition: str) -> list[Path]:
        broker, _, number = partition.partition("-")
        return sorted((self.brokers[int(broker)].data_dir / f"{TOPIC}-{number}").glob("*.kafka"))

    def log_end(self, partition: str) -> int:
        found = self.segments(partition)
        return int(found[-1].stem) + found[-1].stat().st_size if found else 0

    def finish(self) -> None:
        """Nothing is sent any more, everything stored is read, then all end as they should."""
        for load in self.loads:
            if load.ident is not None:
                load.stop()
        self.start_brokers()
        wait_until(lambda: self.all_owned() and self.caught_up(), SETTLE_S, "everything stored was read", 0.1)
        for member in self.members:
            if member.alive and not member.leaving:
                member.leave()
        for member in self.members:
            if member.killed_s is None:
                status = member.process.wait(SETTLE_S)
                assert status in {0, NOT_JOINED}, member.log.read_text()[-4000:]
        for broker in self.brokers:
            broker.stop()
        self.watcher.stop()
        self.look.stop()
        self.zookeeper.kill()

    def close(self) -> None:
        for load in self.loads:
            if load.is_alive():
                load.stop()
        self.watcher.stop()
        for member in self.members:
            member.close()
        for broker in self.brokers:
            broker.close()
        self.look.stop()
        self.look.close()
        self.front.close()
        self.zookeeper.stop()

    # ---- what happened ----------------------------------------------------------------------------------------------

    def stored(self) -> Iterator[events.Stored]:
        """Every message in the segment files, read by what was written from the specification alone."""
        for partition in self.all_partitions():
            end = 0
            for path in self.segments(partition):
                data = path.read_bytes()
                assert int(path.stem) == end, f"{path} does not begin where the one before it ends, {end}"
                end += len(data)
                for position, message in read_entries(data):
                    start = int(path.stem) + position
                    for payload, offset in read_deep(message.encode(), start):
                        yield events.Stored(partition, payload[: payload.index(b"|")].decode(), start, offset)

    def history(self) -> list[events.Event]:
        found: list[events.Event] = list(self.stored())
        found += zookeeper_events(zookeeper_log.read_changes(self.zookeeper.transaction_log))
        found += self.watcher.stalls
        for member in self.members:
            found += member.events()
        return found

    def lost_sends(self) -> tuple[int, int, int]:
        """(sent, of them not in the logs, refused and there all the same)."""
        stored = {event.name for event in self.stored()}
        sent = set().union(*(load.sent for load in self.loads))
        refused = set().union(*(load.refused for load in self.loads))
        return len(sent), len(sent - stored), len(refused & stored)


def zookeeper_events(changes: list[zookeeper_log.Change]) -> list[events.Event]:
    """Claims, releases and stored offsets, in ZooKeeper's order."""
    consumers: dict[int, str] = {}
    for change in changes:
        if change.kind == zookeeper_log.CREATE and change.path.startswith(f"{IDS}/"):
            consumers[change.session] = change.path.rpartition("/")[2].removeprefix(f"{GROUP}_")
    found: list[events.Event] = []
    for change in changes:
        parent, _, partition = change.path.rpartition("/")
        written = change.kind in {zookeeper_log.CREATE, zookeeper_log.SET}
        if parent == OWNERS and written:
            consumer = change.value.decode().removeprefix(f"{GROUP}_").rpartition("-")[0]
            found.append(events.Claimed(change.time_s, partition, consumer, change.session))
        elif parent == OWNERS and change.kind == zookeeper_log.DELETE:
            found.append(events.Released(change.time_s, partition, change.session, change.ephemeral))
        elif parent == OFFSETS and written:
            who = consumers.get(change.session, f"session {change.session:x}")
            found.append(events.Committed(change.time_s, partition, who, int(change.value)))
    return found


def takeover_s(cluster: Cluster, history: list[events.Event], partitions: set[str], since_s: float) -> float:
    """From a moment until each of some partitions was claimed, in the time in which ZooKeeper and the takers ran."""
    longest = 0.0
    for partition in partitions:
        claim = next(
            event
            for event in history
            if isinstance(event, events.Claimed) and event.partition == partition and event.time_s >= since_s
        )
        stalls = [
            event
            for event in history
            if isinstance(event, events.Stalled) and event.consumer in {events.ZOOKEEPER, claim.consumer}
        ]
        longest = max(longest, events.running_s(since_s, claim.time_s, stalls))
    return longest


@contextlib.contextmanager
def running_cluster(directory: Path, partition_counts: tuple[int, ...], **options: Any) -> Iterator[Cluster]:
    """A cluster with its brokers started and its topic made; all of it gone afterwards."""
    cluster = Cluster(directory, partition_counts, **options)
    try:
        cluster.start_brokers()
        cluster.make_topic()
        yield cluster
    except BaseException:
        for path in sorted([*directory.glob("*.log"), *directory.glob("broker-*/broker.log")]):
            print(f"--- {path}\n{path.read_text(errors='replace')[-3000:]}")
        raise
    finally:
        cluster.close()
