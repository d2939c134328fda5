"""Every command that prints what clients have chosen, on a terminal, with names that a terminal would obey."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import COMMANDS
from kafkalite.client import Client
from kafkalite.model import TopicPartition
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from kafkalite.wire.record.columns import Record
from tests.kit.harness.terminal import HOSTILE, on_terminal
from tests.kit.processes.broker import free_port

pytestmark = [pytest.mark.integration, pytest.mark.own_process]

GROUP: Final = f"g{HOSTILE}"
ID: Final = f"t{HOSTILE}"
USER: Final = f"u{HOSTILE}"
VALUE: Final = f"needle {HOSTILE}".replace("FORGED", "\tand on").encode() + b"\x9b"
"""Its line end and tab stay."""
HEADERS: Final = tuple(
    (name, value.encode())
    for name, value in (
        ("dlq.topic", "logs"),
        ("dlq.partition", "0"),
        ("dlq.offset", "0"),
        ("dlq.group", GROUP),
        ("dlq.exception", f"e{HOSTILE}"),
        ("dlq.cause", f"c{HOSTILE}"),
        ("dlq.error", f"text {HOSTILE}"),
        ("dlq.stacktrace", f"at {HOSTILE}".replace("\nFORGED", "")),
        (f"h{HOSTILE}", HOSTILE),
    )
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """With a group, a member, a transaction, a user, quotas, rules, settings, records and a letter with such names."""
    settings = {
        "log.dirs": str(tmp_path_factory.mktemp("data")),
        "listeners": "kafka://127.0.0.1:0",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "metrics.listeners": f"http://127.0.0.1:{free_port()}",
    }
    with Broker(settings) as running:
        for topic in ("logs", "letters", "open"):
            running.create_topic(topic)
        with Client(running.bootstrap_servers, client_id=f"c{HOSTILE}") as client:
            record = Record(-1, -1, f"k{HOSTILE}".encode(), VALUE, HEADERS[-1:])
            client.produce("logs", 0, [record])
            client.produce("letters", 0, [Record(-1, -1, record.key, record.value, HEADERS)])
            client.groups.commit(f"idle{HOSTILE}", {TopicPartition("logs", 0): 0})
            with (
                client.group_reader(GROUP, ["logs"], reset="earliest", instance_id=f"i{HOSTILE}") as member,
                client.producer(transactional_id=ID) as producer,
            ):
                member.commit({next(iter(member)).partition: 0})
                producer.begin_transaction()
                producer.send("open", 0, [b"x"])
                producer.flush()
                yield running


CLIENTS: Final = [
    ("groups", "list"),
    ("groups", "describe"),
    ("groups", "describe", GROUP),
    ("groups", "delete", GROUP),
    ("groups", "delete", f"none{HOSTILE}"),
    ("groups", "delete", f"none{HOSTILE}", "--if-exists"),
    ("groups", "reset-offsets", f"idle{HOSTILE}", "--to-earliest"),
    ("groups", "reset-offsets", f"none{HOSTILE}", "--to-earliest"),
    ("groups", "delete-offsets", f"none{HOSTILE}", "--topic", f"none{HOSTILE}"),
    ("groups", "delete-offsets", f"idle{HOSTILE}", "--topic", "logs"),
    ("transactions", "list"),
    ("transactions", "describe"),
    ("transactions", "describe", ID),
    ("transactions", "describe", f"none{HOSTILE}"),
    ("transactions", "open", "--topic", "open:0"),
    ("acls", "add", "--allow-principal", f"User:{USER}", "--operation", "Read", "--group", GROUP, "--allow-host", "*"),
    ("acls", "list"),
    ("acls", "list", "--group", f"none{HOSTILE}"),
    ("quotas", "set", "--user", USER, "--client-id", f"c{HOSTILE}", "--producer-byte-rate", "1e9"),
    ("quotas", "list"),
    ("quotas", "set", "--ip", HOSTILE, "--connection-creation-rate", "1"),
    ("users", "add", USER, "--password-file", "{password}"),
    ("users", "list"),
    ("users", "delete", f"none{HOSTILE}"),
    ("configs", "alter", "topic", "logs", "--set", f"leader.replication.throttled.replicas={HOSTILE}"),
    ("configs", "describe", "topic", "logs"),
    ("configs", "describe", "topic", HOSTILE),
    ("configs", "describe", "topic", "logs", "--all", "--docs"),
    ("configs", "describe", "broker", "--all"),
    ("configs", "alter", "topic", "logs", "--set", f"none{HOSTILE}=1"),
    ("topics", "list"),
    ("topics", "describe"),
    ("topics", "describe", HOSTILE),
    ("topics", "create", HOSTILE),
    ("topics", "delete", HOSTILE),
    ("consume", "-t", "logs", "-o", "beginning", "-e", "-v"),
    ("consume", "-t", "letters", "-o", "beginning", "-e", "-f", "%t %p %o %T %K %S %k %h %s\\n"),
    ("consume", "-t", "logs", "-o", "beginning", "-c", "1", "-g", "{new}"),
    ("consume", "-t", HOSTILE, "-e"),
    ("track", "needle", "--groups", "-v"),
    ("track", HOSTILE, "--in", "header:none,key"),
    ("query", 'SELECT * FROM "logs"'),
    ("query", f'SELECT key AS "{HOSTILE}" FROM logs'),  # noqa: S608  # the user's own statement
    ("query", 'SELECT * FROM "letters"', "--csv"),
    ("query", f"SELECT {HOSTILE}"),
    ("letters", "list", GROUP, "-t", "letters"),
    ("letters", "count", GROUP, "-t", "letters"),
    ("letters", "show", GROUP, "logs-0-0", "-t", "letters"),
    ("letters", "redrive", GROUP, "-t", "letters"),
    ("letters", "skip", GROUP, "logs-0-0"),
    ("letters", "list", GROUP),
    ("letters", "tombstone", "logs-0-0"),
    ("failures", "status", GROUP),
    ("failures", "status", f"none{HOSTILE}"),
    ("cluster", "describe"),
    ("top", "--once", "--interval", "0.1"),
]
"""What asks the broker; -b is added."""
OTHERS: Final = [
    ("log", "dump", "{logs}"),
    ("log", "dump", "{logs}", "--records", "-f", "%k %h %s\\n"),
    ("log", "dump", HOSTILE),
    ("log", "check", HOSTILE),
    ("audit", "--live", "{broker}", "--grace", "0"),
    ("audit", "--live", HOSTILE),
    ("mirror", "--from", "{broker}", "--to", "{broker}", "--name", HOSTILE, "-e", "--sync-group-offsets"),
    ("produce", "-b", HOSTILE, "-t", "logs", "/dev/null"),
    ("produce", "-b", "{broker}", "-t", HOSTILE, "/dev/null"),
    ("load", "--topics", HOSTILE, "--target", "/nowhere"),
    ("backup", HOSTILE, HOSTILE),
    ("restore", HOSTILE, HOSTILE),
    ("start", "--set", f"{HOSTILE}=1"),
    ("run", "--set", f"{HOSTILE}=1", "--", "true"),
    ("ping", "--config", HOSTILE),
    ("ping", "--listeners", HOSTILE),
    ("check", HOSTILE),
    ("web", "list-users", HOSTILE),
    ("registry", "--set", HOSTILE),
    ("console", HOSTILE),
    ("classic", HOSTILE),
    ("metrics", HOSTILE),
    ("bench", HOSTILE),
    ("settings", HOSTILE),
    ("completion", HOSTILE),
    ("version", HOSTILE),
    (HOSTILE,),
]


def filled(words: tuple[str, ...], broker: Broker, tmp_path: Path) -> list[str]:
    password = tmp_path / "password"
    password.write_text("secret\n")
    values = {
        "{broker}": broker.bootstrap_servers,
        "{logs}": str(Path(broker.logs.directory) / "logs-0"),
        "{password}": str(password),
        "{new}": f"new-{tmp_path.name}{HOSTILE}",  # another run has committed all that there is
    }
    return [values.get(word, word) for word in words]


@pytest.mark.parametrize("words", CLIENTS, ids=lambda words: " ".join(map(ascii, words))[:60])
def test_what_clients_chose_reaches_the_terminal_escaped(
    broker: Broker, words: tuple[str, ...], tmp_path: Path
) -> None:
    screen = on_terminal(*filled(words, broker, tmp_path), "-b", broker.bootstrap_servers)
    assert screen.obeyed == []
    assert screen.text or screen.status == 0


@pytest.mark.parametrize("words", OTHERS, ids=lambda words: " ".join(map(ascii, words))[:60])
def test_what_a_message_repeats_reaches_the_terminal_escaped(
    broker: Broker, words: tuple[str, ...], tmp_path: Path
) -> None:
    screen = on_terminal(*filled(words, broker, tmp_path))
    assert screen.obeyed == []
    assert screen.text or screen.status == 0


@pytest.mark.parametrize(
    "words",
    [words for words in CLIENTS if words[0] != "failures" and "-f" not in words and "--csv" not in words],
    ids=lambda words: " ".join(map(ascii, words))[:60],
)
def test_json_escapes_what_does_not_print(broker: Broker, words: tuple[str, ...], tmp_path: Path) -> None:
    screen = on_terminal(*filled(words, broker, tmp_path), "-b", broker.bootstrap_servers, "--json")
    assert screen.obeyed == []
    for line in screen.text.splitlines():
        if line[:1] in "{[":
            json.loads(line)


def test_names_are_shown_and_not_left_out(broker: Broker) -> None:
    at = ("-b", broker.bootstrap_servers)
    shown = HOSTILE.encode("unicode_escape").decode()
    assert f"g{shown}" in on_terminal("groups", "list", *at).text
    assert f"t{shown}" in on_terminal("transactions", "list", *at).text
    groups = json.loads(on_terminal("groups", "list", "--json", *at).text)
    assert GROUP in {group["group_id"] for group in groups}


def test_every_command_is_tried() -> None:
    assert set(COMMANDS) <= {words[0] for words in (*CLIENTS, *OTHERS)}
