"""Functions of the system as they were when the plugin was loaded, which is before any test.

pyfakefs replaces modules and functions among the names of every module, pytest-socket and gevent replace functions in
their modules. Names of a class stay.
"""

from __future__ import annotations

import fcntl
import os
import select
import time


class Unpatched:
    """What the parent of a broker's process calls, as attributes that stay when a test replaces the functions."""

    close = staticmethod(os.close)
    control_file = staticmethod(fcntl.fcntl)
    environ = os.environ
    file_status = staticmethod(os.fstat)
    getpid = staticmethod(os.getpid)
    kill = staticmethod(os.kill)
    lock_file = staticmethod(fcntl.lockf)
    memory_file = staticmethod(os.memfd_create)
    pipe = staticmethod(os.pipe)
    poll = staticmethod(select.poll)
    posix_spawn = staticmethod(os.posix_spawn)
    read = staticmethod(os.read)
    read_at = staticmethod(os.pread)
    sleep = staticmethod(time.sleep)
    wait_for = staticmethod(os.waitpid)
    write = staticmethod(os.write)
