"""Format a member's counters for Prometheus.

Labels are for example a group, topic or exception class, but never a record's key or a letter's id.

Thread rule: any thread. `exposition` reads numbers while the runner's thread changes them, so one text can contain
numbers of slightly different moments.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.failures.session import Session

PREFIX: Final = "kafkalite_failures"
CLASSES_MAX: Final = 32
LATE_BUCKETS_S: Final = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 60.0)
LABELS: Final = {
    "processed": "topic",
    "failed": "class",
    "moved": "to",
    "ignored": "topic",
    "lost": "",
    "foreign": "",
    "stepped_over": "state",
    "dead_calls": "result",
}


class Late:
    """A histogram of the delays between due time and handling of retry letters."""

    def __init__(self) -> None:
        self.counts = [0] * (len(LATE_BUCKETS_S) + 1)
        self.sum_s = 0.0

    def take(self, late_ms: list[float]) -> None:
        """Add these delays (ms) to the histogram, and clear the list."""
        for ms in late_ms:
            self.sum_s += ms / 1000
            self.counts[sum(ms / 1000 > bound for bound in LATE_BUCKETS_S)] += 1
        late_ms.clear()


def exposition(session: Session, late: Late, group: str) -> str:
    """Return all metrics as text, in Prometheus' format 0.0.4."""
    return "\n".join([*lines(session, late, group), ""])


def lines(session: Session, late: Late, group: str) -> Iterator[str]:
    by_name: dict[str, Counter[str]] = {name: Counter() for name in LABELS}
    for (name, label), count in list(session.counts.items()):
        known = by_name[name]
        known[label if label in known or len(known) < CLASSES_MAX else "other"] += count
    for name, label in LABELS.items():
        yield f"# TYPE {PREFIX}_{name}_total counter"
        for value, count in sorted(by_name[name].items()):
            more = f',{label}="{escaped(value)}"' if label else ""
            yield f'{PREFIX}_{name}_total{{group="{escaped(group)}"{more}}} {count}'
    gauges = {
        "waiting": session.waiting_count,
        "parked_keys": session.parked_keys,
        "held_keys": session.held_keys,
        "breaker_open": int(session.breaker_open),
    }
    for name, number in gauges.items():
        yield f"# TYPE {PREFIX}_{name} gauge"
        yield f'{PREFIX}_{name}{{group="{escaped(group)}"}} {number}'
    waits = Counter(session.waits.values())
    yield f"# TYPE {PREFIX}_waits_for gauge"
    for other, number in sorted(waits.items()):
        yield f'{PREFIX}_waits_for{{group="{escaped(group)}",other="{escaped(other)}"}} {number}'
    yield f"# TYPE {PREFIX}_late_seconds histogram"
    total = 0
    for bound, count in zip((*map(str, LATE_BUCKETS_S), "+Inf"), late.counts, strict=True):
        total += count
        yield f'{PREFIX}_late_seconds_bucket{{group="{escaped(group)}",le="{bound}"}} {total}'
    yield f'{PREFIX}_late_seconds_sum{{group="{escaped(group)}"}} {late.sum_s:.6f}'
    yield f'{PREFIX}_late_seconds_count{{group="{escaped(group)}"}} {total}'


def escaped(text: str) -> str:
    """Escape a label value."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
