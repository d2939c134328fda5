"""What a generated message module is made of: the spelling of its field tables.

A table row is (name, type, versions[, nullable[, tag[, "must fit"]]]):
  type      a wire type ("int8" "int16" "int32" "int64" "uint16" "uint32" "float64" "bool" "uuid" "string" "bytes"
            "records"), a struct's name, or either after "[]"
  versions  "3+", "0-7" or "4": the message versions that carry the field
  nullable  the same, for the versions in which null is legal; "" never
  tag       "0:12+": tag number and the versions in which the field travels in the tag buffer (KIP-482); "" never
  must fit  the field changes the meaning: encoding another value than the default in a version without it is an error

The newest version stands after "+", so a table needs no editing when a message grows.
"""

from __future__ import annotations

from typing import Final

from kafkalite._native.wire.codec import covers

__all__ = ["ZERO_UUID", "FieldTable", "covers"]

FieldTable = tuple[tuple[str, ...], ...]

ZERO_UUID: Final = bytes(16)
