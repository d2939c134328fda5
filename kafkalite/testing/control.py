"""Encode the messages between a test and its broker's process: a size, then JSON.

    request   {"id": [process, number], "call": NAME, "arguments": [...], "named": {...}}
    answer    {"id": the same, "value": ...}    or    {"id": the same, "error": {...}}

An error keeps its text and, if it is kafkalite's or a built-in error, usually its class. The id consists of the
requesting process and the number of the request.
"""

from __future__ import annotations

import importlib
import json
from typing import Any, Final

from kafkalite.errors import KafkaError, error_for

SIZE_BYTES: Final = 4
HOME: Final = frozenset({"builtins", "kafkalite"})
"""Packages whose exceptions are recreated in the parent."""
END: Final = "end"
"""The call that ends the process, without an answer: a forked child may keep the pipe open."""
PLAIN: Final = str | int | float | None


def frame(message: object) -> bytes:
    """Return the bytes of a message. TypeError if a value cannot be encoded."""
    body = json.dumps(message).encode()
    return len(body).to_bytes(SIZE_BYTES, "big") + body


class Frames:
    """Splits the bytes of a pipe into messages."""

    def __init__(self) -> None:
        self._bytes = b""

    def add(self, data: bytes) -> None:
        """Append bytes read from the pipe."""
        self._bytes += data

    def next(self) -> Any:
        """Return the next complete message, or None if no message is complete."""
        body = SIZE_BYTES + int.from_bytes(self._bytes[:SIZE_BYTES], "big")
        if len(self._bytes) < max(body, SIZE_BYTES):
            return None
        message = json.loads(self._bytes[SIZE_BYTES:body])
        self._bytes = self._bytes[body:]
        return message


def described(error: BaseException) -> dict[str, object]:
    """Encode an exception as a dictionary for a message."""
    kind = type(error)
    return {
        "module": kind.__module__,
        "class": kind.__qualname__,
        "text": str(error),
        "arguments": [item for item in error.args if isinstance(item, PLAIN)],
        "attributes": {name: item for name, item in vars(error).items() if isinstance(item, PLAIN)},
        "code": int(error.code) if isinstance(error, KafkaError) else None,
    }


def rebuilt(message: dict[str, Any]) -> BaseException:
    """Recreate the exception that `described` encoded; RuntimeError if its class is not in HOME or does not fit."""
    module, name, text = message["module"], message["class"], message["text"]
    if message["code"] is not None:
        return error_for(message["code"], text)
    kind: Any = importlib.import_module(module) if module.partition(".")[0] in HOME else None
    for part in name.split("."):
        kind = getattr(kind, part, None)
    if isinstance(kind, type) and issubclass(kind, BaseException):
        error = kind.__new__(kind, *message["arguments"])
        vars(error).update(message["attributes"])
        if str(error) == text:
            return error
    return RuntimeError(f"{module}.{name}: {text}")
