"""The sum of what settings allow, its parts, and limits below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.base import available_memory
from kafkalite.broker.limits import budget
from kafkalite.settings.broker import BrokerConfig

MIB = 1 << 20


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.load(overrides={"listeners": "kafka://127.0.0.1:0", "log.dirs": "/nowhere", **settings})


def sizes(found: BrokerConfig, clients: int = 0) -> dict[str, int]:
    return {part.name: part.size for part in budget.parts(found, clients)}


def test_each_part_follows_its_settings() -> None:
    plain = sizes(config(), 512 * MIB)
    assert plain["clients"] == 512 * MIB
    assert sizes(config(**{"decompressed.batch.max.bytes": str(64 * MIB)}))["decompression"] < plain["decompression"]
    more = sizes(config(**{"log.cleaner.dedupe.buffer.size": str(256 * MIB)}))
    assert more["compaction"] == plain["compaction"] + 128 * MIB
    assert sizes(config(**{"log.cleaner.enable": "false"}))["compaction"] == 0
    assert sizes(config(**{"num.io.threads": "64"}))["threads"] > plain["threads"]
    assert plain["wrappers_of_0.7"] == 0
    classic = {"listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0", "decompressed.batch.max.bytes": str(64 * MIB)}
    assert sizes(config(**classic))["wrappers_of_0.7"] == 128 * MIB


def reported(caplog: pytest.LogCaptureFixture, **limits: int | None) -> tuple[int, list[str]]:
    caplog.set_level("INFO", "kafkalite")
    given = {"memory_limit": None, "address_space_limit": None, **limits}
    total = budget.report(config(), clients=512 * MIB, partition_count=3, **given)
    assert "memory budget of the settings" in caplog.text
    return total, [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_sum_is_reported_without_a_warning_where_it_fits(caplog: pytest.LogCaptureFixture) -> None:
    total, warnings = reported(caplog, memory_limit=64 << 30, address_space_limit=64 << 30)
    assert total == sum(part.size for part in budget.parts(config(), 512 * MIB))
    assert warnings == []
    (line,) = caplog.records
    assert line.__dict__["fields"]["total_mib"] == total // MIB


def test_limits_below_the_sum_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    _, warnings = reported(caplog, memory_limit=256 * MIB, address_space_limit=700 * MIB)
    assert ["limit of the cgroup" in text for text in warnings] == [True, False]
    assert "ulimit -v" in warnings[1]


def test_maps_of_segments_count_as_address_space() -> None:
    assert budget.address_space(config(), 0, 10) - budget.address_space(config(), 0, 0) == 10 << 30


def hierarchy(tmp_path: Path, files: dict[str, str], membership: str) -> int | None:
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "membership").write_text(membership)
    return available_memory.cgroup_limit(str(tmp_path / "cgroup"), str(tmp_path / "membership"))


def test_lowest_limit_above_the_process_counts(tmp_path: Path) -> None:
    files = {"a/b/memory.max": "max\n", "a/memory.max": "700000000\n", "memory.max": "900000000\n"}
    assert hierarchy(tmp_path, files, "0::/a/b\n") == 700_000_000


def test_version_one_has_its_own_file_and_number_for_no_limit(tmp_path: Path) -> None:
    files = {"memory/a/memory.limit_in_bytes": "500\n", "memory/memory.limit_in_bytes": "9223372036854771712\n"}
    assert hierarchy(tmp_path, files, "5:cpu:/x\n4:memory:/a\n") == 500


@pytest.mark.parametrize("membership", ["0::/gone\n", ""])
def test_no_file_is_no_limit(tmp_path: Path, membership: str) -> None:
    assert hierarchy(tmp_path, {}, membership) is None
