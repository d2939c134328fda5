"""Random but reproducible message instances, of any API, version and direction, from the field tables."""

import random
import sys
from dataclasses import dataclass, field
from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.wire import protocol
from kafkalite.wire.protocol.api import APIS
from kafkalite.wire.protocol.schema import covers

REQUEST = "request"
RESPONSE = "response"

EVERY_MESSAGE = [
    (api.key, version, direction)
    for api in APIS.values()
    for version in range(api.oldest, api.newest + 1)
    for direction in (REQUEST, RESPONSE)
]

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("", "a", "topic-1", "żółć", "日本語", "x" * 127, "y" * 128, "z" * 300)
# kio refuses codes it does not know, and keeps times as datetime.
ERROR_CODES = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    0,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
TIME_MS_MAX = 4_000_000_000_000


def message_id(case: tuple[int, int, str]) -> str:
    key, version, direction = case
    return f"{APIS[key].name}-v{version}-{direction}"


def program(key: int, version: int, direction: str) -> protocol.Program:
    return (protocol.request_program if direction == REQUEST else protocol.response_program)(key, version)


@dataclass
class MessageMaker:
    """Fills the fields that a version has; the others keep their defaults, as after decoding."""

    seed: int
    items_max: int = 3
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def make(self, key: int, version: int, direction: str) -> Any:
        return self.make_struct(program(key, version, direction).message, version)

    def make_struct(self, cls: type, version: int) -> Any:
        values = {}
        for name, kind, versions, nullable, tag, _ in (row + ("",) * (6 - len(row)) for row in cls.FIELDS):
            if covers(versions, version) and not (tag and self.rng.random() < 0.5):
                values[name] = self.make_value(cls, name, kind, covers(nullable, version), version)
        return cls(**values)

    def make_value(self, cls: type, name: str, kind: str, nullable: bool, version: int) -> Any:
        if nullable and self.rng.random() < 0.25:
            return None
        if kind.startswith("[]"):
            count = self.rng.randint(0, self.items_max)
            return [self.make_value(cls, name, kind[2:], False, version) for _ in range(count)]
        if kind[0].isupper():
            return self.make_struct(getattr(sys.modules[cls.__module__], kind), version)
        return self.make_scalar(name, kind)

    def make_scalar(self, name: str, kind: str) -> Any:
        rng = self.rng
        if name.endswith("error_code"):
            return rng.choice(ERROR_CODES)
        if name.endswith("_ms") and kind == "int64":
            return rng.randint(0, TIME_MS_MAX)
        if kind in INTEGER_BITS:
            bits = INTEGER_BITS[kind]
            low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
            return rng.choice((low, -1, 0, 1, high, rng.randint(low, high)))
        if kind in ("uint16", "uint32"):
            return rng.randint(0, (1 << int(kind[4:])) - 1)
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "float64":
            return rng.uniform(-1e9, 1e9)
        if kind == "uuid":
            return rng.randbytes(16)
        if kind == "string":
            return rng.choice(TEXTS)
        return rng.randbytes(rng.choice((0, 1, 126, 127, 128, 200)))
