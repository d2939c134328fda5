"""How aiokafka comes in: by a door, or where an address says."""

from __future__ import annotations

import ssl
from typing import Any

from aiokafka.abc import AbstractTokenProvider

from tests.compat.addresses import Address
from tests.compat.doors import Door, python_sasl, unsecured_token


class Tokens(AbstractTokenProvider):
    def __init__(self, user: str) -> None:
        self._user = user

    async def token(self) -> str:
        return unsecured_token(self._user)


def settings_of(door: Door) -> dict[str, Any]:
    """What its clients are made with to go through `door`."""
    context = ssl.create_default_context(cafile=door.ca)
    if door.certificate:
        context.load_cert_chain(door.certificate, door.key)
    found = {"bootstrap_servers": door.bootstrap, "security_protocol": door.protocol, "ssl_context": context}
    return found | python_sasl(door, Tokens)


def aiokafka_at(bootstrap: str) -> dict[str, Any]:
    """What its clients are made with to reach an address."""
    return settings_of(bootstrap.door) if isinstance(bootstrap, Address) else {"bootstrap_servers": bootstrap}
