"""Avro's bytes to columns and back."""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "avro")
