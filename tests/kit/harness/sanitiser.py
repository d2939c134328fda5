"""Run under the address sanitizer, whose library LD_PRELOAD names for each process that loads our native modules.

It must precede any other preloaded library. Programs of others (a JVM, Node, a shell) run without it: they start slowly
with it or not at all, and it would check code that is not ours. Bus errors are left to the product (ASAN_OPTIONS),
whose `mapped_faults` handles them.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LIBRARY = "libasan"


def preloads(environment: Mapping[str, str], *, ours: bool, sanitiser: str) -> str:
    """What LD_PRELOAD of a program to start has to be."""
    others = [name for name in environment.get("LD_PRELOAD", "").split(":") if name and LIBRARY not in name]
    return ":".join([sanitiser, *others] if ours else others)


def is_ours(arguments: Any) -> bool:
    """Whether a command starts this Python, or a script beside it, if need be by a shell."""
    if isinstance(arguments, list) and arguments[:2] == ["sh", "-c"]:
        return sys.executable in arguments[2]
    first = arguments if isinstance(arguments, str | bytes | os.PathLike) else arguments[0]
    return Path(os.fsdecode(first)).parent == Path(sys.executable).parent


def install() -> None:
    """From here on, every program that is started gets the preloads it needs. Without a sanitiser nothing changes."""
    found = [name for name in os.environ.get("LD_PRELOAD", "").split(":") if LIBRARY in name]
    if not found:
        return
    plain = subprocess.Popen.__init__

    def start(self: Any, args: Any, *positional: Any, **named: Any) -> None:
        environment = dict(os.environ if named.get("env") is None else named["env"])
        environment["LD_PRELOAD"] = preloads(environment, ours=is_ours(args), sanitiser=found[0])
        plain(self, args, *positional, **{**named, "env": environment})

    subprocess.Popen.__init__ = start  # type: ignore[method-assign]
