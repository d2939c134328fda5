"""What a forked process keeps of its parent's brokers and clients: nothing.

    fork ─▶ in the child: leave() of everything registered ─▶ abandon(): its descriptors become /dev/null

The child has the objects, but none of the threads behind them, and its descriptors share sockets, locks and files with
the parent's. Closing a descriptor would not do: the object that has it closes it again later, when its number may be
another file's. So /dev/null replaces it. EPOLL_CTL_DEL, shutdown and close_notify would reach the parent's sockets,
so the child uses none of them.

A C program's fork does not run the hook. So a part also compares process ids (`Origin`) before it stops, flushes or
sends.

A module that another thread was importing at the fork can never be imported in the child: that thread holds its lock.
So a fork waits for imports that a broker does by itself (`importing`).
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
"""How long a fork waits. The import may itself wait for a module of the forking thread."""
WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  # compared, not bound


class Inherited(Protocol):
    """What a child must let go."""

    def leave(self) -> None:
        """Called in the child, by its only thread, before the fork returns there. Must not wait for a lock."""


_imports = threading.RLock()
_fork = threading.local()
_registered: weakref.WeakSet[Inherited] = weakref.WeakSet()


def register(part: Inherited) -> None:
    """A child of this process will leave the part to the parent. The registration does not keep the part alive."""
    _registered.add(part)


def unregister(part: Inherited) -> None:
    """A part that has ended by itself has nothing to leave. Idempotent."""
    _registered.discard(part)


class Origin:
    """The process that made a part."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether it is this process, and not its parent."""
        return self._process == os.getpid()

    def refusal(self, part: str) -> str:
        """Why a child may not use the part."""
        here = os.getpid()
        return (
            f"this {part} belongs to process {self._process} and cannot be used in process {here}; create a new one "
            "after the fork"
        )


def abandon(descriptors: Iterable[int]) -> None:
    """Replaces descriptors with /dev/null without telling their peers. Skips -1."""
    wanted = [descriptor for descriptor in descriptors if descriptor >= 0]
    if not wanted:
        return
    try:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # the process has as many as it may have
        os.close(wanted[0])
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in wanted:
        if descriptor != null:
            os.dup2(null, descriptor, inheritable=False)
    if null not in wanted:
        os.close(null)


def keep_alive(part: object) -> None:
    """Never destroys an object: its destructors might wait for locks that threads of the parent held."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Hold back forks by other threads during an import. Must not be entered by a thread that imports for a program."""
    with _imports:
        yield


def open_below(directories: Iterable[str], addresses: Iterable[tuple[str, int]]) -> list[int]:
    """This process's descriptors of files in these directories, and of sockets bound to these (host, port)."""
    roots = [os.path.realpath(directory) for directory in directories]
    bound = set(addresses)
    found = []
    for name in os.listdir(DESCRIPTORS):
        with contextlib.suppress(OSError):  # the directory's own, which is closed by now
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
        with contextlib.suppress(OSError, ValueError):  # it is just being closed; the others are left all the same
            part.leave()


def _before_fork() -> None:
    _fork.waited = _imports.acquire(timeout=IMPORT_S_MAX)


def _end_fork() -> None:
    if _fork.waited:
        _imports.release()


os.register_at_fork(before=_before_fork, after_in_parent=_end_fork, after_in_child=_end_fork)
os.register_at_fork(after_in_child=_after_fork)
