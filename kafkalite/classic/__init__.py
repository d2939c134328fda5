"""Kafka 0.7's client API, in Python: producers, consumers and groups that coordinate in ZooKeeper.

    from kafkalite.classic import Consumer, ConsumerConfig, Producer, ProducerConfig, ProducerData

Names are 0.7's, in snake case; each class says which of Kafka's it stands for. They are imported when first used, so
that the message sets in this package cost nobody a ZooKeeper client.
"""

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
