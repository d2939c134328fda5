"""Detect system functions that a test tool has replaced, before a broker starts in this process.

With fake files, a broker would lose acknowledged records. With gevent, its threads could not wait. Time functions are
not checked, because the broker uses native ones (kafkalite._native.base.native_time).
"""

from __future__ import annotations

import _thread
import os
import select
import socket
from types import BuiltinFunctionType
from typing import Final

from kafkalite.errors import StartupError

PLACES: Final = "start the broker in its own process (`kafkalite start`, kafkalite.testing.KafkaBroker)"


def check_system() -> None:
    """Raise StartupError, with the name of the function, if a function for files, sockets, selectors or threads is
    replaced."""
    found: tuple[tuple[str, object, bool], ...] = (
        ("os.open", os.open, isinstance(os.open, BuiltinFunctionType)),
        ("socket.socket", socket.socket, socket.socket.__module__ == "socket"),
        ("select.epoll", select.select, hasattr(select, "epoll")),
        ("select.select", select.select, isinstance(select.select, BuiltinFunctionType)),
        ("threads", _thread.start_new_thread, isinstance(_thread.start_new_thread, BuiltinFunctionType)),
    )
    for name, function, is_native in found:
        if not is_native:
            replacer = str(getattr(function, "__module__", None) or type(function).__module__).partition(".")[0]
            raise StartupError(f"{replacer} has replaced {name}, which a broker needs unchanged; {PLACES}")
