"""A columnar client: metadata, offsets, fetch to arrays, produce from arrays, administration. Needs no broker code.

    client.py       Client: the front door; look-ups and the way to a leader, with retries
    column_reader.py, column_writer.py   Arrow record batches, through arrow.py; splitting.py cuts ranges by bytes
    reader.py       ranges of partitions as columns, the next fetch under way while one is decoded
    group_reader.py the same as a member of a consumer group, with membership.py, commits.py and assignors.py
    producer.py     batches from columns, several in flight, idempotent, split and sent again when need be
    transactions.py what makes a producer transactional
    admin.py        topics, partitions, configurations, DeleteRecords
    connection.py   one socket to one broker, versions negotiated
    errors.py       what goes wrong without an error code from a broker

    from kafkalite.client import Client

    with Client("127.0.0.1:9092") as client:
        client.admin.create_topic("greetings")
        client.produce("greetings", 0, [b"hello", b"world"])
        for chunk in client.read("greetings", 0):
            print(chunk.columns.values[0])

Message-at-a-time clients exist and are good (confluent-kafka, kafka-python, aiokafka): this one is for ranges at
millions of records a second, and for tools. Names are imported when first used.
"""

from typing import TYPE_CHECKING

from kafkalite.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.client.admin.admin import Admin as Admin
    from kafkalite.client.client import Client as Client
    from kafkalite.client.columns.column_reader import ColumnReader as ColumnReader
    from kafkalite.client.columns.column_writer import ColumnWriter as ColumnWriter
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
    from kafkalite.client.errors import TransactionAborted as TransactionAborted
    from kafkalite.client.errors import UnsendableRequest as UnsendableRequest
    from kafkalite.client.errors import UnsupportedApi as UnsupportedApi
    from kafkalite.client.group.group_reader import GroupMetadata as GroupMetadata
    from kafkalite.client.group.group_reader import GroupReader as GroupReader
    from kafkalite.client.read.reader import Chunk as Chunk
    from kafkalite.client.read.reader import Reader as Reader
    from kafkalite.client.read.splitting import OffsetRange as OffsetRange
    from kafkalite.client.write.producer import Producer as Producer

_WHERE = {
    "Admin": "kafkalite.client.admin.admin",
    "BrokerUnreachable": "kafkalite.client.errors",
    "Chunk": "kafkalite.client.read.reader",
    "Client": "kafkalite.client.client",
    "ClientError": "kafkalite.client.errors",
    "ColumnReader": "kafkalite.client.columns.column_reader",
    "ColumnWriter": "kafkalite.client.columns.column_writer",
    "CommitFailed": "kafkalite.client.errors",
    "ConnectionLost": "kafkalite.client.errors",
    "DeliveryFailed": "kafkalite.client.errors",
    "GroupMetadata": "kafkalite.client.group.group_reader",
    "GroupReader": "kafkalite.client.group.group_reader",
    "NoOffset": "kafkalite.client.errors",
    "OffsetRange": "kafkalite.client.read.splitting",
    "Producer": "kafkalite.client.write.producer",
    "ProtocolError": "kafkalite.client.errors",
    "RangeUnavailable": "kafkalite.client.errors",
    "Reader": "kafkalite.client.read.reader",
    "ReaderClosed": "kafkalite.client.errors",
    "RequestTimeout": "kafkalite.client.errors",
    "TransactionAborted": "kafkalite.client.errors",
    "UnsendableRequest": "kafkalite.client.errors",
    "UnsupportedApi": "kafkalite.client.errors",
}

__all__ = [
    "Admin",
    "BrokerUnreachable",
    "Chunk",
    "Client",
    "ClientError",
    "ColumnReader",
    "ColumnWriter",
    "CommitFailed",
    "ConnectionLost",
    "DeliveryFailed",
    "GroupMetadata",
    "GroupReader",
    "NoOffset",
    "OffsetRange",
    "Producer",
    "ProtocolError",
    "RangeUnavailable",
    "Reader",
    "ReaderClosed",
    "RequestTimeout",
    "TransactionAborted",
    "UnsendableRequest",
    "UnsupportedApi",
]

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
