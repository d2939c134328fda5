"""Kafka 0.7's bytes, its log's appends and reads, its connections, its consumers' loops.

Modules, from the bottom up:

    message_set · classic_log, stream · classic_connection
"""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "classic")
