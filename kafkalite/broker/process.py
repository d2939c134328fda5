"""Prepare the process for a broker: descriptor limit, heap, GIL, and the libraries that the first requests need."""

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
"""How long the end of a start, which reports that the broker is ready, runs before the warm-up competes with it."""
_ASKED_FIRST: Final = ("kafkalite.broker.handlers.metadata", "kafkalite.broker.handlers.create_topics", "numpy")
_LIBRARIES: Final = ("numpy", "cramjam", "zstandard", "hashlib", "xxhash", "kafkalite._native.wire.columns")
"""Libraries that requests load when they first need them.

A library that fails to load for lack of memory fails at every later attempt; numpy's OpenBLAS even ends the process.
"""
LIBRARIES_SIZE: Final = 160 << 20
"""Bytes of address space in which these libraries can be loaded; 90 MiB of them are used (x86-64, numpy 2.4)."""


ARENAS: Final = 2
MAPPED_SIZE_MIN: Final = 1 << 20
HEAP_KEPT_SIZE: Final = 8 << 20
"""Free bytes that glibc keeps; the constants before it are glibc's number of arenas, and the size from which a block is
a separate mapping."""
SWITCH_INTERVAL_S: Final = 0.0001
"""How long a thread waits for the GIL before it asks the holder to release it; Python's default is 5 ms.

A network thread that a client keeps busy releases the GIL often but takes it again at once. So flusher, I/O pool and
other network threads get it only after this interval, several times for each synced record.
"""


def own_process() -> None:
    """Limit the memory that libraries take in a process that runs only the broker. Call it before any thread starts.

    numpy's OpenBLAS must not start a thread per processor, since a broker multiplies no matrices. glibc's heap gets few
    arenas and returns memory after a peak. For both, a value in the environment is kept. Threads release the GIL after
    SWITCH_INTERVAL_S.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        heap.bound_heap(ARENAS, MAPPED_SIZE_MIN, HEAP_KEPT_SIZE)


def address_space_limit() -> int | None:
    """Return the soft limit of the process's address space in bytes (`ulimit -v`), or None if there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def load_libraries() -> None:
    """Load all libraries now if the address space is limited, so that no load fails later, during requests.

    Raises StartupError if the libraries do not fit. Without a limit this does nothing: `warm_up` and the first requests
    load the libraries.
    """
    limit = address_space_limit()
    if limit is None:
        return
    if "numpy" not in sys.modules:  # otherwise an application runs the broker
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
    """Run `warm_up` on a separate thread once the start is over."""
    timer = threading.Timer(_END_OF_START_S, warm_up)
    timer.name, timer.daemon = "kafkalite-warm-up", True
    timer.start()


def warm_up() -> None:
    """Load the modules for which the first requests would otherwise wait.

    Errors are ignored: a module that cannot be loaded now raises its error where it is used. For example, Python 3.11
    raises SystemError if two threads compile syntax trees at the same time, as pytest does when it rewrites modules.
    """
    for name in _ASKED_FIRST:
        try:
            with forks.importing():
                importlib.import_module(name)
        except Exception:
            logger.debug("could not preload %s", name, exc_info=True)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit. Return the limit that is now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard
