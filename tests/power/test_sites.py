"""Every call that makes something durable is known, with what happens without it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

from tests.kit.processes.broker import REPOSITORY
from tests.power.sites import find, sites, without

SOURCE = """
class Journal:
    def record(self):
        file_ops.sync_file(self.fd)
        if self.new:
            file_ops.sync_directory(self.path)

def save(path):
    write_atomically(path, b"", durable=True)
    write_atomically(path, b"", durable=False)
    return groups.join()
"""


def test_sites_are_named_by_function_and_number() -> None:
    assert [site for site, _ in find(ast.parse(SOURCE), "m")] == [
        "m:Journal.record#0",
        "m:Journal.record#1",
        "m:save#0",
    ]


def test_one_site_is_left_out_and_no_other() -> None:
    lines = ast.unparse(without(SOURCE, "m", "m:Journal.record#1")).splitlines()
    assert "            None" in lines
    assert "        file_ops.sync_file(self.fd)" in lines
    text = ast.unparse(without(SOURCE, "m", "m:save#0"))
    assert text.count("durable=False") == 2
    assert "sync_directory" in text


def test_every_sync_of_the_broker_is_in_the_table() -> None:
    assert sorted(sites()) == sorted(KNOWN), "say in KNOWN what leaving a new sync out does"


LOG = "kafkalite.broker.log."
OFFLINE = "none: `kafkalite log repair` runs on a stopped broker, whose files it copies aside before it changes them"
SITES = "tests/log_damage/test_power_cut_sites.py::"
NAMES = "tests/log_damage/test_power_cut_names.py::"
TOPICS = "tests/log_damage/test_power_cut_topics.py::"
ASSIGNED = "tests/log_damage/test_power_cut_assigned.py::"
COMPACTION = "tests/log_damage/test_power_cut_compaction.py::"
REMOVALS = "tests/log_damage/test_power_cut_removals.py::"
REPLICAS = "tests/log_damage/test_replica_runs.py"
KNOWN: dict[str, str] = {
    f"{LOG}adoption:_adopt#0": "none: no directory is copied in; a lost id is given anew or read from the journal",
    f"{LOG}adoption:_write_anew#0": "none: no directory is copied in; a lost id is read from the journal",
    f"{LOG}assigned:AssignedTopics.open#0": (
        f"found: {ASSIGNED}test_directory_that_was_made_just_before_a_kill_is_on_the_disk_before_what_is_in_it_counts"
    ),
    f"{LOG}assigned:AssignedTopics._sync_walked#0": (
        "found: tests/unit/broker/log/test_assigned.py::test_what_a_start_has_walked_is_synced_together"
    ),
    f"{LOG}checkpoints:write_offsets#0": "found: posix, seed 1: records that were deleted are there again",
    f"{LOG}checkpoints:write_properties#0": "found: posix, seed 1: meta.properties is empty, no start",
    f"{LOG}classic.log:ClassicLog.roll_locked#0": "found: posix, seed 2: a hole between two segments, no reading",
    f"{LOG}classic.log:ClassicLog.roll_locked#1": (
        f"found: {SITES}test_closed_classic_segments_have_no_hole_between_them"
    ),
    f"{LOG}classic.log:make_visible#0": "found: posix, seed 1: an end that was told is gone",
    f"{LOG}compaction:Compaction._write_group#0": "found: posix, seed 1: a compacted segment is empty",
    f"{LOG}directory:_make#0": "found: posix, seed 1: the whole data directory is gone; 568 answers early",
    f"{LOG}directory:leave_clean_marker#0": "none: without the marker a start checks the logs, which are whole",
    f"{LOG}directory:take_clean_marker#0": f"found: {SITES}test_clean_marker_that_came_back_would_hide_a_hole",
    f"{LOG}entries:DirectoryEntries.sync#0": (
        "none: an empty partition.metadata is written anew from the journal, or its directory is no topic's"
    ),
    f"{LOG}entries:DirectoryEntries.sync#1": f"found: {SITES}test_where_an_epoch_ended_is_known",
    f"{LOG}entries:DirectoryEntries.sync#2": "found: posix, seed 1: committed offsets are gone; 535 answers early",
    f"{LOG}expiry_checkpoint:write#0": (
        f"found: {SITES}test_expiry_time_is_stored_before_a_wrong_clock_stamps_the_checkpoints"
    ),
    f"{LOG}files:sync_path#0": f"found: {SITES}test_where_an_epoch_ended_is_known",
    f"{LOG}files:write_atomically#0": "found: posix, seed 1: meta.properties is empty, no start",
    f"{LOG}files:write_atomically#1": "found: posix, seed 1: records that were deleted are there again",
    f"{LOG}segment_removal:_sync_names#0": f"found: {REMOVALS}test_what_is_left_is_the_end_of_the_log",
    f"{LOG}log_truncation:_begin_anew#0": (
        "none: an index that comes back vouches for bytes of the old log, which are whole wherever that comes back"
    ),
    f"{LOG}log_truncation:_begin_anew#1": f"found: {REPLICAS}, durable, seed 5105",
    f"{LOG}log_truncation:_cut#0": (
        f"found: {REPLICAS}::test_front_of_a_segment_that_a_reader_has_is_whole_under_its_name"
    ),
    f"{LOG}log_truncation:_cut#1": f"found: {REPLICAS}::test_segments_above_a_cut_do_not_come_back",
    f"{LOG}log_truncation:_cut#2": (
        f"found: {REPLICAS}::test_front_of_a_segment_that_a_reader_has_is_whole_under_its_name"
    ),
    f"{LOG}log_truncation:_replace_by_copy#0": (
        f"found: {REPLICAS}::test_front_of_a_segment_that_a_reader_has_is_whole_under_its_name"
    ),
    f"{LOG}leader_epochs:LeaderEpochs._replace#0": (
        f"found: {SITES}test_where_an_epoch_ended_is_known_while_the_next_one_is_written_down"
    ),
    f"{LOG}handover:_empty_journal#0": "none: no broker is recorded that goes into a cluster; the journal is a copy",
    f"{LOG}handover:_give_topic_ids#0": "none: no broker is recorded that goes into a cluster; an id is written again",
    f"{LOG}handover:finish#0": "none: no broker is recorded that goes into a cluster; a last step is done again",
    f"{LOG}handover:write#0": "none: no broker is recorded that goes into a cluster; an empty plan is no start, told",
    f"{LOG}journal:Journal.open#0": "none: a torn last line that comes again is cut off again",
    f"{LOG}journal:Journal.record#0": "found: ext4, seed 1: topics that were made are missing",
    f"{LOG}journal:Journal.rewrite#0": f"found: {SITES}test_journal_that_was_made_shorter_is_whole",
    f"{LOG}loading:load#0": "found: posix, seed 1: a segment's name is gone",
    f"{LOG}manager:LogManager._make_services#0": "found: posix, seed 1: committed offsets are gone; 28 answers early",
    f"{LOG}topic_source:JournalTopics.open#0": f"found: {NAMES}test_acknowledged_after_a_kill",
    f"{LOG}removals:Removals.remove_leftovers#0": (
        f"found: {TOPICS}test_a_start_removes_nothing_of_a_directory_whose_name_may_come_back"
    ),
    f"{LOG}removals:Removals.sync_renames#0": f"found: {TOPICS}test_topic_made_again_has_nothing_of_the_deleted_one",
    f"{LOG}partition_log:PartitionLog._sync_unless_deleted#0": "found: ext4, seed 1: acknowledged records are gone",
    f"{LOG}sealer:finish_seal#0": f"found: {SITES}test_saved_index_covers_no_hole",
    f"{LOG}partition_log:PartitionLog.flush#0": "found: posix, seed 1: acknowledged records are gone",
    f"{LOG}flusher:flush_together#0": "found: posix, seed 2: committed offsets cannot be read; 71 answers early",
    f"{LOG}producer_state:ProducerState.save_compacted#0": (
        f"found: {SITES}test_batches_that_compaction_took_out_are_still_known_as_written"
    ),
    f"{LOG}producer_state:ProducerState.save_compacted#1": (
        f"found: {COMPACTION}test_snapshot_that_knows_a_finished_transaction_as_open_does_not_come_back"
    ),
    f"{LOG}quarantine_file:write#0": "none: nothing is damaged while a run is recorded, so nothing is quarantined",
    f"{LOG}repair:_copy_aside#0": OFFLINE,
    f"{LOG}repair:_copy_aside#1": OFFLINE,
    f"{LOG}repair:_put_aside#0": OFFLINE,
    f"{LOG}repair:_put_in_place#0": OFFLINE,
    f"{LOG}repair:_put_in_place#1": OFFLINE,
    f"{LOG}repair:_repair_file#0": OFFLINE,
    f"{LOG}repair:_repair_segment#0": OFFLINE,
    f"{LOG}repair:_write_without#0": OFFLINE,
    f"{LOG}replica_log:ReplicaLog.roll_locked#0": (
        f"found: {ASSIGNED}test_front_of_a_replica_has_its_name_before_the_next_segment"
    ),
    f"{LOG}replica_log:ReplicaLog.sync_walked#0": (
        f"found: {REPLICAS}::test_what_was_cut_before_a_kill_does_not_come_back"
    ),
    f"{LOG}replica_log:ReplicaLog.sync_walked#1": (
        f"found: {REPLICAS}::test_what_was_cut_before_a_kill_does_not_come_back"
    ),
    f"{LOG}swap:_announce#0": (
        f"found: {COMPACTION}test_segments_behind_a_compacted_one_are_on_the_disk_before_it_counts"
    ),
    f"{LOG}swap:_announce#1": f"found: {SITES}test_any_names_that_two_compactions_leave",
    f"{LOG}swap:_finish_one#0": f"found: {SITES}test_any_names_that_a_finished_swap_leaves",
    f"{LOG}swap:_put_in_place#0": f"found: {SITES}test_any_names_that_two_compactions_leave",
    f"{LOG}swap:_put_in_place#1": f"found: {SITES}test_any_names_that_two_compactions_leave",
    f"{LOG}swap:_withdraw#0": (
        "none: one that comes back is finished, with records that stand or retention took; the next swap syncs"
    ),
    f"{LOG}swap:finish#0": f"found: {SITES}test_any_names_that_outputs_of_a_pass_leave_that_was_not_announced",
    f"{LOG}swap:finish#1": (
        "none: the start that finds a .swap doubts the directory, so a flush syncs it before anything is compacted"
    ),
    f"{LOG}transaction_index:write#0": "found: ext4, seed 1: records of an aborted transaction are seen",
}
"""Site → what finds it missing, a state of a recorded run or a test; or, with "none:", why no state can."""
TESTS = {site: text.removeprefix("found: ") for site, text in KNOWN.items() if "::" in text}


def test_table_says_one_of_two_things() -> None:
    assert [text for text in KNOWN.values() if not text.startswith(("found: ", "none: "))] == []


@pytest.mark.parametrize("test", sorted(set(TESTS.values())))
def test_tests_of_the_table_are_there(test: str) -> None:
    path, _, name = test.partition("::")
    assert name in {
        node.name for node in ast.parse((REPOSITORY / path).read_text()).body if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.slow
@pytest.mark.parametrize("site", sorted(TESTS))
def test_test_of_the_table_fails_without_the_sync(site: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.power.left_out", "-p", "no:cacheprovider", "-q", TESTS[site]],
        cwd=REPOSITORY,
        env={**os.environ, "POWER_LEFT_OUT": site, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
