"""Run a test's broker in its own process: execute requests from a pipe, and exit with the parent.

    descriptor 3   requests; the first one describes the broker (kafkalite.testing.control)
    descriptor 4   answers
    1 and 2        the log

The main thread serves the requests one by one. `start`, `stop` and `restart` may take long, so they run in a separate
thread. The parent repeatedly asks whether that thread has finished.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from kafkalite.testing.control import END, Frames, described, frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkalite.testing.faults import Fault
    from kafkalite.testing.in_process import InProcessBroker

REQUESTS: Final = 3
ANSWERS: Final = 4
READ_SIZE: Final = 1 << 16
LOOK_MS: Final = 1000
"""How often the process looks whether its parent lives, where the kernel cannot report it."""
PATIENCE_S: Final = 0.2
"""How long a request waits for a start, a stop or a restart before it is answered that this still runs."""
STOP_S_MAX: Final = 60
"""How long the broker may take to stop once the pipe or the parent has ended."""
FAILED: Final = 0
"""The number of the event `Broker.failed`."""
LONG: Final = frozenset({"restart", "start", "stop"})
FAULTS: Final = frozenset({"delay", "disconnect", "fail"})
VALUES: Final = frozenset({"bootstrap_servers", "connection_count", "metrics_urls", "port", "progress", "running"})
DONE: Final = frozenset({"add_user", "create_topic", "delete_topic", "give_up_start", "heal", "reload_certificates"})


def main() -> None:
    """Serve requests until the pipe is closed or the parent has ended."""
    gc.disable()  # modules are permanent, and collections would scan them repeatedly
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    close_from(ANSWERS + 1)
    for descriptor in (REQUESTS, ANSWERS):
        os.set_inheritable(descriptor, False)
    host = Host()
    requests = Requests(int(sys.argv[2]))
    while (request := requests.next()) is not None and request["call"] != END:
        try:
            value = host.serve(request["call"], request["arguments"], request["named"])
        except Exception as error:  # noqa: BLE001  # raised in the parent
            send({"id": request["id"], "error": described(error)})
        else:
            send({"id": request["id"], "value": value})
    threading.Thread(target=exit_late, daemon=True).start()
    host.end()
    sys.stderr.flush()
    os._exit(0)  # skips the interpreter's shutdown, which has nothing to do


def exit_late() -> None:
    """Exit after STOP_S_MAX even if the broker has not stopped, because the tests have ended."""
    time.sleep(STOP_S_MAX)
    os._exit(1)


def send(message: object) -> None:
    """Write an answer to the pipe. If the parent has ended, ignore the error: the thread that reads requests notices
    the end."""
    left = frame(message)
    with contextlib.suppress(BrokenPipeError):
        while left:
            left = left[os.write(ANSWERS, left) :]


def close_from(first: int) -> None:
    """Close all descriptors from `first` on, which this process may have inherited from the parent."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= first:
            with contextlib.suppress(OSError):  # the directory's own descriptor
                os.close(int(name))


class Requests:
    """The requests that arrive on the pipe while the parent lives."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._frames = Frames()
        self._poll = select.poll()
        self._poll.register(REQUESTS, select.POLLIN)
        self._watched = -1
        with contextlib.suppress(OSError):  # an old kernel, or a parent that has ended, which `next` notices
            self._watched = os.pidfd_open(parent)
            self._poll.register(self._watched, select.POLLIN)

    def next(self) -> Any:
        """Wait for the next request and return it. None if the pipe is closed or the parent has ended.

        To watch the pipe is not enough, because a program that a test forked may keep it open.
        """
        while (message := self._frames.next()) is None:
            if os.getppid() != self._parent:
                return None
            ready = {descriptor for descriptor, _ in self._poll.poll(LOOK_MS if self._watched < 0 else None)}
            if self._watched in ready:
                return None
            if REQUESTS in ready:
                data = os.read(REQUESTS, READ_SIZE)
                if not data:
                    return None
                self._frames.add(data)
        return message


class Job:
    """A call that may take long, and that runs in its own thread."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._error: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name="kafkalite-test-control", daemon=True).start()

    def _run(self) -> None:
        try:
            self._act()
        except Exception as error:  # noqa: BLE001  # raised by `wait`
            self._error = error
        finally:
            self._done.set()

    def wait(self) -> bool:
        """Wait at most PATIENCE_S. Return whether the call is done. Raises the call's exception.

        Between two calls of `wait`, other threads of the test can send requests.
        """
        done = self._done.wait(PATIENCE_S)
        if self._error is not None:
            raise self._error
        return done


class Host:
    """The broker, and the faults, events and jobs that tests refer to by number."""

    def __init__(self) -> None:
        self._made: InProcessBroker | None = None
        self._numbers: Iterator[int] = iter(range(1, sys.maxsize))
        self._faults: dict[int, Fault] = {}
        self._events: dict[int, threading.Event] = {}
        self._jobs: dict[int, Job] = {}
        self._calls: dict[str, Callable[..., Any]] = {
            "classic_endpoint": self._classic_endpoint,
            "end_fault": self._end_fault,
            "endpoints": self._endpoints,
            "fault": self._fault,
            "flushes": self._flushes,
            "is_set": self._is_set,
            "loops_turned": self._loops_turned,
            "make": self._make,
            "wait": self._wait,
        }

    @property
    def _broker(self) -> InProcessBroker:
        assert self._made is not None
        return self._made

    def serve(self, call: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        """Execute a request. Return the value for the answer."""
        if call in LONG:
            number = next(self._numbers)
            self._jobs[number] = Job(lambda: getattr(self._broker, call)(*arguments, **named))
            return self._wait(number)
        if call in FAULTS:
            number = next(self._numbers)
            self._faults[number] = fault = getattr(self._broker, call)(*arguments, **named)
            return [number, fault.key]
        if call in VALUES:
            return getattr(self._broker, call)
        if call in DONE:
            getattr(self._broker, call)(*arguments, **named)
            return None
        return self._calls[call](*arguments)

    def end(self) -> None:
        """Stop the broker, if its parent has not stopped it."""
        if self._made is not None:
            self._made.stop("the program that started it ended")

    def _make(self, settings: Mapping[str, object], level: str, path: list[str]) -> None:
        """Create the broker, as the first request asks.

        `path` is the parent's sys.path, with which classes named in settings are found.
        """
        sys.path += [place for place in path if place not in sys.path]
        from kafkalite.base import logging
        from kafkalite.broker.process import own_process

        own_process()
        logging.configure(level=level)
        self._made = made(settings)
        self._events[FAILED] = self._made.failed
        gc.freeze()
        gc.enable()

    def _wait(self, number: int) -> int:
        """Return the job's number if it still runs, or 0 if it is done. Raises the job's exception."""
        try:
            if not self._jobs[number].wait():
                return number
        except BaseException:
            del self._jobs[number]
            raise
        del self._jobs[number]
        return 0

    def _loops_turned(self) -> int:
        number = next(self._numbers)
        self._events[number] = self._broker.loops_turned()
        return number

    def _is_set(self, number: int) -> bool:
        return self._events[number].is_set()

    def _fault(self, number: int) -> list[int]:
        fault = self._faults[number]
        return [fault.count, fault.ended]

    def _end_fault(self, number: int) -> None:
        self._faults[number].end()

    def _endpoints(self) -> dict[str, list[object]]:
        return {key: [it.name, it.host, it.port] for key, it in self._broker.endpoints.items()}

    def _classic_endpoint(self) -> list[object] | None:
        it = self._broker.classic_endpoint
        return None if it is None else [it.name, it.host, it.port]

    def _flushes(self) -> bool:
        return self._broker.config.flush_on_acks_all


def made(settings: Mapping[str, object]) -> InProcessBroker:
    """Create the broker. If one of its classes cannot be imported, the error suggests `in_process=True`."""
    from kafkalite.errors import StartupError
    from kafkalite.testing.in_process import InProcessBroker

    try:
        return InProcessBroker(settings)
    except StartupError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ImportError):
            cause = cause.__cause__
        if cause is not None:
            error.args = (f"{error} (in the broker's process; in_process=True runs the broker in this process)",)
        raise
