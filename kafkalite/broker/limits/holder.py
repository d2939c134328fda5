"""Identify the *holder* to which resources of the broker are charged: a principal at an address.

A client chooses its client id and opens as many connections as it likes, so neither can identify it. The authenticated
principal and the address can.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import NamedTuple


class Holder(NamedTuple):
    """A principal (`User:name`) and the network from which it connects: an IPv4 address, or the /64 network of an IPv6
    one.
    """

    principal: str
    network: str

    def __str__(self) -> str:
        return f"{self.principal} at {self.network}"


def holder_of(principal: str, client_host: str) -> Holder:
    """Return the holder of a connection with this principal and address."""
    return Holder(principal, network_of(client_host))


@lru_cache(maxsize=1024)
def network_of(client_host: str) -> str:
    """Return the network of a client's address: for IPv4 the address itself, for IPv6 its /64 network.

    An IPv6 host usually owns a whole /64 network. Any other text is returned unchanged.
    """
    try:
        address = ipaddress.ip_address(client_host.partition("%")[0])
    except ValueError:
        return client_host
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
