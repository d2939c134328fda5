"""Test data for the console: orders, a lagging group, a dead letter, and records with hostile markup."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from kafkalite.avro.client import RegistryClient
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from kafkalite.client import Client

STAMP: Final = 1_700_000_000_000
SCRIPT: Final = "<script>window.harmed=1"
TEXTS: Final = (
    f"{SCRIPT}</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<iframe src='http://evil.example/'></iframe>",
    "<object data='http://evil.example/'></object>",
    "<a href='javascript:alert(1)'>x</a>",
    "javascript:alert(1)",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "</td></tr></table><h1>mine</h1>",
    "</pre></main><form action='http://evil.example/'>",
    "<!-- ",
    "-->",
    "]]>",
    "<![CDATA[x]]>",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "{{ config }}",
    "${7*7}",
    "#{7*7}",
    "<%= 7 %>",
    "&lt;script&gt;",
    "&#60;script&#62;",
    "&amp;amp;",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-1+1",
    "@SUM(1)",
    "\u202egnp.exe",
    "a\u2066b\u2069",
    "\u200b\u200d\ufeff",
    "\u0000\u0001\u001b[31m",
    "\r\n\r\nHTTP/1.1 200 OK",
    "\u2028\u2029",
    "\U0001f600",
    "e\u0301" * 50,
    "\u0e47" * 200,
    "<base href='http://evil.example/'>",
    "<meta http-equiv=refresh content='0;url=http://evil.example/'>",
    "<link rel=stylesheet href='http://evil.example/a.css'>",
    "<style>*{display:none}</style>",
    "http://evil.example/?q=<script>",
    "' OR 1=1 --",
    "../../../../etc/passwd",
    "%3Cscript%3E",
)
HOSTILE: Final[tuple[bytes, ...]] = (
    *(text.encode() for text in TEXTS),
    b"\xff\xfe<\x00s\x00",
    b"\xc0\xbcscript\xc0\xbe",
    b"\xed\xa0\x80",
    b"\x00" * 1000,
    bytes(range(256)),
    b"[" * 100_000,
    b'{"a":' * 20_000,
    b'{"n": ' + b"9" * 10_000 + b"}",
    b'{"__proto__": {"x": 1}}',
    b"x" * 900_000,
    b"\n" * 10_000,
    b'"' * 5000,
    b"<" * 5000,
    b"\x00\x00\x00\x00\x01avro?",
)


def fill(client: Client) -> None:
    """Topics orders, hostile and dlq.billing.orders; the group billing."""
    client.admin.create_topic("orders", 2, configs={"retention.ms": "-1"})
    client.admin.create_topic("hostile", 1)
    client.admin.create_topic("dlq.billing.orders", 1)
    values = [b'{"id": %d}' % n for n in range(3)] + [None]
    records = [
        Record(-1, STAMP + 1000 * n, b"k%d" % n, value, (("correlation-id", b"c-%d" % n),))
        for n, value in enumerate(values)
    ]
    client.produce("orders", 0, records)
    client.produce("orders", 1, [Record(-1, STAMP + 500, b"other", b"text")])
    for raw in HOSTILE:
        name = raw[:200].decode(errors="replace").replace("\0", "0")
        client.produce("hostile", 0, [Record(-1, STAMP, raw[:1000], raw, ((name, raw[:1000]),))])
    letter = (
        ("correlation-id", b"c-2"),
        ("dlq.topic", b"orders"),
        ("dlq.partition", b"0"),
        ("dlq.offset", b"2"),
        ("dlq.group", b"billing"),
        ("dlq.attempt", b"3"),
        ("dlq.exception", b"ValueError"),
        ("dlq.error", TEXTS[0].encode()),
    )
    client.produce("dlq.billing.orders", 0, [Record(-1, STAMP + 9000, b"k2", b'{"id": 2}', letter)])
    client.groups.commit("billing", {TopicPartition("orders", 0): 3})


def fill_further(client: Client) -> None:
    """The ledger of the group shipping, which waits for billing; nothing in it is friendly."""
    client.admin.create_topic("kafkalite.failures.shipping", 1, configs={"cleanup.policy": "compact"})
    policy = {
        "v": 1,
        "group": "shipping",
        "topics": ["orders"],
        "strategy": {"kind": "RetryTopics", "delays": ["10 s", TEXTS[0]], "dead_letters": True},
        "rules": {TEXTS[2]: {"kind": "RetryHere", "attempts": 3, "then": {"kind": "Ignore"}}},
        "fatal": ["ValueError"],
        "after": ["billing", TEXTS[1]],
        "order": "key",
    }
    rows = {
        "policy": policy,
        "breaker/m-1": {"v": 1, "state": "open", "first": STAMP, "last": STAMP, "reason": TEXTS[0]},
        "breaker/m-2": {"v": 1, "state": "open", "first": STAMP, "last": int(time.time() * 1000), "reason": "all fail"},
        "open/orders-1": {"v": 1, "state": "open", "member": TEXTS[3], "last": STAMP},
        "open/orders-2": {"v": 1, "state": "open", "member": TEXTS[2], "last": STAMP, "position": 7, "until": 40},
        "hand/orders/2": {"v": 1, "state": "trying", "member": TEXTS[2], "last": STAMP, "position": 9, "until": 10},
        "orders-0-0": {"v": 1, "state": "retrying", "attempt": 2, "due": STAMP + 60_000, "exception": TEXTS[4]},
        "orders-0-1": {"v": 1, "state": "parked", "due": STAMP + 90_000},
        "orders-0-2": {"v": 1, "state": "dead", "attempt": 3, "exception": "ValueError", "reason": TEXTS[0]},
    }
    records = [Record(-1, STAMP, key.encode(), json.dumps(row).encode()) for key, row in rows.items()]
    client.produce("kafkalite.failures.shipping", 0, records)


def register_some(url: str) -> None:
    """Two versions of the schema of orders."""
    fields = [{"name": "id", "type": "string"}, {"name": "city", "type": "string", "default": TEXTS[0]}]
    with RegistryClient(url) as registry:
        for count in (1, 2):
            schema = {"type": "record", "name": "Order", "fields": fields[:count]}
            registry.register("orders-value", json.dumps(schema))
