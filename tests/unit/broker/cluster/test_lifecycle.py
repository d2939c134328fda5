"""A broker's life among controllers: what it sends when, and what answers make of it."""

import pytest

from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.cluster.image import EMPTY, Address, Delta
from kafkalite.broker.cluster.lifecycle import (
    CATCH_UP_S,
    FEATURES,
    HAND_OVER_AGAIN_S,
    HAND_OVER_S,
    LOOK_AGAIN_S,
    SESSION_OVER_S,
    SHUTDOWN_S_MAX,
    Lifecycle,
    Node,
    Phase,
    Times,
    unsupported_features,
)
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from kafkalite.wire.protocol.messages.broker_registration import BrokerRegistrationResponse

MINE, OTHER, DIRECTORY = bytes([1]) * 16, bytes([2]) * 16, bytes([3]) * 16
TIMES = Times(registration_max=60, beat=2, session=9, start_max=600)
START = 100.0


def life(*, serves: bool = True) -> Lifecycle:
    node = Node(
        node_id=7,
        cluster_id="c",
        incarnation=MINE,
        addresses=(Address("PLAINTEXT", "h", 9092, 0),),
        rack="r",
        directory_id=DIRECTORY,
        previous_epoch=4,
    )
    return Lifecycle(node, TIMES, START, serves=serves)


def registered(living: Lifecycle, code: int = 0, now: float = START, **levels: int) -> None:
    living.registered(BrokerRegistrationResponse(error_code=code, broker_epoch=12), now, levels)


def beaten(living: Lifecycle, now: float = START, **answer: object) -> None:
    living.beaten(BrokerHeartbeatResponse(**answer), now)


def in_service() -> Lifecycle:
    living = life()
    registered(living)
    living.ready(START)
    beaten(living, is_caught_up=True)
    beaten(living, is_caught_up=True, is_fenced=False)
    assert living.phase is Phase.IN_SERVICE
    return living


def test_registration_says_who_and_what_it_can_do() -> None:
    living = life()
    assert (living.api_key, living.wait(START)) == (api.BROKER_REGISTRATION, 0)
    request = living.request(-1)
    assert (request.broker_id, request.cluster_id, request.incarnation_id) == (7, "c", MINE)
    assert (request.log_dirs, request.previous_broker_epoch, request.rack) == ([DIRECTORY], 4, "r")
    (listener,) = request.listeners
    assert (listener.name, listener.host, listener.port, listener.security_protocol) == ("PLAINTEXT", "h", 9092, 0)
    claimed = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    assert claimed == FEATURES


def test_a_beat_says_what_is_cordoned_once_the_metadata_has_come() -> None:
    living = life()
    registered(living)
    assert living.request(33, cordoned=True).cordoned_log_dirs is None
    beaten(living, is_caught_up=True)
    assert living.request(33, cordoned=True).cordoned_log_dirs == [DIRECTORY]
    assert living.request(33, cordoned=False).cordoned_log_dirs == []
    assert living.request(33).cordoned_log_dirs is None, "the cluster knows of none"


def test_it_stays_fenced_until_caught_up_and_ready() -> None:
    living = life()
    registered(living)
    assert (living.epoch, living.api_key) == (12, api.BROKER_HEARTBEAT)
    request = living.request(33)
    assert (request.broker_epoch, request.current_metadata_offset, request.want_fence) == (12, 33, True)
    beaten(living)
    assert living.wait(START) == pytest.approx(CATCH_UP_S)
    beaten(living, is_caught_up=True)
    assert living.wait(START) == TIMES.beat
    assert living.request(33).want_fence
    living.ready(START + 1)
    assert living.wait(START + 1) == 0
    assert not living.request(33).want_fence
    assert living.phase is Phase.STARTING
    beaten(living, is_caught_up=True, is_fenced=False)
    assert (living.phase, living.fenced) == (Phase.IN_SERVICE, False)


def test_ready_before_it_caught_up_is_let_in_as_soon_as_it_has() -> None:
    living = life()
    registered(living)
    living.ready(START)
    assert living.request(33).want_fence
    beaten(living, is_caught_up=True)
    assert (living.wait(START), living.request(33).want_fence) == (0, False)


def test_one_that_does_not_serve_stays_fenced() -> None:
    living = life(serves=False)
    registered(living)
    living.ready(START)
    beaten(living, is_caught_up=True)
    assert living.request(33).want_fence
    living.stop(START)
    assert living.phase is Phase.STOPPED


def test_fenced_for_missing_beats_it_asks_to_come_back() -> None:
    living = in_service()
    living.unanswered(START, "no answer")
    assert living.wait(START) == TIMES.beat
    beaten(living, is_caught_up=True, is_fenced=True)
    assert (living.fenced, living.phase) == (True, Phase.IN_SERVICE)
    assert not living.request(40).want_fence


def test_duplicate_registration_is_tried_again_until_its_time_is_over() -> None:
    living = life()
    registered(living, ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    assert (living.phase, living.wait(START)) == (Phase.REGISTERING, SESSION_OVER_S)
    assert living.request(-1).incarnation_id == MINE
    registered(living, ErrorCode.DUPLICATE_BROKER_REGISTRATION, START + 60)
    assert living.phase is Phase.FAILED
    assert "DUPLICATE_BROKER_REGISTRATION" in living.failure
    assert "60 s" in living.failure
    assert living.controllers_away


def test_the_search_for_a_controller_retries_soon_and_times_out() -> None:
    living = life()
    living.unanswered(START, "nobody leads", no_controller=True)
    assert living.wait(START) == pytest.approx(LOOK_AGAIN_S)
    registered(living, ErrorCode.NOT_CONTROLLER)
    assert living.wait(START) == pytest.approx(LOOK_AGAIN_S)
    living.unanswered(START + 60, "nobody leads", no_controller=True)
    assert living.failure.endswith("nobody leads")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "belongs to cluster c"),
        (ErrorCode.INVALID_REGISTRATION, "refused this broker's registration"),
        (ErrorCode.UNSUPPORTED_VERSION, "share.version=1"),
    ],
)
def test_hopeless_registration_fails_at_once_in_words(code: int, words: str) -> None:
    living = life()
    registered(living, code, **{"share.version": 1, "metadata.version": 27})
    assert living.phase is Phase.FAILED
    assert words in living.failure


def test_registration_waits_for_unknown_features() -> None:
    """The refusal came before the metadata, which has what to say of it."""
    living = life()
    registered(living, ErrorCode.UNSUPPORTED_VERSION)
    assert living.phase is Phase.REGISTERING
    registered(living, ErrorCode.UNSUPPORTED_VERSION, **{"share.version": 1})
    assert "kafka-features.sh downgrade --feature share.version=0" in living.failure
    assert "--release-version 4.4 --feature share.version=0" in unsupported_features({})


def test_features_that_are_not_done_are_named_with_what_to_do() -> None:
    both = unsupported_features({"streams.version": 1, "share.version": 1, "metadata.version": 33, "group.version": 1})
    assert "share.version=1, which this release does not support, and streams.version=1" in both
    assert "with --feature share.version=0 --feature streams.version=0," in both
    newer = unsupported_features({"streams.version": 1, "share.version": 2, "metadata.version": 35})
    assert "metadata.version=35, of which this release supports levels 7 to 33" in newer
    assert "--release-version 4.4 --feature share.version=0 --feature streams.version=0" in newer
    assert "--release-version 4.4 --feature share.version=0" in unsupported_features({"metadata.version": 34})
    assert "group.version=9, of which this release supports levels 0 to 1" in unsupported_features({"group.version": 9})
    assert unsupported_features({"metadata.version": 27})


def test_an_unknown_error_code_is_logged_by_number() -> None:
    living = life()
    registered(living, 999, START + 60)
    assert living.failure.endswith("error 999")


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_refused_beat_is_sent_again(code: int) -> None:
    living = in_service()
    beaten(living, error_code=code)
    assert (living.phase, living.wait(START)) == (Phase.IN_SERVICE, TIMES.beat)
    beaten(living, error_code=ErrorCode.NOT_CONTROLLER)
    assert living.wait(START) == pytest.approx(LOOK_AGAIN_S)


def image_with(incarnation: bytes, epoch: int):
    delta = Delta(EMPTY)
    delta.apply(types.RegisterBrokerRecord(broker_id=7, incarnation_id=incarnation, broker_epoch=epoch))
    return delta.build(epoch, 1)


def test_another_process_under_its_id_ends_it() -> None:
    living = in_service()
    living.saw(image_with(OTHER, 5))  # an earlier one
    living.saw(image_with(MINE, 12))
    assert living.phase is Phase.IN_SERVICE
    living.saw(image_with(OTHER, 20))
    assert living.phase is Phase.FAILED
    assert "node.id=7" in living.failure


def test_stop_hands_over_before_it_ends() -> None:
    living = in_service()
    living.stop(START)
    assert (living.wait(START), living.ended) == (0, False)
    assert living.request(50).want_shut_down
    beaten(living, is_caught_up=True)
    assert living.wait(START) == pytest.approx(HAND_OVER_S)
    beaten(living, is_caught_up=True)
    assert living.wait(START) == HAND_OVER_AGAIN_S
    beaten(living, is_caught_up=True, should_shut_down=True)
    assert living.phase is Phase.STOPPED


def test_stop_without_a_controller_ends_when_its_session_has() -> None:
    living = in_service()
    living.stop(START)
    living.unanswered(START + 8, "no answer")
    assert not living.ended
    living.unanswered(START + 9, "no answer")
    assert living.phase is Phase.STOPPED


def test_stop_that_is_never_granted_ends_in_the_end() -> None:
    living = in_service()
    living.stop(START)
    beaten(living, START + SHUTDOWN_S_MAX - 1, is_caught_up=True)
    assert not living.ended
    beaten(living, START + SHUTDOWN_S_MAX, is_caught_up=True)
    assert living.phase is Phase.STOPPED


@pytest.mark.parametrize("begun", [False, True])
def test_stop_before_it_was_let_in_is_at_once(begun: bool) -> None:
    living = life()
    if begun:
        registered(living)
    living.stop(START)
    assert living.ended
    registered(living)  # an answer that comes later changes nothing
    beaten(living, is_fenced=False, is_caught_up=True)
    assert living.phase is Phase.STOPPED
