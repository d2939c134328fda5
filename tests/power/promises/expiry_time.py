"""The expiry time: a stored one survives a power cut, and a start whose clock is days ahead begins with it.

Storing it acknowledges nothing. But one thread stores it, and renames it last: a client that sees a newer one knows
that the previous one is on the disk. An actor watches the file, and sends the broker any request after each change;
from the response on, the previous one counts as promised.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kafkalite.broker.log import expiry_checkpoint
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.metadata import MetadataRequest
from tests.power.promises.base import Past, Promise
from tests.power.world import Gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.look import Look
    from tests.power.world import Actor, World

AHEAD_MS = 8 * 86_400_000
"""By how much the clock of a judged broker is ahead."""
SLACK_MS = 60_000
"""Between the moment at which a request begins and the time that is noted for it."""


class ExpiryTimes(Promise):
    """The file is watched; a judged broker is started with a clock that is ahead (AHEAD_MS)."""

    name = "expiry time"

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        yield "expiry time", _watch

    def check(self, past: Past, look: Look) -> Iterator[str]:
        own = past.ops(self.name)
        least = max((op.what["stored_ms"] for op in own if past.promised(op)), default=0)
        if not least:
            return
        if look.stored is None:
            yield "none is stored"
            return
        later = [op.what["wall_ms"] for op in past.history.ops[self.name] if not op.possible(past.moment)]
        most = min(later, default=past.history.settings["ended_ms"]) + SLACK_MS
        if not least <= look.stored.time_ms <= most:
            yield f"{look.stored.time_ms} is stored, and it has to be from {least} to {most}"
        if not 0 <= look.expiry_ms - look.stored.time_ms < AHEAD_MS // 2:
            yield f"the broker began with {look.expiry_ms}, and {look.stored.time_ms} is stored"


def _watch(actor: Actor) -> None:
    seen = 0

    def step() -> None:
        nonlocal seen
        found = expiry_checkpoint.read(str(actor.world.broker.data_dir))
        if found is None or found.time_ms == seen:
            if not actor.world.serves(actor.run):
                raise Gone
            actor.come_again()
            return
        before, seen = seen, found.time_ms
        what = {"stored_ms": before, "wall_ms": time.time_ns() // 1_000_000}
        actor.attempt("expiry time", what, api.METADATA, 9, MetadataRequest(topics=[]), succeeded=lambda _answer: {})

    actor.rounds(step)
