"""Look up the racks of replicas in a cluster's image, for the metadata hash of a group's topics.

If a broker registers in another rack, the hash of a topic does not change at once. It changes with the next change of
the topic's partitions, for example when the broker is in sync again. GroupMetadataManager of Kafka 4.1 does the same.

Any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.cluster.image import BrokerState, Image


class ReplicaRacks:
    """The racks of a cluster's replicas. Implements `Racks` of `kafkalite.broker.coordinator.metadata_hash`."""

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image

    def state_of(self, topic: Topic) -> object:
        return self._image().topics.get(topic.id)

    def racks_of(self, topic: Topic) -> Sequence[Collection[str]]:
        image = self._image()
        state = image.topics.get(topic.id)
        if state is None:  # being deleted
            return ((),) * len(topic.partitions)
        known = [state.partitions.get(number) for number in range(len(topic.partitions))]
        return [() if each is None else _racks(each.replicas, image.brokers) for each in known]


def _racks(replicas: Sequence[int], brokers: Mapping[int, BrokerState]) -> list[str]:
    found = [brokers[node_id].rack for node_id in replicas if node_id in brokers]
    return [rack for rack in found if rack is not None]
