"""Dead letters in the console: chosen, redriven, edited and resolved by the functions of `kafkalite letters`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.console import letters
from kafkalite.console.masks import Masks
from kafkalite.console.server import ConsoleServer
from kafkalite.failures.letters import LetterBox, ledger_row
from kafkalite.failures.rows import Row, State
from kafkalite.web.server import parse_address
from kafkalite.wire.record.columns import Record
from tests.kit.harness.console_client import Visitor

pytestmark = pytest.mark.integration

LOOPBACK = parse_address("http://127.0.0.1:0", 0)
LETTERS = "dlq.billing.orders"
BACK = "retry.billing.orders.0s"
LEDGER = "kafkalite.failures.billing"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    """Ten letters of ten orders; those with even offsets are of a ValueError, the others of a KeyError."""
    with Client(broker.bootstrap_servers) as made:
        for topic in ("orders", LETTERS, BACK, LEDGER):
            made.admin.create_topic(topic, 1)
        values = [b'{"id": %d, "card": "4111-1111"}' % number for number in range(10)]
        made.produce("orders", 0, [Record(-1, -1, b"k%d" % n, value) for n, value in enumerate(values)])
        made.produce(LETTERS, 0, [letter(number, value) for number, value in enumerate(values)])
        rows = [ledger_row(f"orders-0-{n}", Row(State.DEAD, f"orders-0-{n}/0.1", LETTERS, 0)) for n in range(10)]
        made.produce(LEDGER, 0, [Record(-1, -1, row.key, row.value) for row in rows])
        yield made


def letter(number: int, value: bytes, group: str = "billing") -> Record:
    texts = {
        "topic": "orders",
        "partition": "0",
        "offset": str(number),
        "group": group,
        "id": f"orders-0-{number}/0.1",
        "attempt": "1",
        "exception": "KeyError" if number % 2 else "ValueError",
        "error": f"no {number}",
        "stacktrace": "Traceback <b>",
    }
    headers = tuple((f"dlq.{name}", text.encode()) for name, text in texts.items())
    return Record(-1, -1, b"k%d" % number, value, (("own", b"1"), *headers))


@pytest.fixture
def visitor(broker: Broker) -> Iterator[Visitor]:
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK]) as server:
        yield Visitor(server)


def ended(visitor: Visitor, answer: Any) -> Any:
    while True:
        row = visitor.data(f"/jobs/{answer['job']}")["job"]
        if row["state"] != "running":
            return row


def states(client: Client) -> list[str]:
    return [entry.state for entry in LetterBox(client, "billing").entries()]


def back(client: Client) -> list[Record]:
    return [record for chunk in client.read(BACK, 0) for record in chunk.records()]


def test_chosen_letters_are_redriven_each_once(visitor: Visitor, client: Client) -> None:
    page = visitor.data(f"/letters/{LETTERS}")
    assert (page["group"], len(page["letters"])) == ("billing", 10)
    fields = {"group": "billing", "letter": ["0-3", "0-4"]}
    row = ended(visitor, visitor.send(f"/letters/{LETTERS}/redrive", fields))
    assert (row["state"], row["result"]) == ("done", {"letters sent": 2, "not sent, redriven too often": 0})
    again = ended(visitor, visitor.send(f"/letters/{LETTERS}/redrive", fields))
    assert again["result"]["letters sent"] == 0
    assert [json.loads(record.value or b"")["id"] for record in back(client)] == [3, 4]
    assert [number for number, state in enumerate(states(client)) if state == "redriven"] == [3, 4]
    assert len(visitor.data(f"/letters/{LETTERS}")["letters"]) == 8


def test_all_that_fit_are_redriven_with_a_patch(visitor: Visitor, client: Client) -> None:
    shown = visitor.data(f"/letters/{LETTERS}?exception=KeyError")["letters"]
    assert [row["origin_offset"] for row in shown] == [1, 3, 5, 7, 9]
    assert [row["offset"] for row in visitor.data(f"/letters/{LETTERS}?key=k2")["letters"]] == [2]
    assert visitor.data(f"/letters/{LETTERS}?day=1999-01-01")["letters"] == []
    patch = '[{"op": "replace", "path": "/card", "value": null}]'
    fields = {"group": "billing", "all_that_fit": True, "exception": "KeyError", "patch": patch}
    assert ended(visitor, visitor.send(f"/letters/{LETTERS}/redrive", fields))["result"]["letters sent"] == 5
    assert [json.loads(record.value or b"") for record in back(client)] == [
        {"id": number, "card": None} for number in (1, 3, 5, 7, 9)
    ]
    fields["patch"] = '[{"op": "remove", "path": "/none"}]'
    fields["exception"] = "ValueError"
    row = ended(visitor, visitor.send(f"/letters/{LETTERS}/redrive", fields))
    assert (row["state"], "has no 'none'" in row["why"]) == ("failed", True)
    assert len(back(client)) == 5


def test_one_letter_is_shown_edited_and_redriven(visitor: Visitor, client: Client) -> None:
    page = visitor.get(f"/letters/{LETTERS}/0/6").text
    assert "Traceback &lt;b&gt;" in page
    shown = visitor.data(f"/letters/{LETTERS}/0/6")
    assert (shown["record"], shown["kind"], json.loads(shown["value"])["id"]) == ("orders-0-6", "json", 6)
    path = f"/letters/{LETTERS}/0/6/redrive"
    wrong = visitor.form(path, {"group": "billing", "kind": "json", "value": "{"})
    assert (wrong.status, "not valid JSON" in wrong.text, back(client)) == (400, True, [])
    row = ended(visitor, visitor.send(path, {"group": "billing", "kind": "json", "value": '{"id": 66}'}))
    assert row["result"]["letters sent"] == 1
    (record,) = back(client)
    assert (record.value, record.key) == (b'{"id": 66}', b"k6")
    headers = dict(record.headers)
    assert headers["own"] == b"1"
    assert headers["dlq.edited"] == hashlib.sha256(b'{"id": 6, "card": "4111-1111"}').hexdigest().encode()
    assert visitor.get(f"/letters/{LETTERS}/0/99").status == 404


def test_group_with_hidden_characters_is_shown_whole_and_linked_by_its_name(visitor: Visitor, client: Client) -> None:
    hidden = "bil\u202eling"
    client.produce(LETTERS, 0, [letter(10, b"{}", hidden)])
    assert visitor.data(f"/letters/{LETTERS}?all=1")["letters"][-1]["group"] == hidden
    page = visitor.get(f"/letters/{LETTERS}/0/10").text
    assert f'href="/groups/{quote(hidden)}">bil⟦U+202E⟧ling</a>' in page


def test_letters_that_are_too_many_for_a_page_are_for_the_command_line(
    visitor: Visitor, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "SCANNED_MAX", 9)
    for path in (f"/letters/{LETTERS}", f"/letters/{LETTERS}/0/6"):
        answer = visitor.get(path)
        assert (answer.status, "kafkalite letters list" in answer.text) == (400, True)
    fields = {"group": "billing", "letter": "0-6"}  # a job is no page
    assert ended(visitor, visitor.send(f"/letters/{LETTERS}/redrive", fields))["result"]["letters sent"] == 1
    assert len(back(client)) == 1


def test_resolved_letters_are_gone_for_all_readers(visitor: Visitor, client: Client) -> None:
    fields = {"group": "billing", "letter": ["0-0", "0-1", "0-5"]}
    row = ended(visitor, visitor.send(f"/letters/{LETTERS}/resolve", fields))
    assert (row["state"], row["result"]["records resolved"]) == ("done", 3)
    assert [entry.origin for entry in LetterBox(client, "billing").entries() if entry.state == "dead"] == [
        f"orders-0-{number}" for number in (2, 3, 4, 6, 7, 8, 9)
    ]
    assert client.start_offset(LETTERS, 0) == 2
    fields = {"group": "billing", "all_that_fit": True}
    assert ended(visitor, visitor.send(f"/letters/{LETTERS}/resolve", fields))["result"]["records resolved"] == 7
    assert "No unresolved dead letters in " in visitor.get(f"/letters/{LETTERS}").text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "choose 1 to"),
        ({"letter": ["x"]}, "PARTITION-OFFSET"),
        ({"letter": ["0-0"] * 501}, "choose 1 to"),
        ({"letter": ["0-0"], "patch": "{"}, "the patch is not valid"),
        ({"letter": ["0-0"], "patch": '[{"op": "x"}]'}, "the patch is not valid"),
        ({"letter": ["0-0"], "patch": "[" * 60_000}, "the patch is not valid"),
        ({"letter": ["0-0"], "rounds": "x"}, "whole number"),
    ],
)
def test_what_cannot_be_redriven_is_said(visitor: Visitor, client: Client, fields: dict[str, Any], said: str) -> None:
    answer = visitor.send_any(f"/letters/{LETTERS}/redrive", fields)
    assert (answer.status, said in answer.text) == (400, True), answer.text
    assert visitor.send_any("/letters/none-such/redrive", {"letter": "0-0"}).status == 404
    assert "enter the group" in visitor.send_any("/letters/orders/redrive", {"letter": "0-0"}).text
    assert back(client) == []


def test_letters_that_a_mask_hides_a_part_of_are_not_edited(broker: Broker, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "masks.toml"
    file.write_text(f'[[mask]]\ntopics = "{LETTERS}"\npaths = ["$.card"]\nheaders = ["dlq.error"]\n')
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK], masks=Masks.from_file(file)) as server:
        visitor = Visitor(server)
        listed, one = visitor.get(f"/letters/{LETTERS}").text, visitor.get(f"/letters/{LETTERS}/0/6").text
        assert "4111-1111" not in listed + one
        assert "no 6" not in listed + one
        assert "you cannot edit it here" in one
        answer = visitor.form(f"/letters/{LETTERS}/0/6/redrive", {"group": "billing", "kind": "null"})
        assert answer.status == 409
        copying = '[{"op": "copy", "from": "/card", "path": "/note"}]'
        fields = {"group": "billing", "letter": "0-6", "patch": copying}
        assert visitor.send_any(f"/letters/{LETTERS}/redrive", fields).status == 409
        assert back(client) == []
        row = ended(visitor, visitor.send(f"/letters/{LETTERS}/redrive", {"group": "billing", "letter": "0-6"}))
        assert row["result"]["letters sent"] == 1
