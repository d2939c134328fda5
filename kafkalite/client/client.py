"""The client's entry point: Client looks up metadata and offsets and creates readers, producers and admin interfaces.

Thread rule: a Client and everything that it creates belong to one thread at a time.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.cluster import READ_UNCOMMITTED, Cluster
from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError, UnknownTopicOrPartition
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from re import Pattern

    from kafkalite.client.admin.acls import Acls
    from kafkalite.client.admin.admin import Admin
    from kafkalite.client.admin.groups import Groups
    from kafkalite.client.admin.quotas import ClientQuotas
    from kafkalite.client.admin.reassignments import Reassignments
    from kafkalite.client.admin.transactions import TransactionAdmin
    from kafkalite.client.admin.users import Users
    from kafkalite.client.cluster import TopicDescription
    from kafkalite.client.group.group_reader import GroupReader
    from kafkalite.client.read.reader import Chunk, Reader
    from kafkalite.client.write.producer import Delivery, Producer
    from kafkalite.wire.record.columns import Record, RecordColumns


CREATION_S: Final = 10.0
"""How long `topic` waits for a topic that a broker is creating."""
AUTO_CREATE: Final = "auto.create.topics.enable"


class Client(Cluster):
    """A Cluster with readers, producers and administration. Options and errors are those of Cluster.

    Each part is imported when it is first used.
    """

    def topic(self, name: str, *, create: bool = False) -> TopicDescription:
        """Describe one topic. With `create`, let a broker create a missing topic, and wait until the topic exists."""
        deadline = time.monotonic() + min(CREATION_S, self.retry_timeout_s)
        while True:
            try:
                return super().topic(name, create=create)
            except UnknownTopicOrPartition:
                # Apache Kafka returns this error while it creates the topic.
                if not create or time.monotonic() > deadline or not self._makes_topics():
                    raise
            time.sleep(self.retry_backoff_s)

    def _makes_topics(self) -> bool:
        """Return whether brokers auto-create topics; True if no broker reports the setting."""
        try:
            entries = self.admin.describe_broker_configs(min(self._brokers), [AUTO_CREATE])
        except (KafkaError, ClientError):
            return True
        return all(entry.value != "false" for entry in entries)

    @property
    def admin(self) -> Admin:
        """The interface for topics, configurations and other administration."""
        from kafkalite.client.admin.admin import Admin

        return Admin(self)

    @property
    def groups(self) -> Groups:
        """The interface for consumer groups and their committed offsets."""
        from kafkalite.client.admin.groups import Groups

        return Groups(self)

    @property
    def transactions(self) -> TransactionAdmin:
        """The interface for transactional ids and open transactions. To write in a transaction, use `producer`."""
        from kafkalite.client.admin.transactions import TransactionAdmin

        return TransactionAdmin(self)

    @property
    def acls(self) -> Acls:
        """The interface for ACLs."""
        from kafkalite.client.admin.acls import Acls

        return Acls(self)

    @property
    def quotas(self) -> ClientQuotas:
        """The interface for quotas of users, client ids and addresses."""
        from kafkalite.client.admin.quotas import ClientQuotas

        return ClientQuotas(self)

    @property
    def reassignments(self) -> Reassignments:
        """The interface for replica assignments and preferred leaders."""
        from kafkalite.client.admin.reassignments import Reassignments

        return Reassignments(self)

    @property
    def users(self) -> Users:
        """The interface for SCRAM users."""
        from kafkalite.client.admin.users import Users

        return Users(self)

    def reader(self, starts: Mapping[TopicPartition, int], **options: Any) -> Reader:
        """Create a Reader that starts at these offsets and detects truncated logs. Options: see Reader."""
        from kafkalite.client.history import find_divergences
        from kafkalite.client.read.reader import Reader

        return Reader(self, starts, find_divergences=functools.partial(find_divergences, self), **options)

    def read(
        self, topic: str, partition: int, start: int | None = None, end: int | None = None, **options: Any
    ) -> Iterator[Chunk]:
        """Yield a range of one partition in chunks; by default everything from its first offset to its current end."""
        key = TopicPartition(topic, partition)
        first = self.start_offset(topic, partition) if start is None else start
        isolation = options.get("isolation", READ_UNCOMMITTED)
        last = self.end_offset(topic, partition, isolation=isolation) if end is None else end
        with self.reader({key: first}, ends={key: last}, **options) as reader:
            yield from reader

    def group_reader(self, group_id: str, topics: Iterable[str] | str | Pattern[str], **options: Any) -> GroupReader:
        """Create a GroupReader for these topics, or for all topics whose full name matches a pattern. Options: see
        GroupReader.
        """
        from kafkalite.client.group.group_reader import GroupReader

        return GroupReader(self, group_id, topics, **options)

    def producer(self, **options: Any) -> Producer:
        """Create a Producer. Options: see Producer."""
        from kafkalite.client.write.producer import Producer

        return Producer(self, **options)

    def produce(
        self,
        topic: str,
        partition: int,
        records: RecordColumns | Sequence[Record] | Sequence[bytes | None],
        **options: Any,
    ) -> Delivery:
        """Write columns, Records or plain values to one partition and wait for the acknowledgement.

        Raises DeliveryFailed.
        """
        with self.producer(**options) as producer:
            producer.send(topic, partition, records)
            producer.flush()
            return producer.delivery(topic, partition)
