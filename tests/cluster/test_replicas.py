"""Replicas read from directories: equal content, differences, and the outcome of a log's transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import replicas
from tests.kit.harness import wire

EPOCHS = [(0, 0), (2, 2), (5, 4)]


def batch(offset: int, epoch: int, *values: bytes, **fields: int) -> bytes:
    return wire.batch_of(
        [wire.Record(b"k", value) for value in values],
        base_offset=offset,
        leader_epoch=epoch,
        **{"base_timestamp": 7, "max_timestamp": 7, **fields},
    )


LOG = [batch(0, 0, b"a", b"b"), batch(2, 2, b"c"), batch(3, 2, b"d"), batch(4, 5, b"e", b"f")]
END = 6


def write(directory: Path, batches: list[bytes], tail: bytes = b"", epochs: list[tuple[int, int]] = EPOCHS) -> Path:
    """A replica in two segments."""
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log").write_bytes(b"".join(batches[:2]))
    (directory / f"{3:020}.log").write_bytes(b"".join(batches[2:]) + tail)
    rows = [f"{epoch} {offset}" for epoch, offset in epochs]
    (directory / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(rows)), *rows, ""]))
    return directory


def kinds(tmp_path: Path, other: Path, high_watermark: int = END) -> set[str]:
    stored = {1: replicas.read(write(tmp_path / "1" / "t-0", LOG)), 2: replicas.read(other)}
    return set(replicas.compare("t-0", stored, high_watermark).kinds)


@pytest.mark.parametrize("tail", [b"", bytes(4096), LOG[0][:30], batch(6, 5, b"not yet everywhere")])
def test_equal_replicas_may_end_differently_beyond_the_high_watermark(tmp_path: Path, tail: bytes) -> None:
    assert kinds(tmp_path, write(tmp_path / "2" / "t-0", LOG, tail)) == set()


@pytest.mark.parametrize(
    ("batches", "epochs", "kind"),
    [
        (LOG[:3], EPOCHS, "replicas"),
        ([*LOG[:3], batch(4, 5, b"e", b"x")], EPOCHS, "replicas"),
        ([*LOG[:3], batch(4, 5, b"e"), batch(5, 5, b"f")], EPOCHS, "replicas"),
        ([*LOG[:3], LOG[3][:-1] + b"x"], EPOCHS, "replicas"),
        ([*LOG[:3], batch(4, 2, b"e", b"f")], EPOCHS[:2], "replicas"),
        (LOG, EPOCHS[:2], "epochs"),
        (LOG, EPOCHS[1:], "epochs"),
        (LOG, [*EPOCHS[:2], (5, 5)], "epochs"),
        (LOG, [], "epochs"),
    ],
    ids=["short", "value", "batches", "spoiled", "epoch", "last-epoch", "first-epoch", "epoch-late", "no-epochs"],
)
def test_what_differs_is_found(tmp_path: Path, batches: list[bytes], epochs: list[tuple[int, int]], kind: str) -> None:
    assert kind in kinds(tmp_path, write(tmp_path / "2" / "t-0", batches, epochs=epochs))


def test_only_what_lies_below_the_high_watermark_has_to_be_there(tmp_path: Path) -> None:
    other = write(tmp_path / "2" / "t-0", [*LOG[:3], batch(4, 3, b"x")], epochs=[*EPOCHS[:2], (3, 4)])
    assert kinds(tmp_path, other, 4) == set()
    assert [record.value for record in replicas.records(replicas.read(other), 4)] == [b"a", b"b", b"c", b"d"]


def test_replica_whose_beginning_retention_took_away_is_compared_from_there(tmp_path: Path) -> None:
    other = write(tmp_path / "2" / "t-0", LOG)
    (other / f"{0:020}.log").unlink()
    assert kinds(tmp_path, other) == set()


def marker(offset: int, producer: int, kind: int) -> bytes:
    """Kind 0 aborts, 1 commits."""
    key = (0).to_bytes(2, "big") + kind.to_bytes(2, "big")
    return wire.batch_of([wire.Record(key, bytes(6))], base_offset=offset, producer_id=producer, attributes=0x30)


def test_only_transactions_with_a_commit_count(tmp_path: Path) -> None:
    def part(offset: int, producer: int, value: bytes) -> bytes:
        return batch(offset, -1, value, producer_id=producer, attributes=0x10)

    log = [
        part(0, 1, b"kept"),
        part(1, 2, b"aborted"),
        batch(2, -1, b"plain"),
        part(3, 1, b"kept too"),
        marker(4, 2, 0),
        marker(5, 1, 1),
        part(6, 2, b"open"),
    ]
    stored = replicas.read(write(tmp_path / "t-0", log))
    found, verdict = replicas.committed("t-0", stored, 7)
    assert [(record.offset, record.value) for record in found] == [(0, b"kept"), (2, b"plain"), (3, b"kept too")]
    assert verdict.kinds == {"hanging"}
    assert replicas.committed("t-0", stored, 6)[1].kinds == set()


def test_replicas_of_a_directory_are_found_by_their_names(tmp_path: Path) -> None:
    for name in ("t-0", "t-1", "__cluster_metadata-0", "t-2.0a1b-delete", "strays"):
        write(tmp_path / name, LOG)
    assert replicas.names([tmp_path]) == {"t-0", "t-1"}
