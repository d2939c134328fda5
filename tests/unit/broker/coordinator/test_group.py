"""The state machine of one group, step by step, on a clock that is turned by hand."""

import pytest

from kafkalite.broker.coordinator.base import RECORD_SIZE_MAX
from kafkalite.broker.coordinator.classic_state import State
from kafkalite.broker.coordinator.joins import NEW_MEMBER_TIMEOUT_S
from kafkalite.broker.coordinator.timer_queue import CANCELLED_KEPT_MIN
from kafkalite.errors import ErrorCode
from tests.kit.harness.group_bench import GroupBench


@pytest.fixture
def bench():
    return GroupBench()


def codes(answers):
    return [answer.response.error_code if answer.done else None for answer in answers]


# ---- joining --------------------------------------------------------------------------------------------------------


def test_first_member_leads_a_group_of_one(bench):
    member_id, answer = bench.new_member(client="app")
    assert member_id.startswith("app-")
    response = answer.response
    assert (response.error_code, response.generation_id, response.leader) == (0, 1, member_id)
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert [(member.member_id, member.metadata) for member in response.members] == [(member_id, b"m")]
    assert bench.group.state is State.COMPLETING
    synced = bench.sync(member_id, 1, {member_id: b"all"})
    assert (synced.response.error_code, synced.response.assignment) == (0, b"all")
    assert (synced.response.protocol_type, synced.response.protocol_name) == ("consumer", "range")
    assert bench.group.state is State.STABLE


def test_before_version_4_no_member_id_is_required(bench):
    assert bench.join(version=3).response.error_code == 0


def test_second_member_waits_until_the_first_has_joined_again(bench):
    (first,) = bench.stable()
    second, answer = bench.new_member()
    assert not answer.done
    assert bench.group.state is State.PREPARING
    assert bench.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    again = bench.join(first)
    assert answer.response.members == []
    assert answer.response.leader == first
    assert {member.member_id for member in again.response.members} == {first, second}
    assert again.response.generation_id == answer.response.generation_id == 2


def test_promised_id_is_waited_for(bench):
    (first,) = bench.stable()
    second, answer = bench.new_member()
    third = bench.join().response.member_id
    again = bench.join(first)
    assert codes([answer, again]) == [None, None]
    assert codes([bench.join(third), answer, again]) == [0, 0, 0]
    assert set(bench.group.members) == {first, second, third}


@pytest.mark.parametrize("end", ["connection", "time", "leave"])
def test_promised_id_that_is_abandoned_does_not_hold_the_group(bench, end):
    """librdkafka may take an id and never use it (confluentinc/librdkafka #5569)."""
    (first,) = bench.stable(session_s=30)
    _, answer = bench.new_member(session_s=30)
    abandoned = bench.join(session_s=10).response.member_id
    again = bench.join(first, session_s=30)
    assert codes([answer, again]) == [None, None]
    if end == "connection":
        bench.group.forget_pending(abandoned)
    elif end == "leave":
        assert bench.leave(abandoned) == 0
    else:
        bench.pass_time(10)
    assert codes([answer, again]) == [0, 0]
    assert bench.join(abandoned).response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_promised_ids_that_were_used_leave_no_timers(bench):
    """They could be set half an hour ahead, and would keep their group in memory for that time."""
    for _ in range(CANCELLED_KEPT_MIN + 10):
        member_id, _ = bench.new_member(session_s=1800)
        bench.leave(member_id)
    assert not any(timer.armed for _, _, timer in bench.timers._heap)
    assert len(bench.timers._heap) <= CANCELLED_KEPT_MIN + 2


def test_initial_delay_is_prolonged_while_members_arrive_up_to_the_rebalance_timeout():
    bench = GroupBench(initial_delay_ms=3000)
    _, first = bench.new_member(rebalance_s=8)
    bench.pass_time(2)
    _, second = bench.new_member(rebalance_s=8)
    bench.pass_time(2)
    assert codes([first, second]) == [None, None]
    _, third = bench.new_member(rebalance_s=8)
    bench.pass_time(3)
    _, fourth = bench.new_member(rebalance_s=8)
    bench.pass_time(1)
    assert codes([first, second, third, fourth]) == [0, 0, 0, 0]
    assert bench.group.generation == 1


def test_initial_delay_ends_without_new_members():
    bench = GroupBench(initial_delay_ms=3000)
    _, first = bench.new_member()
    bench.pass_time(2.5)
    assert not first.done
    bench.pass_time(0.5)
    assert first.done


def test_protocol_with_most_votes_among_those_all_have(bench):
    offers = [
        (("a", b"1"), ("b", b"2"), ("c", b"3")),
        (("b", b"4"), ("a", b"5")),
        (("b", b"6"), ("x", b"7"), ("a", b"8")),
    ]
    ids = [bench.new_member(protocols=offer)[0] for offer in offers]
    answers = [bench.join(member_id, protocols=offer) for member_id, offer in zip(ids, offers, strict=True)]
    assert {answer.response.protocol_name for answer in answers} == {"b"}
    leader = next(answer.response for answer in answers if answer.response.members)
    assert sorted(member.metadata for member in leader.members) == [b"2", b"4", b"6"]


@pytest.mark.parametrize(
    "offer",
    [
        {"protocols": (("sticky", b""),)},
        {"protocol_type": "connect"},
        {"protocols": ()},
        {"protocol_type": ""},
    ],
)
def test_member_that_shares_no_protocol_is_refused(bench, offer):
    bench.stable()
    assert bench.join(**offer).response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.group.state is State.STABLE


@pytest.mark.parametrize("offer", [{"protocols": ()}, {"protocol_type": ""}])
def test_first_member_needs_a_protocol_too(bench, offer):
    assert bench.join(**offer).response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_empty_group_takes_another_protocol_type(bench):
    (first,) = bench.stable()
    bench.leave(first)
    _, answer = bench.new_member(protocol_type="connect", protocols=(("v0", b""),))
    assert (answer.response.error_code, answer.response.protocol_type) == (0, "connect")


def test_unknown_id_is_refused(bench):
    assert bench.join("nobody").response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    bench.stable()
    assert bench.join("nobody").response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_that_is_full_refuses():
    bench = GroupBench(size_max=2)
    first, second = bench.stable(2)
    assert bench.join().response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    bench.leave(second)
    bench.join(first)
    assert bench.join().response.error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_promised_ids_are_bounded():
    bench = GroupBench(pending_max=2)
    answers = [bench.join() for _ in range(3)]
    expected = [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert codes(answers) == expected


def test_dead_group_sends_clients_to_look_again(bench):
    with bench.group.changing():
        bench.group.bury_locked()
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.join().response.error_code == code
    assert bench.sync("m", 1).response.error_code == code
    assert bench.heartbeat("m") == bench.leave("m") == code
    with bench.group.changing():
        assert bench.group.commit_error_locked("", None, -1) == code


# ---- joining again --------------------------------------------------------------------------------------------------


def test_leader_that_joins_again_starts_a_round(bench):
    leader, follower = bench.stable(2)
    answer = bench.join(leader)
    assert not answer.done
    assert bench.join(follower).done


def test_follower_that_joins_again_unchanged_gets_the_present_generation(bench):
    _, follower = bench.stable(2)
    answer = bench.join(follower)
    assert (answer.response.generation_id, answer.response.members) == (bench.group.generation, [])
    assert bench.group.state is State.STABLE


def test_follower_with_new_metadata_starts_a_round(bench):
    """So a cooperative member gives partitions up: it joins again, naming what it still owns (KIP-429)."""
    leader, follower = bench.stable(2)
    answer = bench.join(follower, protocols=(("range", b"owns less"),))
    assert not answer.done
    again = bench.join(leader)
    assert answer.done
    assert b"owns less" in {member.metadata for member in again.response.members}


def test_joining_again_before_the_sync_repeats_the_answer(bench):
    member_id, answer = bench.new_member()
    again = bench.join(member_id)
    assert again.response == answer.response
    assert bench.group.state is State.COMPLETING


def test_a_second_join_of_a_waiting_member_ends_the_first(bench):
    (first,) = bench.stable()
    second, earlier = bench.new_member()
    later = bench.join(second)
    assert codes([earlier, later]) == [ErrorCode.REBALANCE_IN_PROGRESS, None]
    bench.join(first)
    assert later.done


def test_member_that_does_not_join_again_is_dropped_after_the_rebalance_timeout(bench):
    (first,) = bench.stable(session_s=100, rebalance_s=20)
    second, answer = bench.new_member(session_s=100, rebalance_s=20)
    bench.pass_time(19)
    assert not answer.done
    bench.pass_time(1)
    assert [member.member_id for member in answer.response.members] == [second]
    assert bench.heartbeat(first) == ErrorCode.UNKNOWN_MEMBER_ID


# ---- sync -----------------------------------------------------------------------------------------------------------


def test_followers_wait_for_the_leader_and_missing_members_get_nothing(bench):
    ids = [bench.new_member()[0] for _ in range(3)]
    for member_id in ids:
        bench.join(member_id)
    leader = bench.group.leader
    others = [member_id for member_id in ids if member_id != leader]
    waiting = [bench.sync(member_id, bench.group.generation) for member_id in others]
    assert codes(waiting) == [None, None]
    bench.sync(leader, bench.group.generation, {others[0]: b"x", "stranger": b"y"})
    assert [answer.response.assignment for answer in waiting] == [b"x", b""]


def test_assignment_is_given_out_when_it_is_durable(bench):
    member_id, _ = bench.new_member()
    bench.writes.at_once = False
    answer = bench.sync(member_id, 1, {member_id: b"a"})
    assert not answer.done
    assert bench.group.state is State.COMPLETING
    bench.writes.settle()
    assert answer.response.assignment == b"a"


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_assignment_that_cannot_be_written_is_not_given_out(bench, failure, told):
    member_id, _ = bench.new_member()
    bench.writes.failing = failure
    assert bench.sync(member_id, 1, {member_id: b"a"}).response.error_code == told
    assert bench.group.state is State.PREPARING
    bench.writes.failing = 0
    answer = bench.join(member_id)
    assert (answer.response.error_code, answer.response.generation_id) == (0, 2)


def test_assignment_overtaken_by_the_next_round_is_forgotten(bench):
    member_id, _ = bench.new_member()
    bench.writes.at_once = False
    answer = bench.sync(member_id, 1, {member_id: b"a"})
    bench.new_member()
    assert answer.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    bench.writes.settle()
    assert bench.group.state is State.PREPARING


def test_sync_refusals(bench):
    leader, follower = bench.stable(2)
    generation = bench.group.generation
    assert bench.sync("nobody", generation).response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.sync(leader, generation - 1).response.error_code == ErrorCode.ILLEGAL_GENERATION
    wrong_type = bench.sync(leader, generation, protocol_type="connect", protocol_name="range")
    wrong_name = bench.sync(leader, generation, protocol_type="consumer", protocol_name="sticky")
    assert codes([wrong_type, wrong_name]) == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 2
    stranger = bench.sync(leader, generation, group_instance_id="i")
    assert stranger.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.sync(follower, generation).response.assignment == f"for {follower}".encode()
    bench.new_member()
    assert bench.sync(leader, generation).response.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_dropped(bench):
    first, _ = bench.new_member(session_s=300, rebalance_s=30)
    second, _ = bench.new_member(session_s=300, rebalance_s=30)
    bench.join(first, session_s=300, rebalance_s=30)
    leader = bench.group.leader
    other = second if leader == first else first
    bench.sync(leader, 2, {leader: b"l", other: b"o"})
    assert bench.group.state is State.STABLE
    bench.pass_time(30)
    assert set(bench.group.members) == {leader}
    assert bench.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


# ---- heartbeats and sessions ----------------------------------------------------------------------------------------


def test_heartbeat_answers(bench):
    member_id, _ = bench.new_member()
    assert bench.heartbeat(member_id) == 0
    bench.sync_all()
    assert bench.heartbeat(member_id) == 0
    assert bench.heartbeat(member_id, generation=7) == ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat("nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(member_id, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID
    bench.leave(member_id)
    assert bench.heartbeat(member_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_silent_member_is_dropped_and_the_others_rebalance(bench):
    leader, follower = bench.stable(2, session_s=10)
    for _ in range(3):
        bench.pass_time(4)
        assert bench.heartbeat(leader) in {0, ErrorCode.REBALANCE_IN_PROGRESS}
    assert follower not in bench.group.members
    assert bench.join(leader).response.error_code == 0


def test_last_member_gone_leaves_an_empty_group_that_is_written_down(bench):
    bench.stable()
    bench.writes.at_once = False
    bench.pass_time(9)
    assert bench.group.state is State.STABLE
    bench.pass_time(1)
    assert bench.group.state is State.EMPTY
    assert bench.group.generation == 2
    assert len(bench.writes.waiting) == 1


@pytest.mark.parametrize("sign", ["heartbeat", "sync", "commit"])
def test_sign_of_life_prolongs_the_session(bench, sign):
    (member_id,) = bench.stable(session_s=10)
    for _ in range(5):
        bench.pass_time(8)
        if sign == "heartbeat":
            assert bench.heartbeat(member_id) == 0
        elif sign == "sync":
            assert bench.sync(member_id, 1).response.error_code == 0
        else:
            with bench.group.changing():
                assert bench.group.commit_error_locked(member_id, None, 1) == 0
    assert member_id in bench.group.members


def test_member_that_waits_in_a_join_does_not_time_out(bench):
    (first,) = bench.stable(session_s=10, rebalance_s=200)
    second, answer = bench.new_member(session_s=10, rebalance_s=200)
    for _ in range(10):
        bench.pass_time(8)
        bench.heartbeat(first)
    assert not answer.done
    assert second in bench.group.members
    bench.join(first, rebalance_s=200)
    assert answer.done
    bench.pass_time(10)
    assert second not in bench.group.members


def test_a_pending_member_is_dropped_after_its_timeout(bench):
    rebalance_s = NEW_MEMBER_TIMEOUT_S * 2
    (first,) = bench.stable(session_s=10, rebalance_s=rebalance_s)
    _, answer = bench.new_member(session_s=10, rebalance_s=rebalance_s)
    for _ in range(int(NEW_MEMBER_TIMEOUT_S / 8) + 1):
        bench.pass_time(8)
        bench.heartbeat(first)
    assert answer.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


# ---- leaving --------------------------------------------------------------------------------------------------------


def test_leaving_starts_a_round_and_one_while_preparing_completes_it(bench):
    """Forgetting to look again here stalled groups elsewhere (streamnative/kop #380)."""
    leader, follower = bench.stable(2)
    third, answer = bench.new_member()
    bench.join(leader)
    assert not answer.done
    assert bench.leave(follower) == 0
    assert answer.done
    assert set(bench.group.members) == {leader, third}
    bench.sync_all()
    bench.leave(leader)
    assert bench.group.state is State.PREPARING
    assert bench.group.leader == third


def test_leaving_ends_the_members_own_waits(bench):
    (first,) = bench.stable()
    second, answer = bench.new_member()
    assert bench.leave(second) == 0
    assert answer.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.leave(second) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.join(first).response.error_code == 0


# ---- static members -------------------------------------------------------------------------------------------------


def stable_static(bench, *instances, **options):
    answers = [bench.join(instance=instance, **options) for instance in instances]
    first = answers[0].response
    if len(instances) > 1:
        bench.join(first.member_id, instance=instances[0], **options)
    bench.sync_all()
    return {instance: bench.group.static_ids[instance] for instance in instances}


def test_static_member_back_in_a_stable_group_moves_nothing(bench):
    ids = stable_static(bench, "a", "b")
    follower = next(name for name, member_id in ids.items() if member_id != bench.group.leader)
    generation = bench.group.generation
    response = bench.join(instance=follower).response
    assert (response.error_code, response.generation_id, response.members) == (0, generation, [])
    assert not response.skip_assignment
    assert bench.group.state is State.STABLE
    assert bench.sync(response.member_id, generation, group_instance_id=follower).response.assignment == (
        f"for {ids[follower]}".encode()
    )
    assert bench.heartbeat(ids[follower], instance=follower) == ErrorCode.FENCED_INSTANCE_ID
    assert bench.sync(ids[follower], generation, group_instance_id=follower).response.error_code == (
        ErrorCode.FENCED_INSTANCE_ID
    )
    assert bench.join(ids[follower], instance=follower).response.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert bench.leave(ids[follower], follower) == ErrorCode.FENCED_INSTANCE_ID


def test_static_leader_back_is_told_to_assign_nothing_or_shown_the_old_leader(bench):
    stable_static(bench, "a")
    newest = bench.join(instance="a", version=9).response
    assert newest.skip_assignment
    assert newest.leader == newest.member_id
    assert [member.group_instance_id for member in newest.members] == ["a"]
    older = bench.join(instance="a", version=8).response
    assert (older.skip_assignment, older.leader, older.members) == (False, newest.member_id, [])
    assert older.member_id != newest.member_id


def test_static_member_back_with_another_protocol_starts_a_round(bench):
    stable_static(bench, "a", protocols=(("range", b""), ("sticky", b"")))
    response = bench.join(instance="a", protocols=(("sticky", b""), ("range", b""))).response
    assert (response.error_code, response.protocol_name) == (0, "sticky")
    assert bench.group.generation == 2


def test_static_return_that_cannot_be_written_changes_nothing(bench):
    ids = stable_static(bench, "a")
    bench.writes.failing = ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.join(instance="a").response.error_code == ErrorCode.NOT_COORDINATOR
    assert bench.heartbeat(ids["a"], instance="a") == 0


def test_static_member_that_waits_is_fenced_by_its_successor(bench):
    stable_static(bench, "a", session_s=100)
    bench.new_member(session_s=100)
    waiting = bench.join(bench.group.static_ids["a"], instance="a", session_s=100)
    bench.pass_time(1)
    assert waiting.done  # both are there
    bench.sync_all()
    bench.new_member(session_s=100)
    waiting = bench.join(bench.group.static_ids["a"], instance="a", session_s=100)
    bench.join(instance="a", session_s=100)
    assert waiting.response.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_static_member_leaves_by_its_instance_id_alone(bench):
    stable_static(bench, "a")
    assert bench.leave("", "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.leave("", "a") == 0
    assert bench.group.state is State.EMPTY


def test_static_member_survives_a_rebalance_it_misses(bench):
    stable_static(bench, "a", session_s=200, rebalance_s=20)
    static_id = bench.group.static_ids["a"]
    _, answer = bench.new_member(session_s=200, rebalance_s=20)
    bench.pass_time(20)
    assert answer.response.error_code == 0
    assert static_id in bench.group.members
    bench.pass_time(200)
    assert static_id not in bench.group.members


def test_only_static_members_and_none_back_waits_on(bench):
    stable_static(bench, "a", session_s=500, rebalance_s=20)
    dynamic, _ = bench.new_member(session_s=500, rebalance_s=20)
    bench.leave(dynamic)
    generation = bench.group.generation
    bench.pass_time(100)
    assert bench.group.state is State.PREPARING
    assert bench.group.generation == generation
    assert bench.join(bench.group.static_ids["a"], instance="a").done


# ---- commits --------------------------------------------------------------------------------------------------------


def commit_code(bench, member_id="", instance=None, generation=-1):
    with bench.group.changing():
        return bench.group.commit_error_locked(member_id, instance, generation)


def test_who_may_commit(bench):
    assert commit_code(bench) == 0
    member_id, _ = bench.new_member()
    assert commit_code(bench, member_id, None, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    bench.sync_all()
    assert commit_code(bench, member_id, None, 1) == 0
    assert commit_code(bench) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_code(bench, "nobody", None, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_code(bench, member_id, None, 0) == ErrorCode.ILLEGAL_GENERATION
    assert commit_code(bench, member_id, "i", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    bench.new_member()
    assert commit_code(bench, member_id, None, 1) == 0  # still its partitions while the others come
    bench.leave(member_id)
    assert commit_code(bench, member_id, None, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_fenced_static_member_may_not_commit(bench):
    ids = stable_static(bench, "a")
    bench.join(instance="a")
    assert commit_code(bench, ids["a"], "a", bench.group.generation) == ErrorCode.FENCED_INSTANCE_ID


# ---- stop and restart -----------------------------------------------------------------------------------------------


def test_stop_answers_each_waiting_request(bench):
    (first,) = bench.stable()
    _, answer = bench.new_member()
    bench.group.stop()
    assert answer.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.heartbeat(first) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.pass_time(600, step=60)


def test_restored_group_is_what_it_was(bench):
    from kafkalite.broker.coordinator.records import read_group

    bench.stable(2)
    with bench.group.changing():
        record = bench.group.inherited_record_locked()
    value = read_group(record[1])
    other = GroupBench()
    other.group.restore(value)
    other.group.wake()
    assert other.group.state is State.STABLE
    assert (other.group.leader, other.group.generation) == (bench.group.leader, bench.group.generation)
    for member_id in bench.group.members:
        assert other.heartbeat(member_id) == 0
        assert other.sync(member_id, other.group.generation).response.assignment == f"for {member_id}".encode()
    other.pass_time(10)
    assert other.group.state is State.EMPTY


def test_member_whose_metadata_cannot_be_written_down_is_refused_and_leaves_the_group_as_it_was(bench):
    """Kafka answers so, too, but to the sync, when it has held the metadata for a rebalance."""
    member_id, answer = bench.new_member()
    bench.pass_time(4)
    assert answer.response.error_code == 0
    large = (("range", bytes(RECORD_SIZE_MAX + 1)),)
    refused = bench.join(protocols=large)
    assert refused.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    refused = bench.join(member_id, protocols=large)
    assert refused.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (list(bench.group.members), len(bench.group.pending)) == ([member_id], 0)
    assert bench.group.members[member_id].protocols == (("range", b"m"),)


def test_members_who_fit_alone_but_not_together_are_refused_from_where_they_do_not(bench):
    half = (("range", bytes(RECORD_SIZE_MAX // 2)),)
    _, first = bench.new_member(protocols=half)
    _, second = bench.new_member(protocols=half)
    assert not first.done or first.response.error_code == 0
    third = bench.join(protocols=half)
    assert third.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    little = bench.join(protocols=(*half, ("range", b"")))
    assert little.response.error_code == ErrorCode.MEMBER_ID_REQUIRED, "by another protocol the group fits"
    assert not second.done or second.response.error_code == 0
