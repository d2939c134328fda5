"""Clients of a recorded broker: the world of a workload's actors.

Each actor has its own thread, random numbers and connection. When the broker dies, `ask` raises Gone, and `World.again`
waits until a broker serves again.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import TYPE_CHECKING, Any

from kafkalite.wire.protocol import api
from tests.kit.harness.classic_client import ClassicClient
from tests.kit.harness.typed import TypedConnection
from tests.kit.oracles import classic_oracle
from tests.kit.processes.broker import BrokerDidNotStart
from tests.power.history import History, Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.power.recorder import RecordedBroker

PADDING = b"x" * 4096
COME_AGAIN_S = 0.01


class Gone(Exception):
    """The broker went away before it answered: whether it did what was asked for is not known."""


class Over(Exception):
    """The workload has ended."""


class World:
    """The broker, the clock of the run and everything that was asked for."""

    def __init__(self, broker: RecordedBroker, seed: int, settings: dict[str, Any]) -> None:
        self.broker = broker
        self.seed = seed
        self.history = History(settings)
        self.failures: list[BaseException] = []
        self.step_count = 0
        self._tokens = itertools.count(1)
        self._serving = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._run = -1

    # ---- who runs the broker ----------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Start the broker, and let the actors continue."""
        try:
            self.broker.start()
        except BrokerDidNotStart as error:
            raise AssertionError(str(error)) from error
        self._run += 1
        self._serving.set()

    def pause(self) -> None:
        """From now on an actor that lost the broker waits for the next one."""
        self._serving.clear()

    def finish(self) -> None:
        """Ends every actor at its next step."""
        self._over.set()
        self._serving.set()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    # ---- actors -----------------------------------------------------------------------------------------------------

    def tokens(self, count: int) -> int:
        """The first of `count` new numbers in a row."""
        with self._lock:
            first = next(self._tokens)
            for _ in range(count - 1):
                next(self._tokens)
            return first

    def wait(self) -> int:
        """Waits for a broker; which process of the run it is. Over when there will be none."""
        self._serving.wait()
        if self._over.is_set():
            raise Over
        return self._run

    def serves(self, run: int) -> bool:
        """Return whether the process connected to before this call is that process of the run, and no later one: the
        next process starts after `pause`, and is counted before the actors continue.
        """
        return self._serving.is_set() and self._run == run

    def add(self, op: Op) -> Op:
        with self._lock:
            self.history.ops[op.promise].append(op)
        return op


class Actor:
    """One client. `rounds(body)` calls a function again and again; what it asks for is written down."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.draw = random.Random(f"{world.seed} {name}")
        self.run = -1
        self.step_count = 0
        self.connection: TypedConnection | None = None
        self._classic: ClassicClient | None = None
        self._classic_count = 0

    def rounds(self, body: Callable[[], object], *, start: Callable[[], object] | None = None) -> None:
        """Until the end: `start` on each new broker, then `body` over and over."""
        try:
            while not self.world.over:
                try:
                    run = self.world.wait()
                    if run != self.run:
                        self._connect(run)
                        if start is not None:
                            start()
                    while not self.world.over:
                        body()
                        self.step_count += 1
                        self.world.step_count += 1
                except (Gone, OSError):
                    self._disconnect()
        except Over:
            pass
        except BaseException as error:  # noqa: BLE001 - the run reports it, and ends
            self.world.failures.append(error)
            self.world.finish()
        finally:
            self._disconnect()

    def ask(self, key: int, version: int, message: object) -> Any:
        """A request that promises nothing, and its answer."""
        assert self.connection is not None, "asked outside of rounds()"
        try:
            return self.connection.ask(key, version, message)
        except (OSError, EOFError) as error:
            raise Gone from error

    def come_again(self) -> None:
        """Waits a little: the broker asked to come again."""
        time.sleep(COME_AGAIN_S)

    def attempt(
        self,
        promise: str,
        what: dict[str, Any],
        key: int,
        version: int,
        message: object,
        *,
        succeeded: Callable[[Any], dict[str, Any] | None],
        token: int = -1,
        place: str = "",
    ) -> dict[str, Any] | None:
        """A request whose answer is a promise: what `succeeded` makes of the answer; None for a refusal."""
        assert self.connection is not None, "asked outside of rounds()"
        port = self.connection.socket.getsockname()[1]
        op = Op(promise, what, self.world.broker.moment(), (self.run, port), 0, token=token, place=place)
        self.world.add(op)
        op.number = self.connection.correlation_id + 1
        answer = self.ask(key, version, message)
        op.result = succeeded(answer)
        return op.result

    # ---- Kafka 0.7 --------------------------------------------------------------------------------------------------

    def send_classic(self, promise: str, what: dict[str, Any], topic: str, partition: int, data: bytes) -> None:
        """A produce request of 0.7, which is not answered."""
        op = Op(promise, what, self.world.broker.moment(), (self.run, 0), 0)
        self.world.add(op)
        try:
            self._classic_connection().send(classic_oracle.produce(topic, partition, data))
        except OSError as error:
            raise Gone from error

    def ask_classic_end(self, promise: str, what: dict[str, Any], topic: str, partition: int) -> int:
        """The end of a classic log as the broker tells it: a promise about all below."""
        client = self._classic_connection()
        port = client.socket.getsockname()[1]
        op = Op(promise, what, self.world.broker.moment(), (self.run, -port), self._classic_count)
        self.world.add(op)
        try:
            found = client.offsets(topic, partition)
        except (OSError, EOFError) as error:
            raise Gone from error
        self._classic_count += 1
        op.result = {"end": found[0] if found else 0}
        return int(op.result["end"])

    def _classic_connection(self) -> ClassicClient:
        if self._classic is None:
            self._classic = ClassicClient(self.world.broker.classic_port)
            self._classic_count = 0
            if not self.world.serves(self.run):
                raise Gone
        return self._classic

    def _connect(self, run: int) -> None:
        self._disconnect()
        self.connection = TypedConnection(self.world.broker.port)
        self.run = run
        if not self.world.serves(run):
            raise Gone

    def _disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        if self._classic is not None:
            self._classic.socket.close()
            self._classic = None
        self.run = -1


def value(token: int, draw: random.Random, size_max: int = 400) -> bytes:
    """A record's value that is known again by its number."""
    return b"q%08dq" % token + PADDING[: draw.randrange(size_max)]


def single_error(answer: Any) -> int:
    """The one error of a Produce answer."""
    return int(answer.responses[0].partition_responses[0].error_code)


PRODUCE = api.PRODUCE
