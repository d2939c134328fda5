"""A group of the newer protocol (KIP-848), step by step, on a clock that is turned by hand."""

import pytest

from kafkalite.broker.coordinator import consumer_records as stored
from kafkalite.broker.coordinator.consumer_environment import Timing
from kafkalite.errors import ErrorCode
from tests.kit.harness.consumer_group_bench import REBALANCE_S, SESSION_S, ConsumerBench, topic_id

ORDERS = topic_id("orders")


@pytest.fixture
def bench():
    return ConsumerBench()


def stable_pair(bench):
    """Two members with two partitions each, as their epochs are: m1 and m2, 2."""
    assert bench.given(bench.join("m1")) == {"orders": [0, 1, 2, 3]}
    assert bench.given(bench.join("m2")) == {}
    given = bench.beat("m1", 1, owned={ORDERS: [0, 1, 2, 3]}).response
    assert (bench.given(given), given.member_epoch) == ({"orders": [0, 1]}, 1)
    assert bench.beat("m1", 1, owned={ORDERS: [0, 1]}).response.member_epoch == 2
    assert bench.given(bench.beat("m2", 2).response) == {"orders": [2, 3]}
    assert bench.group.state_name == "Stable"


# ---- joining, moving ------------------------------------------------------------------------------------------------


def test_first_member_has_everything_at_once(bench):
    answer = bench.join("m1")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m1", 1)
    assert answer.heartbeat_interval_ms == 5000
    assert bench.given(answer) == {"orders": [0, 1, 2, 3]}
    assert (bench.group.state_name, bench.group.kind, bench.group.protocol_type) == ("Stable", "consumer", "consumer")


def test_partition_moves_only_after_its_owner_gave_it_up(bench):
    bench.join("m1")
    second = bench.join("m2")
    assert (second.member_epoch, bench.given(second)) == (2, {})
    assert bench.group.state_name == "Reconciling"
    told = bench.beat("m1", 1, owned={ORDERS: [0, 1, 2, 3]}).response
    assert (told.member_epoch, bench.given(told)) == (1, {"orders": [0, 1]})
    assert bench.given(bench.beat("m2", 2, owned={}).response) is None
    # The owner is still at it, and says nothing new.
    assert bench.given(bench.beat("m1", 1).response) is None
    assert bench.given(bench.beat("m2", 2).response) is None
    done = bench.beat("m1", 1, owned={ORDERS: [0, 1]}).response
    assert (done.member_epoch, bench.given(done)) == (2, None)
    assert bench.given(bench.beat("m2", 2).response) == {"orders": [2, 3]}
    assert bench.group.state_name == "Stable"


def test_the_assignment_is_sent_when_it_changed_or_after_a_full_heartbeat(bench):
    bench.join("m1")
    assert bench.beat("m1", 1).response.assignment is None
    full = bench.beat("m1", 1, owned={ORDERS: [0, 1, 2, 3]}, topics=["orders"], rebalance_s=REBALANCE_S)
    assert bench.given(full.response) == {"orders": [0, 1, 2, 3]}


def test_empty_assignment_is_said(bench):
    """A client must be able to tell 'own nothing' from 'nothing new' (platformatic/kafka #405)."""
    answer = bench.join("m1", "missing")
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions == []


def test_members_of_a_group_without_topics_are_members(bench):
    answer = bench.beat("m1", 0, owned={}, topics=[], rebalance_s=1).response
    assert (answer.error_code, answer.member_epoch) == (0, 1)
    assert bench.group.state_name == "Stable"


def test_broker_makes_an_id_where_the_client_has_none(bench):
    answer = bench.join("")
    assert answer.member_id
    assert bench.beat(answer.member_id, 1).response.error_code == 0


def test_leaving_gives_all_to_those_who_stay(bench):
    stable_pair(bench)
    left = bench.beat("m2", -1).response
    assert (left.error_code, left.member_id, left.member_epoch, left.assignment) == (0, "m2", -1, None)
    assert bench.group.state_name == "Assigning"
    assert bench.given(bench.beat("m1", 2).response) == {"orders": [0, 1, 2, 3]}
    bench.beat("m1", -1)
    assert (bench.group.state_name, bench.group.empty) == ("Empty", True)
    assert bench.code("m1", 3) == ErrorCode.UNKNOWN_MEMBER_ID


def test_changed_subscription_takes_effect_before_the_new_target(bench):
    bench.set_topic("logs", 2)
    bench.join("m1", "orders", "logs")
    answer = bench.beat("m1", 1, owned={ORDERS: [0, 1, 2, 3], topic_id("logs"): [0, 1]}, topics=["logs"]).response
    assert (answer.member_epoch, bench.given(answer)) == (1, {"logs": [0, 1]})
    assert bench.beat("m1", 1, owned={topic_id("logs"): [0, 1]}).response.member_epoch == 2


def test_assignor_that_most_members_ask_for(bench):
    bench.join("m1", assignor="range")
    assert bench.group.assignor_locked() == "range"
    bench.join("m2", assignor="uniform")
    bench.join("m3", assignor="uniform")
    assert bench.group.assignor_locked() == "uniform"


def test_full_group_takes_no_more():
    bench = ConsumerBench(size_max=1)
    bench.join("m1")
    assert bench.join("m2").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.join("m1").error_code == 0


# ---- epochs ---------------------------------------------------------------------------------------------------------


def test_epochs_that_are_fenced(bench):
    stable_pair(bench)
    assert bench.code("nobody", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.code("nobody", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.code("m1", 3) == ErrorCode.FENCED_MEMBER_EPOCH
    assert bench.code("m1", 1) == ErrorCode.FENCED_MEMBER_EPOCH  # does not say what it owns
    assert (
        bench.code("m1", 1, owned={ORDERS: [0, 1, 2]}) == ErrorCode.FENCED_MEMBER_EPOCH
    )  # owns more than it was given
    assert bench.code("m1", 1, owned={ORDERS: [1]}) == 0  # the last answer was lost
    assert bench.code("m1", 2) == 0


def test_member_that_was_fenced_joins_again(bench):
    stable_pair(bench)
    answer = bench.join("m1")
    assert (answer.error_code, answer.member_epoch, bench.given(answer)) == (0, 2, {"orders": [0, 1]})


@pytest.mark.parametrize(
    ("member", "epoch", "version", "code"),
    [
        ("m1", 2, 9, 0),
        ("m1", 1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", 3, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", -1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", 2, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("who", 2, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_commit(bench, member, epoch, version, code):
    stable_pair(bench)
    assert bench.group.commit_error_locked(member, None, epoch, version) == code


@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [("m1", 2, 0), ("m1", 1, ErrorCode.STALE_MEMBER_EPOCH), ("who", 2, ErrorCode.UNKNOWN_MEMBER_ID)],
)
def test_who_may_commit_in_a_transaction(bench, member, epoch, code):
    stable_pair(bench)
    assert bench.group.commit_error_locked(member, None, epoch, 3, transactional=True) == code


def test_any_client_commits_while_the_group_is_empty(bench):
    assert bench.group.commit_error_locked("", None, -1) == 0
    bench.join("m1")
    bench.beat("m1", -1)
    assert bench.group.commit_error_locked("", None, -1) == 0
    assert bench.group.commit_error_locked("m1", None, 1) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [
        (None, -1, 0),
        ("", -1, 0),
        ("m1", 2, 0),
        ("m1", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("who", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_fetch_offsets(bench, member, epoch, code):
    stable_pair(bench)
    assert bench.group.fetch_error_locked(member, epoch) == code


# ---- static members -------------------------------------------------------------------------------------------------


def test_a_returning_static_member_keeps_its_partitions_without_a_rebalance(bench):
    bench.join("m1", instance="a")
    bench.join("m2", instance="b")
    bench.beat("m1", 1, owned={ORDERS: [0, 1]}, instance="a")
    bench.beat("m2", 2, instance="b")
    assert bench.group.state_name == "Stable"
    assert bench.beat("m2", -2, instance="b").response.member_epoch == -2
    assert bench.given(bench.beat("m1", 2, instance="a").response) is None
    answer = bench.join("m3", instance="b")
    assert (answer.member_epoch, bench.given(answer)) == (2, {"orders": [2, 3]})
    assert set(bench.group.state.members) == {"m1", "m3"}
    assert (bench.group.state.epoch, bench.group.state_name) == (2, "Stable")


def test_instance_id_is_released_by_leaving_or_by_time(bench):
    bench.join("m1", instance="a")
    assert bench.join("m2", instance="a").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert bench.join("m1", instance="a").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    bench.beat("m1", -2, instance="a")
    bench.pass_time(SESSION_S)
    assert bench.group.empty
    assert bench.given(bench.join("m2", instance="a")) == {"orders": [0, 1, 2, 3]}
    bench.beat("m2", -1, instance="a")
    assert bench.join("m3", instance="a").error_code == 0


def test_the_previous_holder_of_an_instance_id_is_fenced(bench):
    bench.join("m1", instance="a")
    bench.beat("m1", -2, instance="a")
    bench.join("m2", instance="a")
    assert bench.code("m1", 1, instance="a") == ErrorCode.FENCED_INSTANCE_ID
    assert bench.code("m1", -1, instance="a") == ErrorCode.FENCED_INSTANCE_ID
    assert bench.code("m1", 1, instance="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.code("m1", -2, instance="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.code("m1", 1) == ErrorCode.UNKNOWN_MEMBER_ID


# ---- assignment epochs (KIP-1251) ------------------------------------------------------------------------------------


def epochs(bench, member):
    """Of each partition of `orders` that a member has or is to give up."""
    return bench.group.state.members[member].assignment_epochs.get(ORDERS, {})


def logged(bench, member):
    """The newest record of where a member is: (partitions, epochs) of what it has, and of what it is to give up."""
    key = stored.tombstone(stored.CURRENT, "g", member)[0]
    value = stored.read_value(stored.CURRENT, [value for other, value in bench.writes.log if other == key][-1])
    rows = (value.assigned_partitions, value.partitions_pending_revocation)
    return [[(row.partitions, row.assignment_epochs) for row in each] for each in rows]


def test_partitions_keep_the_epoch_at_which_they_were_assigned(bench):
    bench.join("m1")
    assert logged(bench, "m1") == [[([0, 1, 2, 3], [1, 1, 1, 1])], []]
    bench.join("m2")
    bench.beat("m1", 1, owned={ORDERS: [0, 1, 2, 3]})
    assert logged(bench, "m1") == [[([0, 1], [1, 1])], [([2, 3], [1, 1])]]
    bench.beat("m1", 1, owned={ORDERS: [0, 1]})
    bench.beat("m2", 2, owned={})
    assert (epochs(bench, "m1"), epochs(bench, "m2")) == ({0: 1, 1: 1}, {2: 2, 3: 2})
    bench.beat("m2", -1)
    bench.beat("m1", 2, owned={ORDERS: [0, 1]})
    assert logged(bench, "m1") == [[([0, 1, 2, 3], [1, 1, 3, 3])], []]


def test_partition_that_comes_back_before_it_was_given_up_is_assigned_again(bench):
    bench.join("m1")
    bench.join("m2")
    bench.beat("m1", 1, owned={ORDERS: [0, 1, 2, 3]})
    bench.beat("m2", -1)
    bench.beat("m1", 1, owned={ORDERS: [0, 1]})
    assert epochs(bench, "m1") == {0: 1, 1: 1, 2: 3, 3: 3}


def test_static_member_that_is_away_has_no_assignment_epochs(bench):
    bench.join("m1", instance="i")
    bench.beat("m1", -2, instance="i")
    assert logged(bench, "m1") == [[([0, 1, 2, 3], [0, 0, 0, 0])], []]
    bench.join("m2", instance="i")
    assert epochs(bench, "m2") == dict.fromkeys(range(4), 0)


@pytest.mark.parametrize("written", [None, [], [1, 1]])
def test_records_without_assignment_epochs_mean_the_members_epoch(bench, written):
    stable_pair(bench)
    row = stored.CurrentPartitions(topic_id=ORDERS, partitions=[0, 1, 2], assignment_epochs=written)
    value = stored.CurrentValue(member_epoch=2, previous_member_epoch=1, assigned_partitions=[row])
    bench.writes.log.append(stored.record("g", "m1", value))
    bench.restart()
    assert epochs(bench, "m1") == {0: 2, 1: 2, 2: 2}


# ---- time -----------------------------------------------------------------------------------------------------------


def test_member_that_is_not_heard_of_is_out(bench):
    stable_pair(bench)
    epoch = 2
    for _ in range(3):
        bench.pass_time(SESSION_S / 2)
        answer = bench.beat("m1", epoch).response
        assert answer.error_code == 0
        epoch = answer.member_epoch
    assert bench.code("m2", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.group.state.members["m1"].assigned == {ORDERS: frozenset(range(4))}


def test_member_that_does_not_give_up_in_time_is_out(bench):
    bench.join("m1", rebalance_s=10)
    bench.join("m2")
    bench.beat("m1", 1)
    for _ in range(10):
        bench.pass_time(1)
        bench.beat("m1", 1)
        bench.beat("m2", 2)
    assert bench.code("m1", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.group.state.members["m2"].assigned == {ORDERS: frozenset(range(4))}


def test_member_that_gave_up_in_time_stays(bench):
    bench.join("m1", rebalance_s=10)
    bench.join("m2")
    bench.beat("m1", 1)
    bench.pass_time(9)
    bench.beat("m1", 1, owned={ORDERS: [0, 1]})
    bench.pass_time(9)
    assert set(bench.group.state.members) == {"m1", "m2"}


# ---- topics ---------------------------------------------------------------------------------------------------------


def test_a_topic_created_grown_or_deleted_changes_the_assignment(bench):
    bench.join("m1", "orders", "late")
    bench.set_topic("late", 1)
    assert bench.group.state_name == "Assigning"
    answer = bench.beat("m1", 1).response
    assert (answer.member_epoch, bench.given(answer)) == (2, {"orders": [0, 1, 2, 3], "late": [0]})
    bench.set_topic("late", 3)
    assert bench.given(bench.beat("m1", 2).response) == {"orders": [0, 1, 2, 3], "late": [0, 1, 2]}
    bench.set_topic("late", 0)
    assert bench.given(bench.beat("m1", 3).response) == {"orders": [0, 1, 2, 3]}


def test_a_recreated_topic_is_a_different_topic(bench):
    bench.join("m1")
    bench.set_topic("orders", 0)
    bench.set_topic("orders", 4, generation=2)
    answer = bench.beat("m1", 1, owned={ORDERS: [0, 1, 2, 3]}).response
    assert bench.given(answer) == {}
    assert bench.given(bench.beat("m1", 1, owned={}).response) == {"orders": [0, 1, 2, 3]}


def test_a_topic_without_subscribers_changes_nothing(bench):
    bench.join("m1")
    bench.set_topic("other", 5)
    assert bench.group.state_name == "Stable"


def test_expression_means_topics_that_come_later_too(bench):
    assert bench.given(bench.join("m1", expression="o.*|late-[0-9]")) == {"orders": [0, 1, 2, 3]}
    bench.set_topic("late-7", 2)
    bench.set_topic("late-77", 2)
    assert bench.given(bench.beat("m1", 1).response) == {"orders": [0, 1, 2, 3], "late-7": [0, 1]}
    bench.set_topic("late-7", 0)
    assert bench.given(bench.beat("m1", 2).response) == {"orders": [0, 1, 2, 3]}
    assert bench.group.subscribes_locked("orders")


def test_names_and_expression_add_up_and_an_expression_can_be_given_up(bench):
    bench.set_topic("logs", 1)
    assert bench.given(bench.join("m1", "logs", expression="ord.*")) == {"logs": [0], "orders": [0, 1, 2, 3]}
    owned = {ORDERS: [0, 1, 2, 3], topic_id("logs"): [0]}
    assert bench.given(bench.beat("m1", 1, owned=owned, expression="").response) == {"logs": [0]}
    assert bench.group.state.expressions == {}


def test_expression_is_forgotten_with_its_last_member(bench):
    bench.join("m1", expression="o.*")
    bench.join("m2", expression="o.*")
    bench.beat("m1", -1)
    assert set(bench.group.state.expressions) == {"o.*"}
    bench.beat("m2", -1)
    assert bench.group.state.expressions == {}


def test_expression_keeps_its_permissions_when_its_last_member_stays_for_want_of_a_write(bench):
    bench.join("m1", expression=".*", describes=lambda names: names - {"secret"})
    bench.writes.failing = ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.code("m1", -1) == ErrorCode.NOT_COORDINATOR
    bench.writes.failing = 0
    bench.set_topic("secret", 1)
    bench.set_topic("logs", 1)
    assert bench.group.state.expressions == {".*": {"orders", "logs"}}


def test_expression_has_the_permissions_of_its_latest_member(bench):
    bench.set_topic("secret", 1)
    bench.join("m1", expression=".*", describes=lambda names: names - {"secret"})
    bench.beat("m1", -1)
    bench.join("m2", expression="s.*|o.*", describes=lambda names: names - {"orders"})
    bench.beat("m2", -1)
    bench.join("m3", expression=".*", describes=lambda names: names)
    assert bench.group.state.expressions == {".*": {"orders", "secret"}}


@pytest.mark.parametrize("expression", ["(", "[", "a{1001}", "(?=x)", r"\1", "((a{100}){100}){100}"])
def test_what_is_no_expression_is_refused(bench, expression):
    assert bench.join("m1", expression=expression).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert bench.group.empty
    bench.join("m1")
    assert bench.code("m1", 1, expression=expression) == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert bench.group.state.members["m1"].expression == ""


def test_hostile_expression_takes_no_time(bench):
    """One that takes a backtracking engine 2^40 steps."""
    for number in range(20):
        bench.set_topic("a" * 40 + "b" + "a" * number, 1, tell=False)
    assert bench.given(bench.join("m1", expression="(a|a|aa)*(a*)*a{40}c")) == {}


# ---- the disk -------------------------------------------------------------------------------------------------------


def test_no_response_is_sent_before_the_write_is_durable(bench):
    bench.writes.at_once = False
    first = bench.beat("m1", 0, owned={}, topics=["orders"], rebalance_s=1)
    second = bench.beat("m2", 0, owned={}, topics=["orders"], rebalance_s=1)
    assert (first.done, second.done) == (False, False)
    assert (bench.group.state_name, len(bench.writes.waiting)) == ("Empty", 1)
    assert not bench.group.empty
    bench.writes.settle()
    assert (first.done, second.done) == (True, True)
    assert second.response.member_epoch == 2


def test_change_that_could_not_be_written_has_not_happened(bench):
    stable_pair(bench)
    before = bench.replayed()["g"]
    bench.writes.failing = ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.code("m1", -1) == ErrorCode.NOT_COORDINATOR
    assert bench.join("m3").error_code == ErrorCode.NOT_COORDINATOR
    assert vars(bench.group.state) == vars(before) | {"_subscribed": bench.group.state._subscribed}
    bench.writes.failing = 0
    assert bench.code("m1", -1) == 0


def test_session_that_ended_while_the_disk_failed_ends_later(bench):
    bench.join("m1")
    bench.writes.failing = ErrorCode.KAFKA_STORAGE_ERROR
    bench.pass_time(SESSION_S)
    assert not bench.group.empty
    bench.writes.failing = 0
    bench.pass_time(SESSION_S)
    assert bench.group.empty


def test_settings_of_the_group_itself_hold_from_the_next_heartbeat_on(bench):
    assert bench.join("m1").heartbeat_interval_ms == 5000
    usual = bench.timing
    bench.timing = Timing(heartbeat_interval_ms=7000, session_timeout_ms=int(SESSION_S * 4000))
    assert bench.beat("m1", 1).response.heartbeat_interval_ms == 7000
    bench.pass_time(SESSION_S * 3)
    assert not bench.group.empty
    bench.timing = usual
    assert bench.beat("m1", 1).response.heartbeat_interval_ms == 5000
    bench.pass_time(SESSION_S)
    assert bench.group.empty


def test_records_that_are_too_large_are_no_reason_to_try_again(bench):
    bench.writes.failing = ErrorCode.MESSAGE_TOO_LARGE
    refused = bench.join("m1")
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message == "the member's metadata is too large for a record of __consumer_offsets"


def test_records_that_are_too_large_do_not_take_others_along(bench):
    bench.writes.at_once = False
    bench.beat("m0", 0, owned={}, topics=["orders"], rebalance_s=1)
    waiting = [bench.beat(name, 0, owned={}, topics=["orders"], rebalance_s=1) for name in ("m1", "m2")]
    bench.writes.waiting.pop(0)[2](0)
    bench.writes.waiting.pop(0)[2](ErrorCode.MESSAGE_TOO_LARGE)
    assert {answer.response.error_code for answer in waiting} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_heartbeat_that_changes_nothing_writes_nothing(bench):
    stable_pair(bench)
    count = len(bench.writes.log)
    bench.beat("m1", 2)
    bench.beat("m1", 2, owned={ORDERS: [0, 1]}, topics=["orders"], rebalance_s=REBALANCE_S)
    assert len(bench.writes.log) == count


def test_group_after_a_restart_is_the_group_before(bench):
    stable_pair(bench)
    bench.join("m3", expression="ord.*", instance="s")
    bench.restart()
    assert bench.group.state_name == "Reconciling"
    assert bench.code("m1", 2) == 0
    bench.pass_time(SESSION_S - 1)
    assert set(bench.group.state.members) == {"m1", "m2", "m3"}
    bench.pass_time(1)
    assert bench.group.empty


def test_member_that_was_giving_up_has_its_time_again_after_a_restart(bench):
    bench.join("m1", rebalance_s=10)
    bench.join("m2")
    bench.beat("m1", 1)
    bench.restart()
    bench.pass_time(9)
    assert bench.code("m1", 1) == 0
    bench.pass_time(1)
    assert bench.code("m1", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_topics_that_changed_while_the_broker_was_down(bench):
    bench.join("m1", expression=".*")
    bench.set_topic("new", 1, tell=False)
    bench.restart()
    assert bench.given(bench.beat("m1", 1).response) == {"new": [0], "orders": [0, 1, 2, 3]}


def test_expression_matches_nothing_more_after_a_restart_until_permissions_are_known(bench):
    def without_secret(names):
        return names - {"secret"}

    bench.set_topic("secret", 1)
    bench.join("m1", expression=".*", describes=without_secret)
    bench.set_topic("late", 1, tell=False)
    bench.restart()
    bench.set_topic("later", 1)
    assert bench.group.state.expressions == {".*": {"orders"}}
    answer = bench.beat("m1", 1, describes=without_secret).response
    assert bench.given(answer) == {"orders": [0, 1, 2, 3], "late": [0], "later": [0]}


def test_hash_of_an_earlier_release_raises_the_epoch_once(bench):
    stable_pair(bench)
    bench.writes.log.append(stored.record("g", "", stored.GroupValue(epoch=2, metadata_hash=-1234567890123456789)))
    bench.restart()
    assert bench.group.state.epoch == 3
    for _ in range(2):
        bench.beat("m1", 2, owned={ORDERS: [0, 1]})
        bench.beat("m2", 2, owned={ORDERS: [2, 3]})
        bench.restart()
    assert (bench.group.state.epoch, bench.group.state_name) == (3, "Stable")
    assert [epochs(bench, member) for member in ("m1", "m2")] == [{0: 1, 1: 1}, {2: 2, 3: 2}]


def test_group_that_is_deleted_leaves_nothing_in_the_log(bench):
    bench.join("m1", expression="o.*")
    bench.beat("m1", -1)
    bench.writes.log += bench.group.tombstones_locked()
    assert bench.replayed() == {}
    keys = {key for key, _ in bench.writes.log}
    newest = dict(bench.writes.log)
    assert all(newest[key] is None for key in keys)


def test_stop_answers_everybody(bench):
    bench.writes.at_once = False
    waiting = [bench.beat(f"m{number}", 0, owned={}, topics=["orders"], rebalance_s=1) for number in range(3)]
    bench.group.stop()
    assert {answer.response.error_code for answer in waiting} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    bench.writes.settle()
    assert bench.code("m1", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_member_that_is_asked_for_more_is_one_epoch_further():
    """As in Kafka: a revocation in the new epoch has its own rebalance timeout."""
    bench = ConsumerBench({"orders": 6})
    bench.join("m1")
    bench.join("m2")
    assert bench.beat("m1", 1).response.member_epoch == 1
    bench.join("m3")
    had = sorted(bench.group.state.members["m1"].assigned[topic_id("orders")])
    assert len(had) == 3
    bench.pass_time(REBALANCE_S - 20)
    asked = bench.beat("m1", 1, owned={topic_id("orders"): had}).response
    left = bench.given(asked)["orders"]
    assert (asked.member_epoch, len(left)) == (2, 2)
    assert bench.code("m2", 2) == bench.code("m3", 3) == 0
    bench.pass_time(REBALANCE_S - 20)
    assert bench.beat("m1", 2, owned={topic_id("orders"): left}).response.member_epoch == 3
