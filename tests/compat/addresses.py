"""Where the clients of a run find the broker, and by which door they have to come in there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from kafkalite.client import Security
    from tests.compat.doors import Door


class Address(str):
    """The host:port of a door. `plain`: the same broker's listener for readers without credentials."""

    door: Door
    plain: str

    def __new__(cls, door: Door, plain: str) -> Self:
        made = super().__new__(cls, door.bootstrap)
        made.door, made.plain = door, plain
        return made


def plain_of(bootstrap: str) -> str:
    """Where a neutral reader looks at what a client did at `bootstrap`."""
    return bootstrap.plain if isinstance(bootstrap, Address) else bootstrap


def librdkafka_at(bootstrap: str) -> dict[str, str]:
    """Settings with which librdkafka reaches it."""
    return bootstrap.door.librdkafka() if isinstance(bootstrap, Address) else {"bootstrap.servers": bootstrap}


def security_at(bootstrap: str) -> Security | None:
    """How kafkalite.client comes in there."""
    return bootstrap.door.security() if isinstance(bootstrap, Address) else None
