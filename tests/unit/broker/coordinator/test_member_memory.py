"""What group members say is charged to their clients, in both protocols, for as long as they are members."""

from __future__ import annotations

import gc
import logging

import pytest

from kafkalite._native.serve.memory import KIND_GROUPS, MemoryCeiling
from kafkalite.broker.coordinator.member_memory import MEMBER_SIZE, MemberMemory
from kafkalite.broker.coordinator.records import GroupMetadataValue, MemberMetadata
from kafkalite.broker.limits.holder import Holder
from kafkalite.errors import ErrorCode
from tests.kit.harness.consumer_group_bench import ConsumerBench
from tests.kit.harness.group_bench import GroupBench

MIB = 1 << 20
HOG, OTHER = Holder("User:hog", "10.0.0.1"), Holder("User:other", "10.0.0.2")
LARGE = (("range", bytes(3 * MIB)),)


@pytest.fixture
def memory() -> MemoryCeiling:
    return MemoryCeiling(16 * MIB)


def groups(memory: MemoryCeiling) -> int:
    return memory.by_kind()["groups"]


# --- classic ----------------------------------------------------------------------------------------------------------


def test_metadata_is_charged_to_the_client_that_joins_until_its_member_leaves(memory: MemoryCeiling) -> None:
    bench = GroupBench(memory=memory, record_size_max=16 * MIB)
    member, _ = bench.new_member(protocols=LARGE, holder=HOG)
    assert memory.biggest(2) == [(HOG, groups(memory))]
    assert 3 * MIB < groups(memory) < 3 * MIB + 5000
    bench.join(member, protocols=(("range", b"small"),), holder=HOG)
    assert groups(memory) < 5000
    assert bench.group.leave(member, None) == 0
    assert groups(memory) == 0


def test_a_member_that_does_not_fit_is_refused_and_another_clients_is_not(
    memory: MemoryCeiling, caplog: pytest.LogCaptureFixture
) -> None:
    bench = GroupBench(memory=memory, record_size_max=16 * MIB)
    with caplog.at_level(logging.WARNING):
        answers = [bench.join(version=3, protocols=LARGE, holder=HOG) for _ in range(10)]
    assert len(bench.group.members) == 2  # half of the ceiling is the most that one client's members may hold
    codes = [answer.response.error_code for answer in answers[2:]]
    assert codes == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 8
    assert caplog.text.count("broker.memory.max") == 1
    bench.join(version=3, holder=OTHER)
    assert len(bench.group.members) == 3


def test_a_static_member_that_returns_is_charged_once(memory: MemoryCeiling) -> None:
    bench = GroupBench(memory=memory, record_size_max=16 * MIB)
    bench.join(instance="i", protocols=LARGE, holder=HOG)
    before = groups(memory)
    bench.join(instance="i", protocols=LARGE, holder=HOG)
    assert groups(memory) == before
    assert list(bench.group.members) == list(bench.group.static_ids.values())


def test_an_assignment_is_charged_to_its_member(memory: MemoryCeiling) -> None:
    bench = GroupBench(memory=memory, record_size_max=16 * MIB)
    member, joined = bench.new_member(holder=HOG)
    before = groups(memory)
    bench.sync(member, joined.response.generation_id, {member: bytes(MIB)})
    assert groups(memory) == before + MIB


def test_a_member_that_is_not_heard_of_gives_its_memory_back(memory: MemoryCeiling) -> None:
    bench = GroupBench(memory=memory, record_size_max=16 * MIB)
    member, joined = bench.new_member(protocols=LARGE, holder=HOG)
    bench.sync(member, joined.response.generation_id, {})
    bench.pass_time(100)
    assert bench.group.members == {}
    assert groups(memory) == 0


def test_members_read_at_a_start_count_for_no_address(memory: MemoryCeiling) -> None:
    bench = GroupBench(memory=memory, record_size_max=16 * MIB)
    stored = MemberMetadata(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="/1.2.3.4",
        rebalance_timeout=1000,
        session_timeout=1000,
        subscription=bytes(MIB),
        assignment=bytes(MIB),
    )
    bench.group.restore(
        GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader="m", members=[stored])
    )
    assert groups(memory) > 2 * MIB
    assert memory.biggest(1) == []


def test_a_group_that_goes_gives_everything_back(memory: MemoryCeiling) -> None:
    bench = GroupBench(memory=memory, record_size_max=16 * MIB)
    bench.new_member(protocols=LARGE, holder=HOG)
    with bench.group.changing():
        bench.group.bury_locked()
    assert groups(memory) == 0


# --- the newer protocol -----------------------------------------------------------------------------------------------

NAMES = [f"topic-{number:040}" for number in range(20_000)]


def test_a_subscription_is_charged_until_its_member_leaves(memory: MemoryCeiling) -> None:
    bench = ConsumerBench(memory=memory)
    bench.join("m1", *NAMES, holder=HOG)
    assert memory.biggest(1) == [(HOG, groups(memory))]
    assert groups(memory) > sum(map(len, NAMES))
    assert bench.code("m1", 1, topics=["orders"], holder=HOG) == 0
    assert groups(memory) < 10_000
    assert bench.code("m1", -1) == 0
    assert groups(memory) == 0


def test_a_subscription_that_does_not_fit_is_refused(memory: MemoryCeiling) -> None:
    bench = ConsumerBench(memory=memory)
    codes = [bench.join(f"m{number}", *NAMES, holder=HOG).error_code for number in range(4)]
    assert codes[0] == 0
    assert codes[-1] == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(bench.group.state.members) == codes.count(0)
    assert bench.join("other", holder=OTHER).error_code == 0


def test_a_join_that_cannot_be_written_down_is_charged_no_more(memory: MemoryCeiling) -> None:
    bench = ConsumerBench(memory=memory)
    bench.join("m1", holder=HOG)
    before = groups(memory)
    bench.writes.failing = int(ErrorCode.KAFKA_STORAGE_ERROR)
    assert bench.join("m2", *NAMES, holder=HOG).error_code != 0
    assert groups(memory) == before


def test_members_of_a_restarted_group_count_for_no_address(memory: MemoryCeiling) -> None:
    bench = ConsumerBench(memory=memory)
    bench.join("m1", *NAMES, holder=HOG)
    before = groups(memory)
    bench.restart()
    gc.collect()
    assert groups(memory) >= before
    assert memory.biggest(1) == []


# --- both -------------------------------------------------------------------------------------------------------------


def test_a_group_that_takes_over_members_charges_the_same_clients(memory: MemoryCeiling) -> None:
    before = MemberMemory(memory)
    before.put("m", MEMBER_SIZE, HOG)
    after = MemberMemory(memory, before)
    after.put("m", 2 * MEMBER_SIZE)
    before.keep(())
    assert memory.biggest(1) == [(HOG, 2 * MEMBER_SIZE)]
    after.rename("m", "n")
    after.drop("n")
    assert groups(memory) == 0


def test_without_a_ceiling_everything_is_admitted() -> None:
    memory = MemberMemory(None)
    assert memory.admits("m", 1 << 60, HOG)
    memory.put("m", 5)
    memory.drop("m")


def test_more_is_admitted_of_what_is_there_already(memory: MemoryCeiling) -> None:
    kept = memory.of(OTHER).charge(KIND_GROUPS, 12 * MIB)
    members = MemberMemory(memory)
    members.put("m", MIB, HOG)
    assert members.admits("m", MIB, HOG)
    assert not members.admits("n", 3 * MIB, HOG)
    kept.resize(0)
    assert members.admits("n", 3 * MIB, HOG)
