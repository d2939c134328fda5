"""Following the metadata log: the fetch requests, the records applied, and the target of the next request."""

import pytest

from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.cluster.image import Image
from kafkalite.broker.cluster.observer import TOPIC_ID, Observer
from kafkalite.broker.cluster.quorum import BACKOFF_S_MAX, BACKOFF_S_MIN, Address, Quorum
from kafkalite.broker.cluster.records import MetadataFault
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from kafkalite.wire.protocol.messages.fetch_snapshot import (
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseTopicSnapshot,
)
from tests.kit.fakes.controller import data_batch, snapshot_of

NODE, CLUSTER, DIRECTORY = 7, "a-cluster", bytes([9]) * 16
FIRST, SECOND, THIRD = Address("a", 1), Address("b", 2), Address("c", 3)
NOOP = types.NoOpRecord()
NEWEST = 18


def feature(level: int) -> types.FeatureLevelRecord:
    return types.FeatureLevelRecord(name="metadata.version", feature_level=level)


def observer(voters: dict[int, Address] | None = None, servers: tuple[Address, ...] = (FIRST, SECOND)) -> Observer:
    return Observer(NODE, CLUSTER, DIRECTORY, Quorum(voters or {}, servers, "CONTROLLER"))


def answer(*endpoints: tuple[int, Address], **part: object) -> FetchResponse:
    part.setdefault("high_watermark", 0)
    return FetchResponse(
        responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[PartitionData(**part)])],
        node_endpoints=[NodeEndpoint(node_id=number, host=at.host, port=at.port) for number, at in endpoints],
    )


def refusal(leader_id: int, epoch: int, *endpoints: tuple[int, Address], code: int = 74) -> FetchResponse:
    response = answer(*endpoints, current_leader=LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch))
    response.responses[0].partitions[0].error_code = code
    return response


def position(asking: Observer) -> tuple[int, int]:
    partition = asking.request(NEWEST).topics[0].partitions[0]  # type: ignore[attr-defined]  # a FetchRequest
    return partition.fetch_offset, partition.last_fetched_epoch


def fetched(asking: Observer, response: FetchResponse) -> Image | None:
    return asking.fetched(response)[0]


def test_first_request_is_an_observers_from_the_beginning() -> None:
    request = observer().request(NEWEST)
    partition = request.topics[0].partitions[0]  # type: ignore[attr-defined]  # a FetchRequest
    assert (request.cluster_id, request.replica_state.replica_id) == (CLUSTER, NODE)  # type: ignore[attr-defined]
    assert (request.session_id, request.session_epoch, request.min_bytes) == (0, -1, 0)  # type: ignore[attr-defined]
    assert (partition.fetch_offset, partition.last_fetched_epoch, partition.current_leader_epoch) == (0, 0, 0)
    assert (partition.high_watermark, partition.replica_directory_id) == (-1, DIRECTORY)


@pytest.mark.parametrize(("version", "by_field"), [(14, True), (15, False)])
def test_older_controllers_get_the_replica_id_in_their_field(version: int, by_field: bool) -> None:
    request = observer().request(version)
    assert (request.replica_id == NODE, request.replica_state.replica_id == NODE) == (by_field, not by_field)  # type: ignore[attr-defined]
    partition = request.topics[0].partitions[0]  # type: ignore[attr-defined]
    assert partition.high_watermark == 2**63 - 1


def test_only_what_is_committed_is_applied() -> None:
    asking = observer()
    data = data_batch(0, 1, feature(7)) + data_batch(1, 1, feature(8), NOOP)
    image = fetched(asking, answer(records=data, high_watermark=1))
    assert image is not None
    assert (image.offset, image.features) == (0, {"metadata.version": 7})
    assert position(asking) == (3, 1)
    assert fetched(asking, answer(records=b"", high_watermark=2)) is None  # inside a batch
    image = fetched(asking, answer(records=b"", high_watermark=3))
    assert image is not None
    assert (image.offset, image.features) == (2, {"metadata.version": 8})
    assert fetched(asking, answer(records=b"", high_watermark=1)) is None
    assert asking.request(NEWEST).topics[0].partitions[0].high_watermark == 3  # type: ignore[attr-defined]


def test_batches_that_are_here_already_do_not_count_twice() -> None:
    asking = observer()
    data = data_batch(0, 1, feature(7), NOOP)
    fetched(asking, answer(records=data, high_watermark=0))
    image = fetched(asking, answer(records=data + data_batch(2, 1, feature(8)), high_watermark=3))
    assert image is not None
    assert (image.offset, image.features) == (2, {"metadata.version": 8})


@pytest.mark.parametrize("data", [data_batch(1, 1, NOOP), data_batch(0, 2, NOOP) + data_batch(1, 1, NOOP)])
def test_log_with_a_gap_or_an_epoch_that_goes_back_is_a_fault(data: bytes) -> None:
    with pytest.raises(MetadataFault, match="continues at"):
        observer().fetched(answer(records=data, high_watermark=9))


def test_diverging_log_drops_what_was_not_committed_and_nothing_else() -> None:
    asking = observer()
    data = data_batch(0, 1, feature(7)) + data_batch(1, 1, feature(8))
    fetched(asking, answer(records=data, high_watermark=1))
    diverging = EpochEndOffset(epoch=1, end_offset=1)
    assert fetched(asking, answer(diverging_epoch=diverging)) is None
    assert position(asking) == (1, 1)
    image = fetched(asking, answer(records=data_batch(1, 2, feature(9)), high_watermark=2))
    assert image is not None
    assert (image.epoch, image.features) == (2, {"metadata.version": 9})
    with pytest.raises(MetadataFault, match="already committed"):
        asking.fetched(answer(diverging_epoch=diverging))


def test_a_snapshot_arrives_in_pieces_and_the_log_continues_after_it() -> None:
    asking = observer()
    assert fetched(asking, answer(snapshot_id=SnapshotId(end_offset=50, epoch=3))) is None
    data = snapshot_of(3, feature(9))
    for start in range(0, len(data), 100):
        assert asking.api_key == api.FETCH_SNAPSHOT
        request = asking.request(1).topics[0].partitions[0]  # type: ignore[attr-defined]
        assert (request.position, request.snapshot_id.end_offset, request.snapshot_id.epoch) == (start, 50, 3)
        image, _ = asking.snapshot(piece(data, start, 100))
        assert (image is not None) == (start + 100 >= len(data))
    assert (asking.image.offset, asking.image.features) == (49, {"metadata.version": 9})
    assert (asking.api_key, position(asking)) == (api.FETCH, (50, 3))


def piece(data: bytes, start: int, size: int, code: int = 0) -> FetchSnapshotResponse:
    part = FetchSnapshotResponsePartitionSnapshot(
        error_code=code, size=len(data), position=start, unaligned_records=data[start : start + size]
    )
    return FetchSnapshotResponse(topics=[FetchSnapshotResponseTopicSnapshot(partitions=[part])])


@pytest.mark.parametrize(
    "wrong",
    [
        piece(b"x" * 10, 0, 5, code=ErrorCode.SNAPSHOT_NOT_FOUND),
        piece(b"x" * 10, 5, 5),
        piece(b"x" * 10, 0, 0),
        FetchSnapshotResponse(),
        FetchSnapshotResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["gone", "other place", "nothing", "no part", "error"],
)
def test_snapshot_that_does_not_come_is_given_up_for_the_log(wrong: FetchSnapshotResponse) -> None:
    asking = observer()
    fetched(asking, answer(snapshot_id=SnapshotId(end_offset=50, epoch=3)))
    image, delay_s = asking.snapshot(wrong)
    assert image is None
    assert delay_s >= BACKOFF_S_MIN
    assert (asking.api_key, position(asking)) == (api.FETCH, (0, 0))


def test_lost_connection_gives_a_snapshot_up_and_asks_another_server() -> None:
    asking = observer()
    fetched(asking, answer(snapshot_id=SnapshotId(end_offset=50, epoch=3)))
    asked = asking.quorum.address
    assert asking.failed() == BACKOFF_S_MIN
    assert asking.api_key == api.FETCH
    assert {asked, asking.quorum.address} == {FIRST, SECOND}


def test_leader_is_the_one_that_an_answer_names() -> None:
    asking = observer()
    assert asking.fetched(refusal(3, 5, (3, THIRD))) == (None, 0.0)
    assert (asking.quorum.leader, asking.quorum.epoch) == (THIRD, 5)
    assert asking.request(NEWEST).topics[0].partitions[0].current_leader_epoch == 5  # type: ignore[attr-defined]
    asking.fetched(refusal(2, 4, (2, SECOND), code=ErrorCode.UNKNOWN_LEADER_EPOCH))  # that one is behind
    assert (asking.quorum.leader_id, asking.quorum.epoch, asking.quorum.leader) == (3, 5, None)


def test_leader_without_an_address_is_looked_up_among_the_voters() -> None:
    asking = observer({3: THIRD}, ())
    asking.fetched(refusal(3, 5))
    assert asking.quorum.leader == THIRD


def test_leader_without_an_address_is_looked_up_in_the_metadata() -> None:
    asking = observer()
    where = [types.ControllerEndpoint(name="CONTROLLER", host="c", port=3)]
    controller = types.RegisterControllerRecord(controller_id=3, end_points=where)
    fetched(asking, answer(records=data_batch(0, 1, controller), high_watermark=1))
    asking.fetched(refusal(3, 5))
    assert asking.quorum.leader == THIRD


def test_election_without_a_winner_is_waited_for_longer_and_longer() -> None:
    asking = observer()
    asked, delays = set(), []
    for _ in range(8):
        asked.add(asking.quorum.address)
        delays.append(asking.fetched(refusal(-1, 6, code=ErrorCode.NOT_LEADER_OR_FOLLOWER))[1])
    assert asked == {FIRST, SECOND}
    assert asking.quorum.epoch == 6
    assert delays == sorted(delays)
    assert delays[-1] == BACKOFF_S_MAX
    fetched(asking, answer(records=data_batch(0, 6, NOOP), high_watermark=1))
    assert asking.failed() == BACKOFF_S_MIN


def test_server_that_gives_records_leads() -> None:
    asking = observer()
    asked = asking.quorum.address
    assert asking.quorum.leader is None
    fetched(asking, answer(records=data_batch(0, 1, NOOP), high_watermark=1))
    assert asking.quorum.leader == asked


@pytest.mark.parametrize("code", [ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_other_refusals_are_waited_out_elsewhere(code: int) -> None:
    asking = observer()
    fetched(asking, answer(records=data_batch(0, 1, NOOP), high_watermark=1))
    assert asking.fetched(refusal(-1, -1, code=code)) == (None, BACKOFF_S_MIN)
    assert asking.quorum.leader is None
    assert asking.fetched(FetchResponse(error_code=code))[0] is None
    assert asking.fetched(FetchResponse())[0] is None


@pytest.mark.parametrize("code", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REQUEST])
def test_another_clusters_controllers_are_a_fault(code: int) -> None:
    with pytest.raises(MetadataFault, match="the controllers"):
        observer().fetched(FetchResponse(error_code=code))
