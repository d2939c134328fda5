"""Columnar Kafka client: read and write records as arrays, look up metadata and offsets, administer a cluster.

    from kafkalite.client import Client

    with Client("127.0.0.1:9092") as client:
        client.admin.create_topic("greetings")
        client.produce("greetings", 0, [b"hello", b"world"])
        for chunk in client.read("greetings", 0):
            print(chunk.columns.values[0])

This client is for tools and for reading ranges at millions of records per second. To process one message at a time, use
confluent-kafka, kafka-python or aiokafka.

    columns/            ColumnReader, ColumnWriter: ranges and tables as Arrow record batches or NumPy columns
    client.py           Client: the entry point, which creates readers, producers and admin interfaces
    admin/              topics, configurations, groups, transactional ids, users, ACLs, quotas
    group/              GroupReader: a consumer group member
    history.py          detects logs that were truncated or restored
    read/               Reader: reads ranges of partitions as columns
    write/              Producer: writes columns to partitions, also in transactions
    coordinators.py     finds the coordinator of a group or a transactional id
    committed.py        a committed offset and the group member that commits it
    cluster.py          brokers, leaders and offsets, with retries after leader changes
    connection.py       one socket to one broker, with negotiated API versions
    security.py         TLS and SASL settings of connections
    sasl.py             SASL authentication
    token_endpoint.py   OAuth tokens for SASL
    errors.py           client-side failures that have no error code from a broker

Each module uses only modules listed below it, and none uses broker code. Classes and functions are imported on first
use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.client.admin.admin import Admin as Admin
    from kafkalite.client.admin.admin import ConfigEntry as ConfigEntry
    from kafkalite.client.admin.groups import GroupDescription as GroupDescription
    from kafkalite.client.client import Client as Client
    from kafkalite.client.cluster import ISOLATIONS as ISOLATIONS
    from kafkalite.client.cluster import READ_COMMITTED as READ_COMMITTED
    from kafkalite.client.cluster import READ_UNCOMMITTED as READ_UNCOMMITTED
    from kafkalite.client.cluster import TopicDescription as TopicDescription
    from kafkalite.client.cluster import parse_bootstrap as parse_bootstrap
    from kafkalite.client.columns.column_reader import ColumnReader as ColumnReader
    from kafkalite.client.columns.column_writer import ColumnWriter as ColumnWriter
    from kafkalite.client.committed import CommittedOffset as CommittedOffset
    from kafkalite.client.committed import GroupMetadata as GroupMetadata
    from kafkalite.client.errors import BrokerUnreachable as BrokerUnreachable
    from kafkalite.client.errors import ClientError as ClientError
    from kafkalite.client.errors import CommitFailed as CommitFailed
    from kafkalite.client.errors import ConnectionLost as ConnectionLost
    from kafkalite.client.errors import DeliveryFailed as DeliveryFailed
    from kafkalite.client.errors import NoOffset as NoOffset
    from kafkalite.client.errors import ProtocolError as ProtocolError
    from kafkalite.client.errors import RangeUnavailable as RangeUnavailable
    from kafkalite.client.errors import ReaderClosed as ReaderClosed
    from kafkalite.client.errors import RequestTimeout as RequestTimeout
    from kafkalite.client.errors import SignInRefused as SignInRefused
    from kafkalite.client.errors import TransactionAborted as TransactionAborted
    from kafkalite.client.errors import UnsendableRequest as UnsendableRequest
    from kafkalite.client.errors import UnsupportedApi as UnsupportedApi
    from kafkalite.client.group.group_reader import GroupReader as GroupReader
    from kafkalite.client.read.reader import Chunk as Chunk
    from kafkalite.client.read.reader import Reader as Reader
    from kafkalite.client.read.splitting import OffsetRange as OffsetRange
    from kafkalite.client.read.splitting import split_by_size as split_by_size
    from kafkalite.client.security import Security as Security
    from kafkalite.client.write.producer import Delivery as Delivery
    from kafkalite.client.write.producer import Producer as Producer
    from kafkalite.client.write.transactions import PreparedTransaction as PreparedTransaction
    from kafkalite.wire.record.columns import BytesColumn as BytesColumn
    from kafkalite.wire.record.columns import Record as Record
    from kafkalite.wire.record.columns import RecordColumns as RecordColumns

_WHERE: Final = {
    "Admin": "kafkalite.client.admin.admin",
    "BrokerUnreachable": "kafkalite.client.errors",
    "BytesColumn": "kafkalite.wire.record.columns",
    "Chunk": "kafkalite.client.read.reader",
    "Client": "kafkalite.client.client",
    "ClientError": "kafkalite.client.errors",
    "ColumnReader": "kafkalite.client.columns.column_reader",
    "ColumnWriter": "kafkalite.client.columns.column_writer",
    "CommitFailed": "kafkalite.client.errors",
    "CommittedOffset": "kafkalite.client.committed",
    "ConfigEntry": "kafkalite.client.admin.admin",
    "ConnectionLost": "kafkalite.client.errors",
    "Delivery": "kafkalite.client.write.producer",
    "DeliveryFailed": "kafkalite.client.errors",
    "GroupDescription": "kafkalite.client.admin.groups",
    "GroupMetadata": "kafkalite.client.committed",
    "GroupReader": "kafkalite.client.group.group_reader",
    "ISOLATIONS": "kafkalite.client.cluster",
    "NoOffset": "kafkalite.client.errors",
    "OffsetRange": "kafkalite.client.read.splitting",
    "PreparedTransaction": "kafkalite.client.write.transactions",
    "Producer": "kafkalite.client.write.producer",
    "ProtocolError": "kafkalite.client.errors",
    "READ_COMMITTED": "kafkalite.client.cluster",
    "READ_UNCOMMITTED": "kafkalite.client.cluster",
    "RangeUnavailable": "kafkalite.client.errors",
    "Reader": "kafkalite.client.read.reader",
    "ReaderClosed": "kafkalite.client.errors",
    "Record": "kafkalite.wire.record.columns",
    "RecordColumns": "kafkalite.wire.record.columns",
    "RequestTimeout": "kafkalite.client.errors",
    "Security": "kafkalite.client.security",
    "SignInRefused": "kafkalite.client.errors",
    "TopicDescription": "kafkalite.client.cluster",
    "TransactionAborted": "kafkalite.client.errors",
    "UnsendableRequest": "kafkalite.client.errors",
    "UnsupportedApi": "kafkalite.client.errors",
    "parse_bootstrap": "kafkalite.client.cluster",
    "split_by_size": "kafkalite.client.read.splitting",
}

__all__ = list(_WHERE)

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
