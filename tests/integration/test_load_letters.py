"""Letters of a load, without Spark: each once wherever the load is killed, and known to `kafkalite letters`."""

import json
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import READ_COMMITTED, Client
from kafkalite.failures.adapters.columnar import messages_of
from kafkalite.failures.events import Message
from kafkalite.failures.headers import found_letter
from kafkalite.load import letters
from kafkalite.load.letters import LETTERS, LetterTopic
from kafkalite.load.manifest import Target
from kafkalite.load.storage import LoadError
from kafkalite.model import TopicPartition
from kafkalite.spark import load
from tests.kit.processes import letter_writer
from tests.kit.processes.dying import steps_of
from tests.kit.processes.letter_writer import COUNT, is_bad

pytestmark = pytest.mark.integration


def letters_of(client: Client, topic: str) -> list[Message]:
    return [
        message
        for number in client.partitions(topic)
        for chunk in client.read(topic, number, end=client.end_offset(topic, number), isolation=READ_COMMITTED)
        for message in messages_of(chunk)
    ]


def check(client: Client, topic: str, place: Path) -> None:
    """Below the position: good records once in files, bad ones once as letters; nothing waits."""
    (end,) = load.positions(place).values()
    offsets = sorted(load.dataset(place).to_table(columns=["offset"]).column("offset").to_pylist())
    assert offsets == [offset for offset in range(end) if not is_bad(offset)]
    found = [found_letter(message.headers) for message in letters_of(client, topic)]
    assert sorted(each.letter.offset for each in found if each) == [n for n in range(end) if is_bad(n)]
    assert Target(place).storage.names(LETTERS) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_every_step(kafka_broker: Broker, kafka_topic: str, tmp_path: Path) -> None:
    place, topic = tmp_path / "loaded", f"{kafka_topic}-bad"
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        words = [kafka_broker.bootstrap_servers, topic, str(place)]
        count = 0
        for count in steps_of("tests.kit.processes.letter_writer", tmp_path, *words):  # noqa: B007  # the last one
            letter_writer.load(client, LetterTopic(topic), Target(place), 0)
            check(client, topic, place)
        assert count > 30, "steps that there are"


@pytest.mark.parametrize("moment", ["before the transaction", "before its end", "after its end"])
def test_letters_that_were_not_sent_are_sent_by_the_next_load(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """As a process that ends there leaves it; the steps between are in the test above."""
    place, topic = tmp_path / "loaded", LetterTopic(f"{kafka_topic}-bad")

    class Crash(BaseException):
        pass

    def crash(*_given: object, **_named: object) -> None:
        raise Crash

    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        if moment == "before the transaction":
            monkeypatch.setattr(letters, "_send", crash)
        else:
            from kafkalite.client import Producer

            real = Producer.commit_transaction
            monkeypatch.setattr(
                Producer,
                "commit_transaction",
                lambda producer: crash() if moment == "before its end" else (real(producer), crash()),
            )
        with pytest.raises(Crash):
            letter_writer.load(client, topic, Target(place), 0)
        monkeypatch.undo()
        assert Target(place).refresh().positions == {TopicPartition("t", 0): COUNT}, "the records are passed over"
        assert len(Target(place).storage.names(LETTERS)) == 1
        letter_writer.load(client, topic, Target(place), 0)
        check(client, topic.name, place)


def test_letters_that_cannot_be_sent_stay(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkalite.client import Producer
    from kafkalite.errors import TopicAuthorizationFailed

    place, topic = tmp_path / "loaded", LetterTopic(f"{kafka_topic}-bad")

    def refuse(*_given: object, **_named: object) -> None:
        raise TopicAuthorizationFailed("not you")

    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        monkeypatch.setattr(Producer, "send", refuse)
        with pytest.raises(LoadError, match=r"dead letters of .* to .*-bad \(.*not you.*\); the next load retries"):
            letter_writer.load(client, topic, Target(place), 0)
        monkeypatch.undo()
        letter_writer.load(client, topic, Target(place), 0)
        check(client, topic.name, place)


def test_the_letters_commands_know_them(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`list`, `show`, `redrive` back into the topic, where a load reads it again, and `resolve`."""
    topic = f"{kafka_topic}-bad"
    where = ["-b", kafka_broker.bootstrap_servers]

    def letters_command(*words: str) -> str:
        assert main(["letters", *words, *where]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    kafka_broker.create_topic("t")
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        letter_writer.load(client, LetterTopic(topic), Target(tmp_path / "loaded"), 0)
        told = [
            json.loads(line) for line in letters_command("list", "kafkalite-load", "-t", topic, "--json").splitlines()
        ]
        bad = [n for n in range(COUNT) if is_bad(n)]
        assert [(row["record"], row["state"], row["error"]) for row in told] == [
            (f"t-0-{n}", "dead", "it is bad") for n in bad
        ]
        assert {(row["group"], row["exception"], row["family"]) for row in told} == {
            ("kafkalite-load", letter_writer.EXCEPTION, "kafkalite")
        }
        shown = json.loads(letters_command("show", "kafkalite-load", "t-0-3", "-t", topic, "--json"))
        assert (shown["key"], shown["value"], shown["headers"]) == ("k3", "v3", {"h": "3"})
        assert letters_command("redrive", "kafkalite-load", "-t", topic, "--yes").startswith(
            f"{len(bad)} dead letters were sent"
        )
        back = letters_of(client, "t")
        assert [(message.key, message.value) for message in back] == [(b"k%d" % n, b"v%d" % n) for n in bad]
        assert [dict(message.headers)["h"] for message in back] == [b"%d" % n for n in bad]
        letters_command("resolve", "kafkalite-load", "t-0-3", "-t", topic)
        left = [
            json.loads(line) for line in letters_command("list", "kafkalite-load", "-t", topic, "--json").splitlines()
        ]
        assert [row["record"] for row in left] == [f"t-0-{n}" for n in bad if n != 3]
