"""From a readable socket to an answer on it: connections, Produce, Fetch, what waits."""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "serve")
