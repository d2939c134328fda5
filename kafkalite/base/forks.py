"""Make a forked child process give up the brokers and clients of its parent.

    fork ─▶ the child calls leave() of each registered part ─▶ abandon(): the part's descriptors become /dev/null

A part is a broker, a client, or an object that belongs to one. The child has the parent's objects, but only one thread.
Its descriptors refer to the same sockets, locks and files as the parent's, so the child must not shut them down.

If C code forks, Python does not call `leave`. So a part also checks the process id (`Origin`) before it stops, flushes
or sends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import weakref
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DESCRIPTORS: Final = "/proc/self/fd"
IMPORT_S_MAX: Final = 10.0
"""How long a fork waits for imports. An import may itself wait for a module of the forking thread."""
WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  # compared, not bound


class Inherited(Protocol):
    """A broker, a client or a part of one, which a forked child must give up."""

    def leave(self) -> None:
        """Give up the part. Called in the child, by its only thread, before fork returns. Must not wait for a lock."""


_imports = threading.RLock()
_fork = threading.local()
_registered: weakref.WeakSet[Inherited] = weakref.WeakSet()


def register(part: Inherited) -> None:
    """Register a part, whose `leave` is then called in each forked child.

    The registration does not keep the part alive.
    """
    _registered.add(part)


def unregister(part: Inherited) -> None:
    """Remove a part's registration. Idempotent."""
    _registered.discard(part)


class Origin:
    """The id of the process that created a part."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether the current process created the part. False in a forked child."""
        return self._process == os.getpid()

    def refusal(self, part: str) -> str:
        """Return the error message for a forked child that uses the part."""
        here = os.getpid()
        return (
            f"this {part} belongs to process {self._process} and cannot be used in process {here}; create a new one "
            "after the fork"
        )


def abandon(descriptors: Iterable[int]) -> None:
    """Replace file descriptors with /dev/null, without any effect on the parent's sockets and files. -1 is ignored.

    EPOLL_CTL_DEL, shutdown and close_notify would affect the parent. Closing a descriptor is not enough: its object
    would close it again later, when another file may have its number.
    """
    wanted = [descriptor for descriptor in descriptors if descriptor >= 0]
    if not wanted:
        return
    try:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # the process is at its descriptor limit
        os.close(wanted[0])
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in wanted:
        if descriptor != null:
            os.dup2(null, descriptor, inheritable=False)
    if null not in wanted:
        os.close(null)


def keep_alive(part: object) -> None:
    """Keep an object from ever being destroyed.

    Its destructor might wait for a lock that a thread of the parent held during the fork.
    """
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Return a context for an import by the broker itself. Forks on other threads wait for its end, at most
    IMPORT_S_MAX seconds.

    Otherwise an import that another thread has begun would stay locked in the child.
    """
    with _imports:
        yield


def open_below(directories: Iterable[str], addresses: Iterable[tuple[str, int]]) -> list[int]:
    """Return this process's descriptors of files in `directories` and of sockets bound to `addresses` (host, port)."""
    roots = [os.path.realpath(directory) for directory in directories]
    bound = set(addresses)
    found = []
    for name in os.listdir(DESCRIPTORS):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself, which is closed by now
            link = os.readlink(f"{DESCRIPTORS}/{name}")
            if link.startswith("socket:"):
                matches = _is_bound_to(int(name), bound)
            else:
                matches = any(link == root or link.startswith(f"{root}/") for root in roots)
            if matches:
                found.append(int(name))
    return found


def _is_bound_to(descriptor: int, addresses: set[tuple[str, int]]) -> bool:
    sock = socket.socket(fileno=descriptor)
    try:
        name = sock.getsockname()
    finally:
        sock.detach()
    if sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return False
    host, port = name[0], name[1]
    return (host, port) in addresses or any((wildcard, port) in addresses for wildcard in WILDCARDS)


def _after_fork() -> None:
    for part in list(_registered):
        with contextlib.suppress(OSError, ValueError):  # it is being closed; give up the others anyway
            part.leave()


def _before_fork() -> None:
    _fork.waited = _imports.acquire(timeout=IMPORT_S_MAX)


def _end_fork() -> None:
    if _fork.waited:
        _imports.release()


os.register_at_fork(before=_before_fork, after_in_parent=_end_fork, after_in_child=_end_fork)
os.register_at_fork(after_in_child=_after_fork)
