"""Which topics the workload writes, and the numbers under which ledgers know their partitions (places)."""

from __future__ import annotations

from typing import Final

PLAIN: Final = "plain"
"""Idempotent producers write it; groups of both protocols and the copier read it."""
TRANSACTIONAL: Final = ("left", "right")
"""Each transaction writes to both."""
COPY: Final = "copy"
"""The copier's: each record of `plain` once, with its group's position in the same transaction."""
TOPICS: Final = (PLAIN, *TRANSACTIONAL, COPY)
PARTITIONS: Final = 4
REPLICAS: Final = 3
MIN_IN_SYNC: Final = 2
JAVA_GROUP: Final = "readers-java"
GROUPS: Final = {"readers-classic": "classic", "readers-consumer": "consumer", JAVA_GROUP: "consumer"}
"""Plain groups, which read `plain`, and their protocols."""
BURSTS: Final = "bursts"
"""Before a number: groups without members, of which some positions are committed one after the other, then none."""
COPIERS: Final = "copier"
"""The copier's group."""
_PLACES_A_TOPIC: Final = 1000


def place_of(topic: str, partition: int) -> int:
    """The number of a partition among those of all topics; that of a partition of `plain` is its own."""
    return TOPICS.index(topic) * _PLACES_A_TOPIC + partition


def topic_of(place: int) -> tuple[str, int]:
    """Topic and partition of a place."""
    return TOPICS[place // _PLACES_A_TOPIC], place % _PLACES_A_TOPIC


def burst(number: int) -> str:
    """The name of a group."""
    return f"{BURSTS}#{number}"


def kind_of(group: str) -> str:
    """What groups of several names have in common."""
    return group.partition("#")[0]


def places(*topics: str) -> list[int]:
    """Of all partitions of these topics."""
    return [place_of(topic, partition) for topic in topics for partition in range(PARTITIONS)]
