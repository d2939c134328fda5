"""Encode and decode Kafka's messages and record batches in native code.

Modules, from the bottom up:

    status, error_codes, find · cursor · batch, codec · old_message, aborted_filter, needles · columns · lines
"""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "wire")
