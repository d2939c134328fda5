"""End all processes that a test run started, also those of a worker that crashed.

When a worker dies, init adopts its children: a broker or a JVM would keep running, and a reader of the run's output
would wait for it. The process that began the run adopts them instead (prctl(2), PR_SET_CHILD_SUBREAPER).
"""

import ctypes
import os

import psutil

PR_SET_CHILD_SUBREAPER = 36
WAIT_S = 10


def adopt() -> None:
    """From now on orphans among this process's descendants become its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def end() -> list[str]:
    """Kills every descendant; returns the command lines of those that still ran."""
    ended = []
    children = psutil.Process(os.getpid()).children(recursive=True)
    for child in children:
        try:
            if child.status() != psutil.STATUS_ZOMBIE:
                ended.append(" ".join(child.cmdline()) or child.name())
                child.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(children, timeout=WAIT_S)
    return ended
