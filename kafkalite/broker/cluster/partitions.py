"""Derive from a cluster's metadata image which partitions this broker has, and which of them it leads.

After the first image, only the changes between consecutive images are applied.

Source: ReplicaManager.applyDelta and LocalReplicaChanges of Kafka 4.1. Belongs to the metadata thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.cluster.image import EMPTY, RECOVERED
from kafkalite.broker.cluster.settings import topic_config
from kafkalite.broker.log.assigned import AssignedTopic
from kafkalite.broker.log.assignment import LOST, NOWHERE, Assignment

if TYPE_CHECKING:
    from kafkalite.broker.cluster.image import Image, PartitionState, TopicState
    from kafkalite.broker.log.assigned import AssignedTopics


class Partitions:
    """Gives the partitions of each image to the logs. `use` is a listener of the member."""

    def __init__(self, topics: AssignedTopics, node_id: int, incarnation: bytes) -> None:
        self._topics = topics
        self._node_id = node_id
        self._incarnation = incarnation
        self._used = EMPTY
        """The last image that was applied to the logs."""

    def use(self, _before: Image, now: Image) -> None:
        """Apply a new image to the logs.

        No log is opened before the image has this process's registration. An earlier image may lack partitions of this
        broker, and their directories would be set aside as strays.
        """
        own = now.brokers.get(self._node_id)
        if self._used is EMPTY and (own is None or own.incarnation != self._incarnation):
            return
        before = self._used
        if before is not EMPTY and now.topics is before.topics:
            self._used = now
            return
        removed = [topic_id for topic_id in before.topics if topic_id not in now.topics]
        changed = [
            self._assigned(topic, now)
            for topic_id, topic in now.topics.items()
            if before.topics.get(topic_id) is not topic
        ]
        if changed or removed or before is EMPTY:
            self._topics.use_topics(changed, removed)
        self._used = now  # only now: changes that failed are applied again with the next image

    def _assigned(self, topic: TopicState, image: Image) -> AssignedTopic:
        count = max(topic.partitions, default=-1) + 1
        known = [topic.partitions.get(number) for number in range(count)]
        partitions = [NOWHERE if each is None else self._assignment(each) for each in known]
        config = topic_config(self._topics.logs.config, image, topic.name)
        return AssignedTopic(topic.name, topic.id, config, partitions)

    def _assignment(self, partition: PartitionState) -> Assignment:
        own = self._node_id
        held = own in partition.replicas
        places = zip(partition.replicas, partition.directories, strict=True) if LOST in partition.directories else ()
        return Assignment(
            held=held,
            leads=held and partition.leader == own,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replicas=partition.replicas,
            isr=partition.isr,
            elr=partition.elr,
            partition_epoch=partition.epoch,
            recovering=partition.recovery != RECOVERED,
            directory=partition.directories[partition.replicas.index(own)] if held else b"",
            lost=tuple(node for node, place in places if place == LOST),
            others_whole=any(each != own for each in (*partition.isr, *partition.elr)),
        )
