"""Decode Avro messages to columns, and encode columns as Avro messages.

Modules, from the bottom up:

    avro_decode, avro_encode
"""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "avro")
