"""Handing a data directory to a cluster: interrupted at any step, it is repeated and ends the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from kafkalite.broker.log import checkpoints, files, handover
from kafkalite.broker.log.directory import clean_broker_epoch, directory_id, read_identity
from kafkalite.broker.log.handover import MOVING, PLANNED, Handover
from kafkalite.broker.log.journal import Journal
from kafkalite.errors import StartupError
from kafkalite.model import new_uuid, uuid_bytes, uuid_text
from tests.kit.harness.log_harness import make_batch, started

pytestmark = pytest.mark.own_process

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
STEPS_MAX = 100


class Died(Exception):
    pass


def alone(root: Path) -> Handover:
    """Prepare the directory of a standalone broker and the migration of its topics."""
    manager = started(root)
    for name in ("a", "b"):
        for log in manager.create_topic(name, 2, {}).partitions:
            log.append(make_batch())
    manager.close()
    return Handover(
        phase=MOVING,
        cluster_id=CLUSTER,
        node_id=7,
        topics=["a", "b"],
        producer_ids_before=0,
        ids={"a": uuid_text(new_uuid()), "b": uuid_text(new_uuid())},
        broker_epoch=99,
    )


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.log")}


def assert_done(root: Path, moved: Handover, records: dict[str, bytes]) -> None:
    assert contents(root) == records
    for name, text in moved.ids.items():
        for number in range(2):
            assert checkpoints.read_partition_topic_id(str(root / f"{name}-{number}")) == uuid_bytes(text)
    journal = Journal.open(str(root))
    assert journal is not None
    assert (journal.state.cluster_id, journal.state.topics) == (CLUSTER, {})
    journal.close()
    identity = read_identity(str(root), 7)
    assert identity is not None
    assert (identity.cluster_id, identity.in_cluster) == (CLUSTER, True)
    assert clean_broker_epoch(str(root)) == 99
    assert handover.read(str(root)) is None
    assert b'"name":"a"' in (root / files.JOURNAL_ALONE_NAME).read_bytes()


def test_it_ends_the_same_whichever_of_its_writes_was_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, unlink = file_ops.rename, file_ops.unlink
    for dies_at in range(STEPS_MAX):
        root = tmp_path / str(dies_at)
        moved = alone(root)
        records = contents(root)
        handover.write(str(root), moved)
        left = dies_at

        def step() -> None:
            nonlocal left
            if left == 0:
                raise Died
            left -= 1

        def renaming(*paths: str) -> None:
            step()
            rename(*paths)

        def unlinking(path: str, *, missing_ok: bool = False) -> None:
            step()
            unlink(path, missing_ok=missing_ok)

        with monkeypatch.context() as patched:
            patched.setattr(file_ops, "rename", renaming)
            patched.setattr(file_ops, "unlink", unlinking)
            try:
                handover.finish(str(root), moved)
            except Died:
                pass
            else:
                assert_done(root, moved, records)
                assert dies_at > len(moved.ids) * 2
                return
        again = handover.read(str(root))
        assert again is not None
        with pytest.raises(StartupError, match="partly migrated into the cluster"):
            handover.check_whole(str(root))
        handover.finish(str(root), again)
        assert_done(root, moved, records)
    raise AssertionError("it never came to its end")


def test_no_broker_starts_half_way_and_one_does_while_it_is_planned(tmp_path: Path) -> None:
    moved = alone(tmp_path)
    handover.write(str(tmp_path), replace(moved, phase=PLANNED))
    manager = started(tmp_path)
    assert set(manager.topics) == {"a", "b"}
    manager.close()
    handover.write(str(tmp_path), moved)
    with pytest.raises(StartupError, match="kafkalite cluster migrate again"):
        started(tmp_path)


def test_a_directory_of_an_old_broker_of_kafka_gets_the_id_that_controllers_ask_for(tmp_path: Path) -> None:
    path = tmp_path / files.META_PROPERTIES_NAME
    path.write_text(f"version=0\nbroker.id=1\ncluster.id={CLUSTER}\n")
    started(tmp_path).close()
    drawn = directory_id(str(tmp_path))
    assert len(drawn) == 16
    started(tmp_path).close()
    assert directory_id(str(tmp_path)) == drawn
    assert "broker.id=1" in path.read_text()


def test_it_does_not_begin_to_move_what_a_broker_has_open_or_was_killed_on(tmp_path: Path) -> None:
    planned = replace(alone(tmp_path), phase=PLANNED)
    handover.write(str(tmp_path), planned)
    manager = started(tmp_path)
    with pytest.raises(StartupError, match="in use by another broker"):
        handover.begin_moving(str(tmp_path), replace(planned))
    manager.abandon()
    with pytest.raises(StartupError, match="run the command again"):
        handover.begin_moving(str(tmp_path), replace(planned))
    assert handover.read(str(tmp_path)) == planned
    started(tmp_path).close()
    handover.begin_moving(str(tmp_path), replace(planned))
    assert handover.read(str(tmp_path)) == replace(planned, phase=MOVING)


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1}', '{"version": 2}', '{"version": 1, "more": 0}'])
def test_what_cannot_be_understood_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / files.MIGRATION_NAME).write_text(text)
    with pytest.raises(StartupError, match=files.MIGRATION_NAME):
        handover.read(str(tmp_path))
