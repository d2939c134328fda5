"""The interface of a promise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.history import History, Op
    from tests.power.look import Look
    from tests.power.world import Actor, World

TopicPlan = tuple[int, dict[str, str]]
"""Partitions and settings of a topic that the run begins with."""


@dataclass(frozen=True)
class Past:
    """What had been asked for and answered at a moment."""

    history: History
    moment: int

    def ops(self, promise: str) -> list[Op]:
        """What of a promise can be there, in the order in which each client began it."""
        return [op for op in self.history.ops.get(promise, ()) if op.possible(self.moment)]

    def promised(self, op: Op) -> bool:
        return op.promised(self.moment)

    @cached_property
    def senders(self) -> dict[int, Op]:
        """Token → the first request that carried its record."""
        found: dict[int, Op] = {}
        for op in self.history.ops.get("records", ()):
            for token in range(op.what["first"], op.what["first"] + op.what["count"]):
                found.setdefault(token, op)  # a batch that was sent again: the first time counts
        return found


class Promise:
    """One kind of thing that an answer promises. Subclasses have a name and do what they need of the rest."""

    name = ""

    def topics(self, world: World) -> dict[str, TopicPlan]:
        """Topics to make before anything else."""
        del world
        return {}

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        """(name, what it does until the end) of each client."""
        del world
        return ()

    def check(self, past: Past, look: Look) -> Iterator[str]:
        """Yield a sentence for each thing missing or unexpected in a broker started on a state."""
        del past, look
        return iter(())

    def check_after(self, past: Past, look: Look) -> Iterator[str]:
        """The same for what has to be changed in order to be seen; `look.logs` is as it was before."""
        del past, look
        return iter(())
