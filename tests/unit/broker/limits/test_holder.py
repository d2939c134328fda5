"""Holders: which connections share one share of the broker."""

import pytest

from kafkalite.broker.limits.holder import Holder, holder_of


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("localhost", "localhost"),
    ],
)
def test_an_address_counts_as_its_network(host: str, network: str) -> None:
    assert holder_of("User:alice", host) == Holder("User:alice", network)


def test_two_principals_at_one_address_are_two_holders() -> None:
    assert holder_of("User:alice", "192.0.2.7") != holder_of("User:bob", "192.0.2.7")


def test_a_holder_is_shown_with_principal_and_network() -> None:
    assert str(holder_of("User:alice", "192.0.2.7")) == "User:alice at 192.0.2.7"
