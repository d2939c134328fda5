"""Producer ids: one that was given out is never given out again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.power.promises.base import Past, Promise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.power.look import Look


class ProducerIdsOnce(Promise):
    """Idempotent and transactional producers ask for them all the time; here they are only looked at."""

    name = "producer ids"

    def check_after(self, past: Past, look: Look) -> Iterator[str]:
        own = past.ops("producer ids")
        given = Counter(op.result["id"] for op in own if past.promised(op) and op.result is not None)
        twice = [number for number, count in given.items() if count > 1]
        if twice:
            yield f"producer ids {twice} were given out twice"
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = look.ask(api.INIT_PRODUCER_ID, 4, request)
        newest = max(given, default=-1)
        if answer.error_code or answer.producer_id <= newest:  # ids rise for every client
            yield f"a new producer gets id {answer.producer_id} (error {answer.error_code}), and {newest} was given out"
