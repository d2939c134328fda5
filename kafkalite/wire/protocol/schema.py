"""Define the format of the field tables in generated message modules.

A row of a table describes one field: (name, type, versions[, nullable[, tag[, "must fit"]]]).

    type      a wire type ("int8" "int16" "int32" "int64" "uint16" "uint32" "float64" "bool" "uuid" "string" "bytes"
              "records"), the name of a struct, or "[]" followed by one of these
    versions  the message versions that have the field, such as "3+", "0-7" or "4"
    nullable  the versions in which null is allowed; "" for none
    tag       such as "0:12+": the tag number, and the versions in which the field is in the tag buffer (KIP-482);
              "" for none
    must fit  a request in a version without this field cannot be encoded, unless the field has its default

"3+" has no upper limit, so the table stays valid when the message gets a new version.
"""

from __future__ import annotations

from typing import Final

from kafkalite._native.wire.codec import covers

__all__ = ["ZERO_UUID", "FieldTable", "covers"]

FieldTable = tuple[tuple[str, ...], ...]

ZERO_UUID: Final = bytes(16)
