"""How kafka-python comes in: by a door, or where an address says."""

from __future__ import annotations

import warnings
from typing import Any

from tests.compat.addresses import Address
from tests.compat.doors import Door, python_sasl, unsecured_token

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own use of deprecated standard library calls
    from kafka.net.sasl.oauth import AbstractTokenProvider


class Tokens(AbstractTokenProvider):
    def __init__(self, user: str) -> None:
        self._user = user

    def token(self) -> str:
        return unsecured_token(self._user)


def settings_of(door: Door) -> dict[str, Any]:
    """What its clients are made with to go through `door`."""
    found = {
        "bootstrap_servers": door.bootstrap,
        "security_protocol": door.protocol,
        "ssl_cafile": door.ca,
        "ssl_certfile": door.certificate or None,
        "ssl_keyfile": door.key or None,
    }
    return found | python_sasl(door, Tokens)


def kafka_python_at(bootstrap: str) -> dict[str, Any]:
    """What its clients are made with to reach an address."""
    return settings_of(bootstrap.door) if isinstance(bootstrap, Address) else {"bootstrap_servers": bootstrap}
