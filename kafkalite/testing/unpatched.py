"""Keep the operating system's functions as they were when the plugin was loaded, before a test could replace them.

pyfakefs replaces modules and functions in the namespaces of all modules; pytest-socket and gevent replace functions in
their own modules. None of them replaces attributes of a class, so the functions are kept there.
"""

from __future__ import annotations

import fcntl
import os
import select
import time


class Unpatched:
    """The functions that the parent of a broker's process calls, as class attributes, which no test tool replaces."""

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
