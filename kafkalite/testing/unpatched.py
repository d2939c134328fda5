"""Keep the operating system's functions as they were before a test could replace them.

The functions are stored when the plugin is loaded, as attributes of a class. Test tools do not replace these: pyfakefs
replaces modules and functions in the namespaces of all modules, pytest-socket and gevent replace functions in their own
modules.
"""

from __future__ import annotations

import fcntl
import os
import select
import time


class Unpatched:
    """The system functions that the parent of a broker's process calls, as class attributes. No test tool replaces
    these."""

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
