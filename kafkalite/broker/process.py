"""What a broker asks of its process: descriptors, and what is loaded before the first client wants it."""

from __future__ import annotations

import importlib
import logging
import mmap
import os
import resource
import sys
import threading
from typing import Final

from kafkalite._native.base import heap
from kafkalite.base import forks
from kafkalite.errors import StartupError

logger = logging.getLogger("kafkalite.broker")

_END_OF_START_S: Final = 0.01
"""How long the end of a start, which says that the broker is ready, has the interpreter to itself."""
_ASKED_FIRST: Final = ("kafkalite.broker.handlers.metadata", "kafkalite.broker.handlers.create_topics", "numpy")
_LIBRARIES: Final = ("numpy", "cramjam", "zstandard", "hashlib", "xxhash", "kafkalite._native.wire.columns")
"""What requests load when they first need it. A library that finds no room fails at every later try, too; numpy's
OpenBLAS even ends the process."""
LIBRARIES_SIZE: Final = 160 << 20
"""Bytes of address space in which these libraries can be loaded; 90 MiB of them are used (x86-64, numpy 2.4)."""


ARENAS: Final = 2
MAPPED_SIZE_MIN: Final = 1 << 20
HEAP_KEPT_SIZE: Final = 8 << 20
"""glibc's arenas, the size from which a block is a mapping that is given back when freed, and free bytes that stay."""
SWITCH_INTERVAL_S: Final = 0.0001
"""How long a thread waits for the interpreter before the one that has it must hand it over; Python's default is 5 ms. A
network thread that a client keeps busy gives the interpreter back often but takes it again at once, so that flusher,
I/O pool and other network threads get it by this interval alone, several times for each record that is synced."""


def own_process() -> None:
    """Bound what libraries take in a process that is the broker's own, before its threads start.

    numpy's OpenBLAS starts no thread for each processor, since a broker multiplies no matrices; a number that the
    environment has stays. glibc's heap has few arenas and gives back what a peak has taken, unless the environment says
    something about it. Threads hand the interpreter over after SWITCH_INTERVAL_S.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        heap.bound_heap(ARENAS, MAPPED_SIZE_MIN, HEAP_KEPT_SIZE)


def address_space_limit() -> int | None:
    """Return the soft limit of the process's address space in bytes (`ulimit -v`); None without one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def load_libraries() -> None:
    """Load all libraries now if the address space is limited, so that none has to find room while requests are served.

    Without a limit, warm_up() and the first requests that need them load them. StartupError: they do not fit.
    """
    limit = address_space_limit()
    if limit is None:
        return
    if "numpy" not in sys.modules:  # else it is an application that runs the broker
        try:
            mmap.mmap(-1, LIBRARIES_SIZE).close()
        except OSError:
            raise StartupError(
                f"the address space limit (ulimit -v) of {limit >> 20} MiB leaves less than the "
                f"{LIBRARIES_SIZE >> 20} MiB that the broker's libraries need; raise it, or limit memory with a "
                "cgroup (MemoryMax=) instead"
            ) from None
    for name in _LIBRARIES:
        importlib.import_module(name)
    warm_up()


def warm_up_soon() -> None:
    """Has a thread of its own do warm_up() once the start is over."""
    timer = threading.Timer(_END_OF_START_S, warm_up)
    timer.name, timer.daemon = "kafkalite-warm-up", True
    timer.start()


def warm_up() -> None:
    """Loads, once clients can connect, what their first requests would otherwise wait for.

    What cannot be loaded now is asked for again by whoever needs it, and fails there. (Python 3.11 raises SystemError
    where two threads make syntax trees at a time, as they do under pytest, which rewrites what is imported.)
    """
    for name in _ASKED_FIRST:
        try:
            with forks.importing():
                importlib.import_module(name)
        except Exception:
            logger.debug("could not preload %s", name, exc_info=True)


def raise_descriptor_limit() -> int:
    """Lifts the soft limit of open files to the hard one; returns what is allowed now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard
