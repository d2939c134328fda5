"""Describe, for the health page, the memory that the broker holds for clients.

The module `kafkalite._native.serve.memory` counts this memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.base.available_memory import MIB

if TYPE_CHECKING:
    from kafkalite._native.serve.memory import MemoryCeiling


def describe(ceiling: MemoryCeiling) -> str:
    """Return one sentence for the health page: how much memory is held, and for which holders most of it."""
    size_max = ceiling.size_max
    assert size_max is not None, "a broker has a ceiling"
    most = "; ".join(f"{holder} holds {held // MIB} MiB" for holder, held in ceiling.biggest(3))
    return (
        f"clients use {ceiling.held // MIB} of {size_max // MIB} MiB of the broker's memory (broker.memory.max): {most}"
    )
