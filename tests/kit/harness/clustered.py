"""Brokers of this project in a cluster of somebody's controllers, and what they know of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalite.broker import Broker
    from kafkalite.broker.cluster.member import Member


def membership(controllers: str, number: int, port: int = 0) -> dict[str, str]:
    """What makes a broker one of a cluster's, with controllers at host:port,… and a listener on loopback."""
    return {
        "process.roles": "broker",
        "node.id": str(number),
        "controller.quorum.bootstrap.servers": controllers,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }


def cluster_settings(controllers: str, directory: Path, **more: object) -> dict[str, object]:
    """Settings of broker 7 in the cluster of controllers at host:port,…; underscores of `more` are dots."""
    return {
        **membership(controllers, 7),
        "log.dirs": str(directory),
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def member_of(broker: Broker) -> Member:
    assert broker._parts.cluster.member is not None
    return broker._parts.cluster.member


def journal_operations(directory: Path) -> set[str]:
    """Return the operations recorded in a data directory's metadata journal."""
    lines = (directory / "metadata.journal").read_text().splitlines()
    return {json.loads(line[line.index("{") :])["op"] for line in lines if '"op"' in line}
