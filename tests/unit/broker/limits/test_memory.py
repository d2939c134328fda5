"""How much memory there is: the machine's, or what a cgroup allows; and the default of the ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalite._native.serve.memory import KIND_GROUPS, MemoryCeiling
from kafkalite.base import available_memory as memory
from kafkalite.broker.limits.holder import Holder
from kafkalite.broker.limits.memory import describe
from kafkalite.errors import ConfigError
from kafkalite.settings.broker import BrokerConfig

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_smallest_limit_of_a_cgroup_and_those_above_it_counts(tmp_path: Path) -> None:
    write(tmp_path / "membership", "0::/slice/unit\n")
    write(tmp_path / "slice/unit/memory.max", f"{3 * GIB}\n")
    write(tmp_path / "slice/unit/memory.high", "max\n")
    write(tmp_path / "slice/memory.max", f"{2 * GIB}\n")
    assert memory.cgroup_limit(str(tmp_path), str(tmp_path / "membership")) == 2 * GIB
    write(tmp_path / "slice/unit/memory.high", f"{GIB}\n")
    assert memory.cgroup_limit(str(tmp_path), str(tmp_path / "membership")) == GIB


def test_a_container_that_sees_its_own_cgroup_as_the_root_has_its_limit(tmp_path: Path) -> None:
    write(tmp_path / "membership", "0::/\n")
    write(tmp_path / "memory.max", "268435456\n")
    assert memory.cgroup_limit(str(tmp_path), str(tmp_path / "membership")) == 256 * MIB


def test_version_1_has_a_hierarchy_for_memory(tmp_path: Path) -> None:
    write(tmp_path / "membership", "5:cpu,cpuacct:/a\n4:memory:/docker/x\n")
    write(tmp_path / "memory/docker/x/memory.limit_in_bytes", "536870912\n")
    write(tmp_path / "memory/memory.limit_in_bytes", "9223372036854771712\n")  # what means none
    assert memory.cgroup_limit(str(tmp_path), str(tmp_path / "membership")) == 512 * MIB


def test_without_a_limit_there_is_none(tmp_path: Path) -> None:
    assert memory.cgroup_limit(str(tmp_path), str(tmp_path / "missing")) is None
    write(tmp_path / "membership", "0::/a\n")
    write(tmp_path / "a/memory.max", "max\n")
    assert memory.cgroup_limit(str(tmp_path), str(tmp_path / "membership")) is None


@pytest.mark.parametrize(
    ("ram", "limit", "expected"),
    [(64 * GIB, None, 512 * MIB), (GIB, None, 256 * MIB), (64 * GIB, GIB, 256 * MIB), (64 * GIB, MIB, memory.SMALLEST)],
)
def test_the_default_is_a_quarter_of_what_is_available(
    monkeypatch: pytest.MonkeyPatch, ram: int, limit: int | None, expected: int
) -> None:
    monkeypatch.setattr(memory, "ram_size", lambda: ram)
    monkeypatch.setattr(memory, "cgroup_limit", lambda: limit)
    assert memory.default_ceiling() == expected


def test_the_setting_has_that_default_and_a_least_value() -> None:
    assert BrokerConfig.load().broker_memory_max == memory.default_ceiling()
    with pytest.raises(ConfigError, match=r"broker\.memory\.max"):
        BrokerConfig.load(overrides={"broker.memory.max": memory.SMALLEST - 1})


def test_queued_max_request_bytes_has_room_for_the_longest_request() -> None:
    assert BrokerConfig.load().queued_max_request_bytes == -1
    with pytest.raises(ConfigError, match=r"queued\.max\.request\.bytes"):
        BrokerConfig.load(overrides={"queued.max.request.bytes": 1000})
    loaded = BrokerConfig.load(overrides={"queued.max.request.bytes": 1000, "socket.request.max.bytes": 1000})
    assert loaded.queued_max_request_bytes == 1000


def test_health_names_those_who_hold_most() -> None:
    ceiling = MemoryCeiling(64 * MIB)
    charge = ceiling.of(Holder("User:a", "10.0.0.1")).charge(KIND_GROUPS, 50 * MIB)
    assert ceiling.near
    text = describe(ceiling)
    assert "50 of 64 MiB" in text
    assert "User:a at 10.0.0.1 holds 50 MiB" in text
    charge.resize(0)
    assert not ceiling.near
