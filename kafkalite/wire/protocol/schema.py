"""The format of the field tables in generated message modules.

A row of a table describes one field: (name, type, versions[, nullable[, tag[, "must fit"]]]).
  type      a wire type ("int8" "int16" "int32" "int64" "uint16" "uint32" "float64" "bool" "uuid" "string" "bytes"
            "records"), a struct's name, or one of these after "[]"
  versions  "3+", "0-7" or "4": the message versions that have the field
  nullable  the versions in which null is allowed; "" never
  tag       "0:12+": tag number and the versions in which the field is in the tag buffer (KIP-482); "" never
  must fit  the field changes the meaning: encoding a value other than the default in a version without the field is
            an error

"+" is open-ended, so a table needs no change when a message gets a new version.
"""

from __future__ import annotations

from typing import Final

from kafkalite._native.wire.codec import covers

__all__ = ["ZERO_UUID", "FieldTable", "covers"]

FieldTable = tuple[tuple[str, ...], ...]

ZERO_UUID: Final = bytes(16)
