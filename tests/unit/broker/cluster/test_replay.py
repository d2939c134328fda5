"""Publishing committed metadata batches: a controller transaction at once, a snapshot as a whole."""

from collections.abc import Iterator

import pytest

from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.cluster.records import METADATA_LEVELS, Batch, MetadataFault, read_batches
from kafkalite.broker.cluster.replay import Replay
from tests.kit.fakes.controller import control_batch, data_batch, snapshot_of

NOOP = types.NoOpRecord()


def feature(level: int) -> types.FeatureLevelRecord:
    return types.FeatureLevelRecord(name="metadata.version", feature_level=level)


def batches(*groups: tuple[object, ...], offset: int = 0) -> Iterator[Batch]:
    for group in groups:
        yield from read_batches(data_batch(offset, 1, *group))
        offset += len(group)


def test_image_has_the_offset_of_the_last_record() -> None:
    replay = Replay()
    image = replay.apply(batches((feature(7), NOOP), (feature(8),)))
    assert image is replay.image
    assert (image.offset, image.epoch, image.features) == (2, 1, {"metadata.version": 8})
    assert replay.apply(()) is None
    again = replay.apply(batches((NOOP,), offset=3))
    assert again is not None
    assert (again.offset, again.features is image.features) == (3, True)


def test_nothing_of_a_transaction_is_published_before_its_end() -> None:
    replay = Replay()
    image = replay.apply(batches((feature(7),), (NOOP, types.BeginTransactionRecord(name="t"), feature(8))))
    assert image is not None
    assert (image.offset, image.features) == (1, {"metadata.version": 7})
    assert replay.apply(batches((feature(9),), offset=4)) is None
    assert replay.end_offset == 5
    image = replay.apply(batches((types.EndTransactionRecord(), NOOP), offset=5))
    assert image is not None
    assert (image.offset, image.features) == (6, {"metadata.version": 9})


def test_aborted_transaction_leaves_nothing() -> None:
    replay = Replay()
    group = (feature(7), types.BeginTransactionRecord(), feature(8), types.AbortTransactionRecord(), NOOP)
    image = replay.apply(batches(group))
    assert image is not None
    assert (image.offset, image.features) == (4, {"metadata.version": 7})


def test_records_of_a_newer_release_are_not_guessed_at() -> None:
    assert Replay().apply(batches((feature(METADATA_LEVELS[1]),))) is not None
    with pytest.raises(
        MetadataFault, match=r"metadata\.version=34, but this release supports at most 33: .* --release-version 4\.4 "
    ):
        Replay().apply(batches((feature(METADATA_LEVELS[1] + 1),)))


@pytest.mark.parametrize(
    "group",
    [
        (types.BeginTransactionRecord(), types.BeginTransactionRecord()),
        (types.EndTransactionRecord(),),
        (types.AbortTransactionRecord(),),
    ],
    ids=["begins inside", "ends nothing", "aborts nothing"],
)
def test_transaction_out_of_order_is_a_fault(group: tuple[object, ...]) -> None:
    with pytest.raises(MetadataFault, match="transaction"):
        Replay().apply(batches(group))


def test_snapshot_replaces_all_and_its_own_offsets_count_for_nothing() -> None:
    replay = Replay()
    replay.apply(batches((types.FeatureLevelRecord(name="group.version", feature_level=1), feature(7))))
    image = replay.load(snapshot_of(4, feature(9)), 100, 4)
    assert (image.offset, image.epoch, image.features) == (99, 4, {"metadata.version": 9})
    assert (replay.end_offset, replay.last_epoch) == (100, 4)
    image = replay.apply(batches((feature(10),), offset=100))
    assert image is not None
    assert (image.offset, image.features) == (100, {"metadata.version": 10})


def test_snapshot_in_the_middle_of_a_transaction_ends_it() -> None:
    replay = Replay()
    replay.apply(batches((types.BeginTransactionRecord(), feature(8))))
    replay.load(snapshot_of(4, feature(9)), 100, 4)
    image = replay.apply(batches((NOOP,), offset=100))
    assert image is not None
    assert image.offset == 100


@pytest.mark.parametrize("part", ["header", "footer"])
def test_snapshot_that_is_not_whole_is_a_fault(part: str) -> None:
    whole = snapshot_of(4, feature(9))
    header = len(control_batch(0, 4, (3, b"\0\0" + bytes(9))))
    cut = whole[header:] if part == "header" else whole[:-10]
    replay = Replay()
    with pytest.raises(MetadataFault, match="incomplete"):
        replay.load(cut, 100, 4)
    assert replay.image.offset == -1
