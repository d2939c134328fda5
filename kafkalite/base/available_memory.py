"""Find how much memory this process can use: the machine's memory, or the limit of its container or service.

Reads the kernel's files that proc(5) and the kernel's cgroup documentation describe.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB: Final = 1024 * 1024
DEFAULT_MAX: Final = 512 * MIB
SMALLEST: Final = 16 * MIB
"""The smallest ceiling: sixteen requests of a megabyte."""
_CGROUPS: Final = "/sys/fs/cgroup"


def ram_size() -> int:
    """Return the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cgroup_limit(root: str = _CGROUPS, membership: str = "/proc/self/cgroup") -> int | None:
    """Return the memory limit of this process's cgroup in bytes; None without a limit.

    The limit is the smallest one of the cgroup and its parents. In cgroup version 2, it is in the files `memory.max`
    and `memory.high`. In version 1, it is in `memory.limit_in_bytes` of the memory controller.
    """
    limits = [limit for path in _limit_files(root, membership) if (limit := _read_limit(path)) is not None]
    return min(limits, default=None)


def available_size() -> int:
    """Return the memory that this process can use, in bytes.

    It is the smaller of the machine's memory and the cgroup's limit.
    """
    limit = cgroup_limit()
    return ram_size() if limit is None else min(ram_size(), limit)


def default_ceiling() -> int:
    """Return the default of the setting broker.memory.max, in bytes.

    It is a quarter of the available memory, but at most 512 MiB and at least 16 MiB.
    """
    return max(SMALLEST, min(DEFAULT_MAX, available_size() // 4))


def _limit_files(root: str, membership: str) -> Iterator[str]:
    try:
        with open(membership, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            names, base = ["memory.max", "memory.high"], root
        elif "memory" in controllers.split(","):
            names, base = ["memory.limit_in_bytes"], f"{root}/memory"
        else:
            continue
        while True:
            yield from (f"{base}{place.rstrip('/')}/{name}" for name in names)
            if place in {"", "/"}:
                break
            place = os.path.dirname(place)


def _read_limit(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() and 0 < int(text) < 1 << 60 else None
