"""`kafkalite ping` reads the listeners of a configuration and needs no credentials."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.cli import main
from tests.kit.harness.tls_broker import TlsBroker

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path_factory.mktemp("ping")) as broker:
        yield broker


def configured(tls: TlsBroker, path: Path, *names: str) -> Path:
    """A configuration file with these listeners of a running broker."""
    listeners = ",".join(f"{name}://:{tls.broker.endpoints[name].port}" for name in names)
    lines = [f"{key}={value}" for key, value in (tls.settings | {"listeners": listeners}).items()]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("PLAINTEXT",), "PLAINTEXT"),
        (("SSL", "MUST", "PLAINTEXT"), "PLAINTEXT"),
        (("MUST", "SSL"), "SSL"),
        (("MUST",), "MUST"),
    ],
    ids=["plaintext", "all", "TLS", "client certificates"],
)
def test_a_broker_responds_at_its_easiest_listener(
    tls: TlsBroker, tmp_path: Path, names: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = configured(tls, tmp_path / "server.properties", *names)
    assert main(["ping", "--config", str(file)]) == 0
    port = tls.broker.endpoints[expected].port
    assert capsys.readouterr().out == f"the broker responds at {expected}://127.0.0.1:{port}\n"


@pytest.mark.parametrize("names", [("PLAINTEXT",), ("SSL",), ("MUST",)], ids=lambda names: names[0])
def test_what_accepts_connections_and_says_nothing_is_no_broker(
    tls: TlsBroker, tmp_path: Path, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    file = configured(tls, tmp_path / "server.properties", *names)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        words = ["ping", "--config", str(file), "--set", f"listeners={names[0]}://127.0.0.1:{port}", "--timeout", "0.2"]
        assert main(words) == 2
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize("listeners", ["kafka://127.0.0.1:0", "kafka07://127.0.0.1:9072"])
def test_a_listener_that_cannot_be_asked_is_refused(listeners: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ping", "--listeners", listeners]) == 2
    assert "no listener of Kafka's protocol has a fixed port" in capsys.readouterr().err
