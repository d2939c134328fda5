"""Any API in any version over a socket, in typed messages; `tests.kit.harness.wire` encodes a few by hand.

The messages are encoded by kafkalite's own codec, which `tests/parity` and `tests/integration/test_every_version.py`
compare with another one. One blocking socket; not thread-safe. `send` and `receive` are separate, so that a test can
delay or repeat a request.
"""

from __future__ import annotations

from typing import Any

from kafkalite.wire import protocol
from kafkalite.wire.protocol import api, header
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kit.harness import wire


class TypedConnection(wire.Connection):
    """A connection that speaks in messages of kafkalite.wire.protocol."""

    client_id: str | None = "typed"

    def send_message(self, key: int, version: int, message: object) -> tuple[int, int]:
        """Sends a request; what `receive_message` needs to read its answer."""
        self.correlation_id += 1
        self.send_bytes(protocol.encode_request_frame(key, version, self.correlation_id, self.client_id, message))
        return key, version

    def receive_message(self, key: int, version: int) -> Any:
        """The next answer, which must be to a request of this API and version."""
        answer = self.receive_exactly(int.from_bytes(self.receive_exactly(4), "big"))
        _, position = header.decode_response_header(key, version, answer)
        return protocol.decode_response(key, version, answer[position:])

    def ask(self, key: int, version: int, message: object) -> Any:
        """A request and its answer."""
        return self.receive_message(*self.send_message(key, version, message))

    def topic_id(self, name: str) -> bytes:
        """The id of a topic; zeros when there is none."""
        answer = self.ask(api.METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
        return bytes(answer.topics[0].topic_id)
