"""Metadata hashes of groups, captured from Apache Kafka 4.1.0 and 4.4.0 by tests/integration/MetadataHashes.java."""

from __future__ import annotations

from typing import NamedTuple

RACKS = {1: "a", 2: None, 3: "eu-west-1b", 4: "Süd-😀", 5: "\uffee", 6: ""}
"""Broker → its rack; None: it has none. Java sorts 4's before 5's only as UTF-16. Broker 9 is not registered."""


class TopicCase(NamedTuple):
    """A topic as the controllers know it, and Kafka's hash of it."""

    name: str
    id: bytes
    replicas: list[list[int]]
    """Of each partition."""
    hash: int

    @property
    def racks(self) -> list[list[str]]:
        """Of each partition's replicas."""
        return [[rack for node in nodes if (rack := RACKS.get(node)) is not None] for nodes in self.replicas]


CASES = [
    TopicCase("orders", bytes(range(16)), [[2]], 5571354289513992727),
    TopicCase("orders.paid", b"\xff" * 8 + b"\x80" + bytes(7), [[2], [9], [2, 9]], -4777706688877063986),
    TopicCase("a", bytes(15) + b"\x07", [[3, 1], [1, 3], [1, 2, 3]], 5243299767472496115),
    TopicCase("b", bytes(range(1, 17)), [[1], [1], [1]], -2393372918154256083),
    TopicCase("empty-rack", bytes(range(2, 18)), [[6], [6, 1], [2]], -1785727107169582998),
    TopicCase("sorted-as-utf-16", bytes(range(240, 256)), [[5, 4, 1], [4, 5]], 5068345366209513970),
    TopicCase("Großhändler-日本-😀", bytes(range(3, 19)), [[1, 4], [3]], 3529263809056747815),
    TopicCase("n" * 249, bytes(range(4, 20)), [[1, 2, 3]] * 4, 8017607937220532825),
    TopicCase(
        "large", bytes(range(5, 21)), [[number % 4 + 1, number % 3 + 1] for number in range(1000)], 8803836257429520829
    ),
]
GROUP_HASH = 4465086896515705089
"""Of a group that reads all of them."""
