"""A process that burns a share of the CPU: `python -m tests.kit.hostile.burner`, what the baseline runs next to.

Burners(1.3)  ── starts ──▶ a process that never sleeps, and one that works 3 ms of every 10
"""

from __future__ import annotations

import sys
import time
from typing import Self

from tests.kit.hostile.flood import Program

PERIOD_S = 0.01


class Burners:
    """Processes that use a given number of CPU seconds per second, for the length of a with block."""

    def __init__(self, load: float) -> None:
        shares = [1.0] * int(load) + ([load % 1] if load % 1 > 0.02 else [])
        self._programs = [Program("tests.kit.hostile.burner", str(share)) for share in shares]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for program in self._programs:
            program.close()


def burn(share: float, seconds: float) -> None:
    """Works for the share of each period by this process's own CPU clock, and sleeps for the rest."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        until = time.process_time() + PERIOD_S * share
        while time.process_time() < until:
            pass
        if share < 1:
            time.sleep(PERIOD_S * (1 - share))


if __name__ == "__main__":
    burn(float(sys.argv[1]), 600)
