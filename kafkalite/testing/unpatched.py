"""Keep functions of the operating system as they were before a test could replace them.

They are stored as attributes of a class when the plugin is loaded. Test tools such as pyfakefs, pytest-socket and
gevent replace functions of modules, but not attributes of this class.
"""

from __future__ import annotations

import fcntl
import os
import select
import time


class Unpatched:
    """The system functions that the parent of a broker's process calls, as class attributes. Test tools do not replace
    them."""

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
