"""Serve client connections in native code: read frames, answer Produce and Fetch, and park requests that must wait.

Modules, from the bottom up:

    counters, memory · topic_table, transfer, deferred_produce, quota · access · leaders, request_parts ·
    receive_threshold · fetch_session · fair_share, follower_fetch · produce, fetch · worker_parts · produce_order,
    large_fetches · frame_buffer, answer_queue, throttle · connection · sasl_connection · faulty_connection
"""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "serve")
