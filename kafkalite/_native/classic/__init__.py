"""Serve Kafka 0.7 in native code: its message sets, logs and connections, and the inner loops of its consumers.

Modules, from the bottom up:

    message_set · classic_log, stream · classic_connection
"""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "classic")
