"""Show groups that use `kafkalite.failures`: policies, waiting records, and groups that wait for other groups.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.errors import ClientError, RangeUnavailable
from kafkalite.console.rendering import visible
from kafkalite.console.requests import BadRequestError, NotFoundError
from kafkalite.console.topics import counted
from kafkalite.errors import KafkaError
from kafkalite.failures.breaker_status import OLD_MS
from kafkalite.failures.ledger import Ledger
from kafkalite.failures.names import LEDGER
from kafkalite.failures.rows import UNDECIDED, State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.client import Client
    from kafkalite.console.requests import Request
    from kafkalite.failures.rows import Row

READ_MAX: Final = 50_000
"""Maximum records of a ledger that a page reads."""
ROWS_MAX: Final = 500
LEDGERS_MAX: Final = 50
TIMEOUT_S: Final = 5.0
WIDE, HIGH, GAP = 190, 40, 60
"""Size of a box in the graph, and the gap between columns."""


def policies_page(client: Client, request: Request) -> dict[str, Any]:
    """Return the groups with a ledger: their policies, numbers of waiting records, and dependencies."""
    names = [name.removeprefix(f"{LEDGER}.") for name in request.topics(client) if name.startswith(f"{LEDGER}.")]
    topics = client.described(f"{LEDGER}.{group}" for group in names[:LEDGERS_MAX])
    counts = counted(client, topics.values())
    rows, after = [], {}
    for group in names[:LEDGERS_MAX]:
        if f"{LEDGER}.{group}" not in topics:  # deleted since it was listed
            continue
        records = counts[f"{LEDGER}.{group}"]["records"]
        ledger = read(client, group) if records is not None and records <= READ_MAX else None
        row = {"group": group, "records": records, "read": ledger is not None}
        if ledger is not None:
            row |= told(ledger)
            after[group] = [str(name) for name in (ledger.policy or {}).get("after", [])]
        rows.append(row)
    return {"groups": rows, "more": max(len(names) - LEDGERS_MAX, 0), "graph": graph(after)}


def policy_page(client: Client, request: Request) -> dict[str, Any]:
    """Return the data of the page about one group: its policy, and its ledger's rows, earliest retry first."""
    group = request.values[0]
    topic = f"{LEDGER}.{group}"
    known = client.described([topic])
    if topic not in known:
        raise NotFoundError(f"group {group} has no ledger: topic {topic} does not exist")
    count = counted(client, [known[topic]])[topic]["records"]
    if count is None or count > READ_MAX:
        raise BadRequestError(
            f"a page reads at most {READ_MAX:,} rows; for all of them, run: kafkalite failures ledger {group}"
        )
    ledger = read(client, group)
    if ledger is None:
        raise BadRequestError(f"cannot read the ledger of {group} while a transaction is open in it; try again")
    wanted = request.choice("state", ("", *(state.value for state in State)))
    rows = [(where, row) for where, row in ledger.records() if not wanted or row.state == wanted]
    rows.sort(key=lambda pair: (pair[1].state not in UNDECIDED, pair[1].due or 2**62, pair[0]))
    return {
        "group": group,
        "topic": topic,
        **told(ledger),
        "wanted": wanted,
        "count": len(rows),
        "rows": [ledger_row(where, row) for where, row in rows[:ROWS_MAX]],
        "opened": [
            {"partition": str(key), "member": visible(row.member), "since": row.last}
            for key, row in sorted(ledger.opened.items())
        ],
        "doubted": [
            {
                "partition": visible(str(key)),
                "member": visible(row.member),
                "since": row.last,
                "first": row.position,
                "last": row.until - 1,
            }
            for key, row in ledger.doubted.items()
        ],
    }


def read(client: Client, group: str) -> Ledger | None:
    """Read a group's ledger. None if it cannot be read now."""
    ledger = Ledger(client, group)
    try:
        ledger.refresh(TIMEOUT_S)
    except (RangeUnavailable, KafkaError, ClientError):
        return None
    return ledger


def told(ledger: Ledger) -> dict[str, Any]:
    """Return the numbers of a ledger's rows by state, and the policy in words."""
    rows = [row for _, row in ledger.records()]
    states = Counter(row.state.value for row in rows)
    policy = ledger.policy or {}
    now_ms = time.time_ns() // 1_000_000
    return {
        "states": dict(sorted(states.items())),
        "waiting": sum(row.state in UNDECIDED for row in rows),
        "parked": states[State.PARKED.value],
        "breakers": [
            {
                "member": visible(member),
                "since": row.first,
                "told": row.last,
                "why": visible(row.reason.removeprefix("the breaker is open: ")),
                "old": now_ms - row.last > OLD_MS,
            }
            for member, row in sorted(ledger.breakers.items())
        ],
        "next_due": min((row.due for row in rows if row.state in UNDECIDED and row.due), default=0),
        "has_policy": bool(policy),
        "strategy": visible(strategy_text(policy.get("strategy", {}))),
        "topics": [visible(str(name)) for name in policy.get("topics", ())],
        "fatal": [visible(str(name)) for name in policy.get("fatal", ())],
        "outage": [visible(str(name)) for name in policy.get("outage", ())],
        "rules": {visible(str(kind)): visible(strategy_text(row)) for kind, row in policy.get("rules", {}).items()},
        "order": visible(str(policy.get("order", ""))),
        "moves": visible(str(policy.get("moves", ""))),
        "after": [visible(str(name)) for name in policy.get("after", ())],
    }


def strategy_text(strategy: Mapping[str, Any]) -> str:
    """Describe a retry strategy from the ledger in words."""
    then = strategy.get("then")
    match strategy.get("kind"):
        case "RetryTopics":
            end = "then a dead letter" if strategy.get("dead_letters") else "then skipped"
            return f"retried after {', '.join(map(str, strategy.get('delays', ())))}, {end}"
        case "RetryHere":
            rest = strategy_text(then) if isinstance(then, dict) else str(then)
            return f"{strategy.get('attempts')} attempts in place, then {rest}"
        case "RetryForever":
            return "retried until it succeeds"
        case "Ignore":
            return "skipped and counted"
        case other:
            return str(other or "unknown")


def ledger_row(where: str, row: Row) -> dict[str, Any]:
    """Return a ledger row as plain data."""
    return {
        "record": where,
        "state": row.state.value,
        "failures": row.attempt,
        "due": row.due,
        "last": row.last,
        "exception": visible(row.exception),
        "reason": visible(row.reason),
        "letter_topic": row.letter_topic,
    }


def graph(after: Mapping[str, list[str]]) -> dict[str, Any] | None:
    """Arrange the groups that wait for others as a graph: boxes in columns, and edges.

    Groups that wait for no other group are on the left. None if no group waits.
    """
    names = sorted({*after, *(name for found in after.values() for name in found)})
    if not any(after.values()):
        return None
    depth: dict[str, int] = {}

    def depth_of(name: str, seen: tuple[str, ...] = ()) -> int:
        if name not in depth:
            before = [each for each in after.get(name, ()) if each not in (*seen, name)]
            depth[name] = 1 + max((depth_of(each, (*seen, name)) for each in before), default=-1)
        return depth[name]

    linked = {name for name in names if after.get(name) or any(name in found for found in after.values())}
    columns: dict[int, int] = Counter()
    boxes: dict[str, dict[str, Any]] = {}
    for name in sorted(linked):
        column = depth_of(name)
        boxes[name] = {
            "group": name,
            "text": name if len(name) <= 22 else f"{name[:21]}…",
            "x": column * (WIDE + GAP) + 1,
            "y": columns[column] * (HIGH + 16) + 1,
        }
        columns[column] += 1
    edges = [
        {
            "before": before,
            "group": group,
            "path": f"M{boxes[before]['x'] + WIDE} {boxes[before]['y'] + HIGH // 2}"
            f"C{boxes[before]['x'] + WIDE + GAP // 2} {boxes[before]['y'] + HIGH // 2} "
            f"{boxes[group]['x'] - GAP // 2} {boxes[group]['y'] + HIGH // 2} "
            f"{boxes[group]['x'] - 6} {boxes[group]['y'] + HIGH // 2}",
        }
        for group, found in sorted(after.items())
        for before in found
    ]
    width = (max(columns) + 1) * (WIDE + GAP) - GAP + 2
    return {
        "width": width,
        "height": max(columns.values()) * (HIGH + 16) - 14,
        "boxes": list(boxes.values()),
        "edges": edges,
        "words": "; ".join(f"{edge['group']} waits for {edge['before']}" for edge in edges),
    }
