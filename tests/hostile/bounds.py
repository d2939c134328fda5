"""Sizes of the attacks and bounds of what they may do, in one place."""

from __future__ import annotations

from typing import Final

MIB: Final = 1 << 20

SAMPLE_ITEMS: Final = 300
"""Names of a request in the quick run."""
ITEMS: Final = 90_000
"""Names of a request in the slow run."""

SAMPLE_SIZE: Final = 0.01
SIZE: Final = 1.0
"""How large the attacks are in the slow run that are no lists (`tests.kit.hostile.families`)."""

PIPELINED: Final = 1000

MEMORY_MAX: Final = (512 + 256) * MIB
"""RssAnon of a broker with the populace of the tests: the default of the ceiling, and 256 MiB."""

TURN_CPU_S_MAX: Final = 0.1
"""The longest turn of a network thread by the broker's own count: 20 ms, on a machine five times slower."""

WAIT_S: Final = 300.0
"""For work that has to end; the goal is a second, which the benchmark shows."""
HONEST_ROUNDS: Final = 5
"""Rounds of three requests that the honest client gets through at least."""
