"""A batch in the middle of a topic is damaged: what `kafkalite consume` and the console make of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.console.server import ConsoleServer
from tests.integration.test_console import LOOPBACK, ask, data
from tests.kit.harness.command_output import own_lines
from tests.kit.harness.damaged_log import CUT, DAMAGES, damage_second_batch, fill, flip_four_bytes
from tests.kit.harness.failing_groups import small_broker

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("data")
    with small_broker(log_dirs=str(directory)) as broker:
        fill(broker.bootstrap_servers)
    flip_four_bytes(directory)
    with small_broker(log_dirs=str(directory)) as broker:
        yield broker


def consumed(broker: Broker, capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    status = main(["consume", "-b", broker.bootstrap_servers, "-t", "orders", *arguments])
    out, err = capfd.readouterr()
    return status, out.splitlines(), own_lines(err)


def test_consume_ends_at_damage_with_one_sentence(broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
    status, lines, said = consumed(broker, capfd, "-o", "beginning", "-e")
    assert (status, lines) == (1, [str(number) for number in range(1000)])
    damaged = "kafkalite: orders-0: the broker reports a corrupt batch at offset 1000"
    assert said.splitlines()[1:] == [f"{damaged}; use --skip-damaged to continue after it"]


@pytest.mark.parametrize("more", [("-e",), ("--until", "+1s")], ids=["to the end", "until a time"])
def test_consume_continues_after_damage(
    broker: Broker, capfd: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    status, lines, said = consumed(broker, capfd, "-o", "beginning", "--skip-damaged", *more)
    assert (status, lines) == (0, [str(number) for number in (*range(1000), *range(2000, 3000))])
    assert said.splitlines()[1:] == ["kafkalite: orders-0: skipped damaged offsets 1000 to 1999"]


@pytest.mark.parametrize("how", DAMAGES)
def test_any_damage_to_a_batch_leaves_the_others_readable(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    with small_broker(log_dirs=str(tmp_path)) as broker:
        fill(broker.bootstrap_servers)
    damage_second_batch(tmp_path, how)
    with small_broker(log_dirs=str(tmp_path)) as broker:
        status, lines, said = consumed(broker, capfd, "-o", "beginning", "-e")
        assert (status, len(lines)) == (1, 1000)
        assert "corrupt batch at offset 1000; use --skip-damaged" in said
        end = 3000 if how == CUT else 2000
        status, lines, said = consumed(broker, capfd, "-o", "beginning", "-e", "--skip-damaged")
        assert (status, lines) == (0, [str(number) for number in (*range(1000), *range(end, 3000))])
        assert said.splitlines()[1:] == [f"kafkalite: orders-0: skipped damaged offsets 1000 to {end - 1}"]


def test_a_group_member_continues_after_damage(broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
    status, lines, said = consumed(broker, capfd, "-g", "readers", "--from-beginning", "--skip-damaged", "-c", "1500")
    assert (status, lines[998:1002]) == (0, ["998", "999", "2000", "2001"])
    assert "skipped damaged offsets 1000 to 1999" in said


def test_pages_of_messages_show_damage_and_what_is_around_it(broker: Broker) -> None:
    with ConsoleServer(broker.bootstrap_servers, [LOOPBACK]) as console:
        page = data(console, "/topics/orders/messages?from=offset&value=995&count=10")
        assert [row["offset"] for row in page["records"]] == [*range(995, 1000), *range(2000, 2005)]
        assert page["damaged"] == [{"partition": 0, "first": 1000, "last": 1999}]
        text = ask(console, "/topics/orders/messages?from=newest&before=2003&count=10").text
        assert "to 1999 are damaged and cannot be read" in text
        newest = data(console, "/topics/orders/messages?from=newest&before=2003&count=10")
        assert [row["offset"] for row in newest["records"]] == [2002, 2001, 2000, *range(999, 992, -1)]
        assert data(console, "/topics/orders/messages?from=oldest&count=10")["damaged"] == []
        message = ask(console, "/topics/orders/messages/0/1500")
        assert "the broker reports a corrupt batch at offset 1500" in message.text
        assert message.status >= 400
