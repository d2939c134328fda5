"""Start a broker in its own process, exchange requests and answers over two pipes, and end it.

The process ignores Ctrl-C. It exits when this process ends, even if this process is killed (kafkalite.testing.child).

Tools of a test, such as pyfakefs, do not affect the broker's process. They do not affect this module either, since it
calls the system through `Unpatched`.

Thread rule: any thread may send requests. The module starts no thread.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import weakref
from fcntl import F_DUPFD_CLOEXEC, LOCK_EX, LOCK_UN
from signal import SIGKILL
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalite.base import forks
from kafkalite.errors import KafkaError
from kafkalite.testing import captured_log
from kafkalite.testing.control import END, Frames, frame, rebuilt
from kafkalite.testing.unpatched import Unpatched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM: Final = "import sys; sys.path.append(sys.argv[1]); from kafkalite.testing.child import main; main()"
"""-I and -S leave out what the environment and site-packages add to a start; sys.path follows in the first request."""
REQUESTS: Final = 3
ANSWERS: Final = 4
DESCRIPTOR_MIN: Final = 10
"""This side's descriptors are above those that the process gets."""
READ_SIZE: Final = 1 << 16
END_S: Final = 60
"""How long the process may take to end after its broker has stopped."""
LOOK_S: Final = 0.02
HINT: Final = "with in_process=True the broker runs in this process"
CONFTEST: Final = "conftest"
QUIET_LEVEL: Final = "warning"
"""The level of the broker's log in a program without pytest."""
AT_REST: Final[Mapping[str, object]] = {
    "bootstrap_servers": "",
    "classic_endpoint": None,
    "connection_count": 0,
    "endpoints": {},
    "metrics_urls": [],
    "progress": "",
    "running": False,
}
"""The properties of a broker without a process."""
WITHOUT_EFFECT: Final = frozenset({"give_up_start", "heal", "reload_certificates", "stop"})
"""Calls that do nothing if there is no process."""
FAILED: Final = 0
"""The number of the event `Broker.failed` in the process."""
LONG: Final = frozenset({"restart", "start", "stop"})
"""Calls that the process answers with a job's number while they run."""
FAULTS: Final = frozenset({"delay", "disconnect", "fail"})


class Process:
    """The broker's process, with its pipes and its log.

    It imports the same kafkalite, and has its own process group. Only the process that started the broker ends it. A
    child that a test forks may send requests, too; a file lock keeps the requests of different processes apart.
    """

    def __init__(self) -> None:
        if not sys.executable:
            raise RuntimeError(f"no Python executable found to run the broker's process; {HINT}")
        level = captured_log.level_captured()
        self.log = None if level is None else captured_log.CapturedLog()
        self._origin = forks.Origin()
        self._lock = threading.Lock()
        self._file = _above(Unpatched.memory_file("kafkalite-control"))
        requests, self._requests = (_above(descriptor) for descriptor in Unpatched.pipe())
        self._answers, answers = (_above(descriptor) for descriptor in Unpatched.pipe())
        self._frames = Frames()
        self._number = 0
        self.ended = False
        actions: list[tuple[int, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),  # type: ignore[list-item]
            (os.POSIX_SPAWN_DUP2, requests, REQUESTS),
            (os.POSIX_SPAWN_DUP2, answers, ANSWERS),
        ]
        if self.log is not None:
            actions += [(os.POSIX_SPAWN_DUP2, self.log.descriptor, number) for number in (1, 2)]
        try:
            self.number = Unpatched.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", *_flags(), "-c", PROGRAM, ROOT, str(Unpatched.getpid())],
                Unpatched.environ,
                file_actions=actions,
                setpgroup=0,
                setsigmask=(),
            )
        finally:
            Unpatched.close(requests)
            Unpatched.close(answers)
        forks.register(self)

    def leave(self) -> None:
        """Called in a forked child: replace the lock, since a thread of the parent may have locked it."""
        self._lock = threading.Lock()

    def ask(self, call: str, arguments: tuple[object, ...], named: Mapping[str, object]) -> Any:
        """Send a request and return the process's answer. Raises the process's exception, or RuntimeError if it has
        ended."""
        with self._lock:
            if self.ended:
                raise RuntimeError("the broker is not running")
            self._number += 1
            key = [Unpatched.getpid(), self._number]
            request = frame({"id": key, "call": call, "arguments": arguments, "named": dict(named)})
            Unpatched.lock_file(self._file, LOCK_EX)
            try:
                answer = self._exchange(key, request)
            except (EOFError, BrokenPipeError):
                raise RuntimeError(self._obituary()) from None
            finally:
                Unpatched.lock_file(self._file, LOCK_UN)
        if "error" in answer:
            raise rebuilt(answer["error"])
        return answer["value"]

    def _exchange(self, key: list[int], request: bytes) -> dict[str, Any]:
        """Send a request and return its answer. Skip late answers to requests that a timeout or Ctrl-C interrupted."""
        while request:
            request = request[Unpatched.write(self._requests, request) :]
        while True:
            answer = self._frames.next()
            if answer is None:
                data = Unpatched.read(self._answers, READ_SIZE)
                if not data:
                    raise EOFError
                self._frames.add(data)
            elif answer["id"] == key:
                return answer  # type: ignore[no-any-return]

    def _obituary(self) -> str:
        last = "" if self.log is None else self.log.tail()
        return f"the broker's process {self.number} ended{f'; it wrote: {last}' if last else ''}"

    def end(self) -> None:
        """Close the pipes and wait until the process has ended. Idempotent. In a forked child this does nothing."""
        if self.ended or not self._origin.is_here:
            return
        self.ended = True
        forks.unregister(self)
        with contextlib.suppress(BrokenPipeError):
            Unpatched.write(self._requests, frame({"call": END}))
        Unpatched.close(self._requests)
        poll = Unpatched.poll()
        poll.register(self._answers, 0)  # its end is always reported
        if not poll.poll(END_S * 1000):
            Unpatched.kill(self.number, SIGKILL)
        Unpatched.close(self._answers)
        Unpatched.close(self._file)
        with contextlib.suppress(ChildProcessError):  # a SIGCHLD handler reaped it first
            Unpatched.wait_for(self.number, 0)
        if self.log is not None:
            self.log.end()


class RemoteEvent:
    """An event in the broker's process, with threading.Event's methods `is_set` and `wait`."""

    def __init__(self, is_set: Callable[[], bool]) -> None:
        self._is_set = is_set

    def is_set(self) -> bool:
        """Return whether the event is set. It counts as set if the process has ended unexpectedly."""
        return self._is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, but at most `timeout` seconds. Return whether it is set."""
        left = math.inf if timeout is None else math.ceil(timeout / LOOK_S)
        while not self._is_set():  # counts polls, because a test may have stopped the clock
            if left <= 0:
                return False
            Unpatched.sleep(LOOK_S)
            left -= 1
        return True


class RemoteFault:
    """A fault in the broker's process. `end`, or the end of a `with` block, removes it."""

    def __init__(self, broker: OwnProcess, kind: str, number: int, key: int) -> None:
        self._broker = broker
        self._kind = kind
        self._number = number
        self.key = key

    @property
    def count(self) -> int:
        """The number of requests that this fault has affected."""
        count: int = self._broker.do("fault", self._number)[0]
        return count

    @property
    def ended(self) -> bool:
        """Whether the fault has affected all its `times` requests. Removing the fault does not change this."""
        return bool(self._broker.do("fault", self._number)[1])

    def end(self) -> None:
        """Remove the fault. Idempotent."""
        self._broker.do("end_fault", self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<{self._kind} of API {self.key}>"


class OwnProcess:
    """A broker's process as KafkaBroker uses it: `do` calls a method of the broker, `get` reads a property.

    The process is created with this object, and ends at `stop`. The next `start` creates another one.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = {key: _plain(value) for key, value in settings.items()}
        for key, value in self._settings.items():
            _check_classes(key, value)
        self._origin = forks.Origin()
        self._beginning = threading.Lock()
        self._process: Process | None = None
        self._begin()  # reports an invalid setting at once

    @property
    def failed(self) -> RemoteEvent:
        """An event that is set when the broker cannot continue or its process has ended unexpectedly."""
        return RemoteEvent(self._has_failed)

    def get(self, name: str) -> Any:
        """Return a property of the broker."""
        if self._process is None and name in AT_REST:
            return AT_REST[name]
        if name == "running":
            return self._running()
        value = self._ask(name)
        if name == "classic_endpoint":
            return None if value is None else _endpoint(value)
        return {key: _endpoint(item) for key, item in value.items()} if name == "endpoints" else value

    def do(self, name: str, *arguments: object, **named: object) -> Any:
        """Call a method of the broker. Return after the end of a start, stop or restart."""
        if not self._origin.is_here and name in LONG:
            if name == "stop":
                return None
            raise RuntimeError(self._origin.refusal("broker"))
        if self._process is None and name in WITHOUT_EFFECT:
            return None
        if name == "start":
            self._begin()
        try:
            value = self._ask(name, *map(_plain, arguments), **{key: _plain(item) for key, item in named.items()})
            while name in LONG and value:
                value = self._ask("wait", value)
        finally:
            if name == "stop" or (name == "start" and not self._running()):
                self._end()
        if name == "loops_turned":
            return RemoteEvent(lambda: self._is_set(value))
        return RemoteFault(self, name, *value) if name in FAULTS else value

    def _begin(self) -> None:
        with self._beginning:
            if self._process is not None:
                return
            process = Process()
            weakref.finalize(self, process.end)
            try:
                level = captured_log.level_captured() or QUIET_LEVEL
                path = [os.path.abspath(place) for place in sys.path]
                process.ask("make", (self._settings, level, path), {})
            except BaseException:
                process.end()
                raise
            self._process = process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _ask(self, name: str, *arguments: object, **named: object) -> Any:
        process = self._process
        if process is None:
            raise RuntimeError("the broker is not running")
        return process.ask(name, arguments, named)

    def _running(self) -> bool:
        try:
            return bool(self._ask("running"))
        except RuntimeError:  # the process has ended
            return False

    def _is_set(self, number: int) -> bool:
        return self._process is not None and bool(self._ask("is_set", number))

    def _has_failed(self) -> bool:
        try:
            return self._is_set(FAILED)
        except RuntimeError:  # the process has ended
            return True


def _above(descriptor: int) -> int:
    """Replace a descriptor by a copy whose number the process does not use for its pipes."""
    raised = Unpatched.control_file(descriptor, F_DUPFD_CLOEXEC, DESCRIPTOR_MIN)
    Unpatched.close(descriptor)
    return raised


def _flags() -> list[str]:
    """Return interpreter flags for the environment variables that the interpreter ignores because of -I."""
    prefix = [] if sys.pycache_prefix is None else ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return (["-B"] if sys.dont_write_bytecode else []) + prefix


def _endpoint(parts: list[Any]) -> Any:
    from kafkalite.model import Endpoint

    return Endpoint(*parts)


def _check_classes(key: str, value: object) -> None:
    """Raise TypeError for a class of a conftest.py, since the process would import the file again and get another
    class."""
    for item in value if isinstance(value, list) else str(value).split(","):
        module, colon, name = item.strip().partition(":")
        if colon and module.rpartition(".")[2] == CONFTEST:
            raise TypeError(f"{key}: class {name} of a conftest.py cannot be passed to the broker's process; {HINT}")


def _plain(value: object) -> object:
    """Convert a value to JSON's types. TypeError for a class that is not a Kafka error."""
    match value:
        case None | bool() | float() | str():
            return value
        case int():
            return int(value)
        case list() | tuple():
            return [str(item) for item in value]
        case KafkaError():
            return int(value.code)
        case type() if issubclass(value, KafkaError):
            return int(value.code)
        case type():
            raise TypeError(f"the class {value.__qualname__} cannot be passed to the broker's process; {HINT}")
        case _:
            return str(value)
