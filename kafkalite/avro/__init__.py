"""Decode Avro messages into Arrow columns, and encode Arrow columns as Avro messages.

Messages have the wire format of a schema registry: each begins with the id of the schema that it was written with. The
reader chooses one schema, and messages with other schemas are converted to it.

    schema.py           parse and render schemas
    compatibility.py    check whether one schema can read data of another
    client.py           a client for a schema registry
    decoder.py          messages to Arrow columns (requires pyarrow, in the extra `avro`)
    encoder.py          Arrow columns to messages (requires pyarrow)
    documents.py        messages to JSON documents
    from_documents.py   JSON documents to messages
    single.py           one message to a JSON document, without pyarrow
    layout.py           a schema as Arrow columns
    leaves.py           dates, times and floats as JSON
    logical.py          differences between logical types
    resolution.py       schema resolution, as a program for the native decoder
    values.py           default values of fields, encoded

    from kafkalite.avro import AvroDecoder, RegistryClient

    registry = RegistryClient("http://127.0.0.1:8081")
    decoder = AvroDecoder.of_subject(registry, "orders-value")
    values = decoder.decode(binary_column).values

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.avro.client import RegisteredSchema as RegisteredSchema
    from kafkalite.avro.client import RegistryClient as RegistryClient
    from kafkalite.avro.client import RegistryRefused as RegistryRefused
    from kafkalite.avro.client import RegistryUnreachable as RegistryUnreachable
    from kafkalite.avro.decoder import AvroDecoder as AvroDecoder
    from kafkalite.avro.decoder import Decoded as Decoded
    from kafkalite.avro.decoder import DecodeError as DecodeError
    from kafkalite.avro.encoder import AvroEncoder as AvroEncoder
    from kafkalite.avro.encoder import EncodeError as EncodeError
    from kafkalite.avro.schema import Schema as Schema
    from kafkalite.avro.schema import SchemaError as SchemaError

_WHERE: Final = {
    "AvroDecoder": "kafkalite.avro.decoder",
    "AvroEncoder": "kafkalite.avro.encoder",
    "DecodeError": "kafkalite.avro.decoder",
    "Decoded": "kafkalite.avro.decoder",
    "EncodeError": "kafkalite.avro.encoder",
    "RegisteredSchema": "kafkalite.avro.client",
    "RegistryClient": "kafkalite.avro.client",
    "RegistryRefused": "kafkalite.avro.client",
    "RegistryUnreachable": "kafkalite.avro.client",
    "Schema": "kafkalite.avro.schema",
    "SchemaError": "kafkalite.avro.schema",
}

__all__ = [
    "AvroDecoder",
    "AvroEncoder",
    "DecodeError",
    "Decoded",
    "EncodeError",
    "RegisteredSchema",
    "RegistryClient",
    "RegistryRefused",
    "RegistryUnreachable",
    "Schema",
    "SchemaError",
]

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
