"""A broker that goes into a cluster, before it asks anybody there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.broker.log import files
from kafkalite.cli import main
from tests.kit.harness.log_harness import started

IN_CLUSTER = {
    "process.roles": "broker",
    "node.id": "7",
    "controller.quorum.bootstrap.servers": "127.0.0.1:1",
    "controller.listener.names": "CONTROLLER",
}


def migrate(directory: Path) -> int:
    settings = {**IN_CLUSTER, "log.dirs": str(directory)}
    return main(["cluster", "migrate", "--dry-run", *(f"--set={key}={text}" for key, text in settings.items())])


@pytest.mark.parametrize("text", ["seven", "", "1.5", "\udcff"])
def test_a_damaged_identity_is_reported_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    started(tmp_path).close()
    path = tmp_path / files.META_PROPERTIES_NAME
    whole = path.read_bytes()
    lines = [line for line in whole.splitlines() if not line.startswith(b"node.id=")]
    path.write_bytes(b"\n".join([*lines, b"node.id=" + text.encode(errors="surrogateescape"), b""]))
    assert migrate(tmp_path) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "meta.properties is damaged: node.id=" in said
    path.write_bytes(whole)
    assert migrate(tmp_path) == 0
