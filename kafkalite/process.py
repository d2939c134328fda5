"""What a broker asks of its process: descriptors, and what is loaded before the first client wants it."""

from __future__ import annotations

import importlib
import logging
import resource
import threading
from typing import Final

logger = logging.getLogger("kafkalite.broker")

_END_OF_START_S: Final = 0.01
"""How long the end of a start, which says that the broker is ready, has the interpreter to itself."""
_ASKED_FIRST: Final = ("kafkalite.handlers.metadata", "kafkalite.handlers.create_topics", "numpy")


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
            importlib.import_module(name)
        except Exception:
            logger.debug("%s could not be loaded ahead", name, exc_info=True)


def raise_descriptor_limit() -> int:
    """Lifts the soft limit of open files to the hard one; returns what is allowed now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard
