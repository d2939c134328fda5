"""The front door of the client: a cluster, and what is made to read, write and administer it.

Thread rule: a Client, and the Readers, Producers and Admins made from it, belong to one thread at a time.
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
"""How long a topic that is being made is waited for."""
AUTO_CREATE: Final = "auto.create.topics.enable"


class Client(Cluster):
    """See the module. Options, questions and errors are those of Cluster. A room is imported when it is first used."""

    def topic(self, name: str, *, create: bool = False) -> TopicDescription:
        """As Cluster's; with `create` a topic that a broker is making is waited for."""
        deadline = time.monotonic() + min(CREATION_S, self.retry_timeout_s)
        while True:
            try:
                return super().topic(name, create=create)
            except UnknownTopicOrPartition:
                # Apache Kafka says so first, and makes the topic meanwhile.
                if not create or time.monotonic() > deadline or not self._makes_topics():
                    raise
            time.sleep(self.retry_backoff_s)

    def _makes_topics(self) -> bool:
        """Whether a broker makes topics that are asked for; True where it does not say."""
        try:
            entries = self.admin.describe_broker_configs(min(self._brokers), [AUTO_CREATE])
        except (KafkaError, ClientError):
            return True
        return all(entry.value != "false" for entry in entries)

    @property
    def admin(self) -> Admin:
        """Topics, configurations and the rest of administration."""
        from kafkalite.client.admin.admin import Admin

        return Admin(self)

    @property
    def groups(self) -> Groups:
        """Consumer groups and their committed offsets."""
        from kafkalite.client.admin.groups import Groups

        return Groups(self)

    @property
    def transactions(self) -> TransactionAdmin:
        """Transactional ids and what is open in partitions; for writing in transactions see `producer`."""
        from kafkalite.client.admin.transactions import TransactionAdmin

        return TransactionAdmin(self)

    @property
    def acls(self) -> Acls:
        """Rules of who may do what."""
        from kafkalite.client.admin.acls import Acls

        return Acls(self)

    @property
    def quotas(self) -> ClientQuotas:
        """What users, client ids and addresses may do in a second."""
        from kafkalite.client.admin.quotas import ClientQuotas

        return ClientQuotas(self)

    @property
    def reassignments(self) -> Reassignments:
        """Which brokers have partitions, and lead them."""
        from kafkalite.client.admin.reassignments import Reassignments

        return Reassignments(self)

    @property
    def users(self) -> Users:
        """Users who sign in by SCRAM."""
        from kafkalite.client.admin.users import Users

        return Users(self)

    def reader(self, starts: Mapping[TopicPartition, int], **options: Any) -> Reader:
        """A Reader from these offsets on, which notices when a log goes back; its options are documented there."""
        from kafkalite.client.history import find_divergences
        from kafkalite.client.read.reader import Reader

        return Reader(self, starts, find_divergences=functools.partial(find_divergences, self), **options)

    def read(
        self, topic: str, partition: int, start: int | None = None, end: int | None = None, **options: Any
    ) -> Iterator[Chunk]:
        """The records of a range in chunks; by default all there are now, from the first to the last."""
        key = TopicPartition(topic, partition)
        first = self.start_offset(topic, partition) if start is None else start
        isolation = options.get("isolation", READ_UNCOMMITTED)
        last = self.end_offset(topic, partition, isolation=isolation) if end is None else end
        with self.reader({key: first}, ends={key: last}, **options) as reader:
            yield from reader

    def group_reader(self, group_id: str, topics: Iterable[str] | str | Pattern[str], **options: Any) -> GroupReader:
        """A GroupReader of topics, or of those whose whole name a pattern matches; its options are documented there."""
        from kafkalite.client.group.group_reader import GroupReader

        return GroupReader(self, group_id, topics, **options)

    def producer(self, **options: Any) -> Producer:
        """A Producer; its options are documented there."""
        from kafkalite.client.write.producer import Producer

        return Producer(self, **options)

    def produce(
        self,
        topic: str,
        partition: int,
        records: RecordColumns | Sequence[Record] | Sequence[bytes | None],
        **options: Any,
    ) -> Delivery:
        """Writes columns, Records or mere values, and waits for the acknowledgement; DeliveryFailed."""
        with self.producer(**options) as producer:
            producer.send(topic, partition, records)
            producer.flush()
            return producer.delivery(topic, partition)
