"""Read the memory limit that a container or a service manager has set for this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = "/sys/fs/cgroup"
MEMBERSHIP: Final = "/proc/self/cgroup"
UNLIMITED_MIN: Final = 1 << 60
"""Version 1 has no word for "no limit", but a number as large as this."""


def memory_limit(root: str = ROOT, membership: str = MEMBERSHIP) -> int | None:
    """Return the lowest memory limit, in bytes, of the process's cgroup and those above it; None without one.

    Source: the kernel's documentation, `memory.max` of cgroup v2 and `memory.limit_in_bytes` of v1.
    """
    found = [limit for path in _paths(root, membership) if (limit := _read(path)) is not None]
    return min(found, default=None)


def _paths(root: str, membership: str) -> Iterator[str]:
    try:
        with open(membership, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if not controllers:
            base, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = f"{root}/memory", "memory.limit_in_bytes"
        else:
            continue
        while place not in {"", "/"}:
            yield f"{base}{place}/{name}"
            place = os.path.dirname(place)
        yield f"{base}/{name}"  # in a container, where the root is its own cgroup


def _read(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() and int(text) < UNLIMITED_MIN else None
