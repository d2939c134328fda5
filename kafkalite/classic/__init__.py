"""Kafka 0.7's client API in Python: producers, and consumers whose groups coordinate in ZooKeeper.

    from kafkalite.classic import Consumer, ConsumerConfig, Producer, ProducerConfig, ProducerData

Names are those of Kafka 0.7, with methods in snake case. Most docstrings of classes name the corresponding class of
Kafka 0.7. A name is imported when it is first used, so a program that only uses message sets loads no ZooKeeper client.
"""

# How 0.7.2 works. "`kafkalite.classic`, fact 3" in a comment refers to the third of these facts.
#
# 1. Requests. A request is `int32 size │ int16 type │ body`; the size excludes itself. Types are PRODUCE 0, FETCH 1,
#    MULTIFETCH 2, MULTIPRODUCE 3, OFFSETS 4. Numbers are big-endian; a string is `int16 length` and UTF-8. There are no
#    versions and no correlation ids: responses come in the order of the requests, and PRODUCE and MULTIPRODUCE have
#    none. A response is `int32 size │ int16 error code │ body`. Partition -1 in a PRODUCE lets the broker choose.
#    OFFSETS returns starts of segments before a time; -1 means the end of the log and -2 its start.
# 2. Messages. A message is `int32 size │ int8 magic`, for magic 1 a byte of attributes whose low two bits are the codec
#    (0 none, 1 gzip, 2 snappy), the CRC-32 of the payload, and the payload. With a codec, the payload is a message set,
#    and the message is a wrapper. An offset is the byte position in the log; the offset that comes with a message is
#    the next one to fetch. A fetched set can end in the middle of a message, which is ignored.
# 3. Nodes in ZooKeeper. `/brokers/ids/<id>` holds `creator:host:port`. `/brokers/topics/<topic>/<id>` holds the number
#    of partitions that this broker has of the topic. Both are ephemeral. A group has
#    `/consumers/<group>/ids/<consumer>` (its subscription) and `/consumers/<group>/owners/<topic>/<broker>-<partition>`
#    (a thread of a consumer), also ephemeral, and the persistent
#    `/consumers/<group>/offsets/<topic>/<broker>-<partition>` (the next offset). A broker whose id is taken fails to
#    start.
# 4. Topic filters. A subscription by pattern is `*threads*pattern` for a whitelist and `!threads!pattern` for a
#    blacklist. A pattern must match the whole name. A comma means `|`, blanks are ignored, and surrounding quotes are
#    removed.
# 5. Groups. There is no group leader: each member reads the group's nodes and computes its own share. For each topic,
#    partitions (`<broker>-<partition>`) and consumer threads (`<consumer>-<n>`) are sorted as strings. With P
#    partitions and T threads, each thread gets `P / T` consecutive partitions, and the first `P % T` threads get one
#    more. A member claims its share by creating owner nodes. If one is taken, it releases what it has and retries,
#    `rebalance.retries.max` times. Offsets are committed every `autocommit.interval.ms` and before a rebalance. One
#    fetcher thread per broker requests all partitions by MULTIFETCH.
# 6. Producers. Nothing is acknowledged. With ZooKeeper, the partitioner returns an index into the sorted list of
#    (broker, partition) of the topic, by default from Java's hash code of the key. With a fixed list of brokers,
#    partition -1 is sent. A synchronous producer reconnects after `reconnect.interval` sends. An asynchronous one has a
#    queue for each broker (`queue.size`), from which a thread sends `batch.size` events, or those that arrived within
#    `queue.time` ms. If the queue is full, `queue.enqueueTimeout.ms` drops the event (0), waits without limit
#    (negative), or waits that many milliseconds.
# 7. Settings of clients come from properties files. An unknown key is ignored. In `topic:number` lists, commas separate
#    the pairs.
#
# docs/kafka-0.7.md lists the differences from 0.7.2 that users notice. The clients also differ in these:
#
# - A fetcher reconnects after `fetcher.backoff.ms` instead of ending until the next rebalance.
# - After a lost session, offsets are stored only when the member has its share again: the owner since then may have
#   stored later ones.
# - A member claims partitions first and then reads their offsets, because the previous owner stores offsets until it
#   releases them. It waits two seconds for the offsets of an unresponsive broker; then the first fetch finds them.
# - A rebalance that failed for good is retried after a second instead of at the next change.
# - The threads of a filter are spread over its queues; in 0.7 all end up with the last one.
# - A filter watches topics with the member's own ZooKeeper client.
# - An ephemeral node counts as created only by this session, and a member deletes only owner nodes that are its own.
# - The hash code -2147483648 is the first partition instead of an error.

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.classic.async_producer import AsyncProducer as AsyncProducer
    from kafkalite.classic.config import AsyncProducerConfig as AsyncProducerConfig
    from kafkalite.classic.config import ConsumerConfig as ConsumerConfig
    from kafkalite.classic.config import ProducerConfig as ProducerConfig
    from kafkalite.classic.config import SyncProducerConfig as SyncProducerConfig
    from kafkalite.classic.connector import ConsumerConnector as ConsumerConnector
    from kafkalite.classic.consumer import Consumer as Consumer
    from kafkalite.classic.errors import ClassicError as ClassicError
    from kafkalite.classic.errors import ConnectionFailed as ConnectionFailed
    from kafkalite.classic.errors import ConsumerTimeout as ConsumerTimeout
    from kafkalite.classic.errors import InvalidConfig as InvalidConfig
    from kafkalite.classic.errors import InvalidMessage as InvalidMessage
    from kafkalite.classic.errors import InvalidMessageSize as InvalidMessageSize
    from kafkalite.classic.errors import InvalidPartition as InvalidPartition
    from kafkalite.classic.errors import MessageSizeTooLarge as MessageSizeTooLarge
    from kafkalite.classic.errors import NoBrokersForPartition as NoBrokersForPartition
    from kafkalite.classic.errors import OffsetOutOfRange as OffsetOutOfRange
    from kafkalite.classic.errors import QueueClosed as QueueClosed
    from kafkalite.classic.errors import QueueFull as QueueFull
    from kafkalite.classic.errors import RebalanceFailed as RebalanceFailed
    from kafkalite.classic.handlers import CallbackHandler as CallbackHandler
    from kafkalite.classic.handlers import DefaultDecoder as DefaultDecoder
    from kafkalite.classic.handlers import DefaultEncoder as DefaultEncoder
    from kafkalite.classic.handlers import PayloadDecoder as PayloadDecoder
    from kafkalite.classic.handlers import QueueItem as QueueItem
    from kafkalite.classic.handlers import StringDecoder as StringDecoder
    from kafkalite.classic.handlers import StringEncoder as StringEncoder
    from kafkalite.classic.messages import Message as Message
    from kafkalite.classic.messages import MessageAndOffset as MessageAndOffset
    from kafkalite.classic.messages import MessageSet as MessageSet
    from kafkalite.classic.producer import Producer as Producer
    from kafkalite.classic.producer import ProducerData as ProducerData
    from kafkalite.classic.simple_consumer import SimpleConsumer as SimpleConsumer
    from kafkalite.classic.stream import KafkaStream as KafkaStream
    from kafkalite.classic.stream import MessageAndMetadata as MessageAndMetadata
    from kafkalite.classic.sync_producer import SyncProducer as SyncProducer
    from kafkalite.classic.wire import EARLIEST as EARLIEST
    from kafkalite.classic.wire import LATEST as LATEST
    from kafkalite.classic.wire import FetchRequest as FetchRequest
    from kafkalite.classic.wire import ProduceRequest as ProduceRequest
    from kafkalite.zookeeper.nodes import BrokerPartition as BrokerPartition
    from kafkalite.zookeeper.topic_filter import Blacklist as Blacklist
    from kafkalite.zookeeper.topic_filter import Whitelist as Whitelist

_WHERE: Final = {
    "AsyncProducer": "kafkalite.classic.async_producer",
    "AsyncProducerConfig": "kafkalite.classic.config",
    "Blacklist": "kafkalite.zookeeper.topic_filter",
    "BrokerPartition": "kafkalite.zookeeper.nodes",
    "CallbackHandler": "kafkalite.classic.handlers",
    "ClassicError": "kafkalite.classic.errors",
    "ConnectionFailed": "kafkalite.classic.errors",
    "Consumer": "kafkalite.classic.consumer",
    "ConsumerConfig": "kafkalite.classic.config",
    "ConsumerConnector": "kafkalite.classic.connector",
    "ConsumerTimeout": "kafkalite.classic.errors",
    "DefaultDecoder": "kafkalite.classic.handlers",
    "DefaultEncoder": "kafkalite.classic.handlers",
    "EARLIEST": "kafkalite.classic.wire",
    "FetchRequest": "kafkalite.classic.wire",
    "InvalidConfig": "kafkalite.classic.errors",
    "InvalidMessage": "kafkalite.classic.errors",
    "InvalidMessageSize": "kafkalite.classic.errors",
    "InvalidPartition": "kafkalite.classic.errors",
    "KafkaStream": "kafkalite.classic.stream",
    "LATEST": "kafkalite.classic.wire",
    "Message": "kafkalite.classic.messages",
    "MessageAndMetadata": "kafkalite.classic.stream",
    "MessageAndOffset": "kafkalite.classic.messages",
    "MessageSet": "kafkalite.classic.messages",
    "MessageSizeTooLarge": "kafkalite.classic.errors",
    "NoBrokersForPartition": "kafkalite.classic.errors",
    "OffsetOutOfRange": "kafkalite.classic.errors",
    "PayloadDecoder": "kafkalite.classic.handlers",
    "ProduceRequest": "kafkalite.classic.wire",
    "Producer": "kafkalite.classic.producer",
    "ProducerConfig": "kafkalite.classic.config",
    "ProducerData": "kafkalite.classic.producer",
    "QueueClosed": "kafkalite.classic.errors",
    "QueueFull": "kafkalite.classic.errors",
    "QueueItem": "kafkalite.classic.handlers",
    "RebalanceFailed": "kafkalite.classic.errors",
    "SimpleConsumer": "kafkalite.classic.simple_consumer",
    "StringDecoder": "kafkalite.classic.handlers",
    "StringEncoder": "kafkalite.classic.handlers",
    "SyncProducer": "kafkalite.classic.sync_producer",
    "SyncProducerConfig": "kafkalite.classic.config",
    "Whitelist": "kafkalite.zookeeper.topic_filter",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605 - names, all of them

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
