"""DeleteRecords holds once it was answered, and removes no more than was asked; retention takes what is due alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkalite.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.power.look import EARLIEST
from tests.power.promises.base import Past, Promise, TopicPlan
from tests.power.promises.configs import TOPIC_TYPE
from tests.power.promises.records import append

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.look import Look
    from tests.power.world import Actor, World

PURGED, SHORT, SWEPT = "purged", "short", "swept"
PARTITIONS = 2
KEPT_BYTES = 12_000
SWEEP_EVERY = 8
TURNS_MAX = 100
RECORD_ROOM = 1600
"""More bytes than any record here has."""


class Purging(Promise):
    """One topic that clients purge, one that is bounded in size, and one of which much goes at once now and then."""

    name = "purging"

    def topics(self, world: World) -> dict[str, TopicPlan]:
        return {
            PURGED: (PARTITIONS, {"segment.bytes": "4000", "trimmed": "yes"}),
            SHORT: (PARTITIONS, {"segment.bytes": "4000", "retention.bytes": str(KEPT_BYTES), "trimmed": "yes"}),
            SWEPT: (1, {"segment.bytes": "4000", "trimmed": "yes"}),
        }

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        yield "purging", _purge
        yield "short", _fill
        yield "swept", _sweep

    def check(self, past: Past, look: Look) -> Iterator[str]:
        for partition in range(PARTITIONS):
            yield from _check_purged(past, look, partition)
            yield from _check_short(past, look, partition)


def _check_purged(past: Past, look: Look, partition: int) -> Iterator[str]:
    log = look.logs.get((PURGED, partition))
    if log is None:
        return
    own = [op for op in past.ops("purges") if op.what["partition"] == partition]
    sure = max((op.what["offset"] for op in own if past.promised(op)), default=0)
    most = max((op.what["offset"] for op in own), default=0)
    if log.start < sure:
        yield f"{PURGED}-{partition} begins at {log.start}, though records below {sure} were deleted"
    if log.start > most:
        yield f"{PURGED}-{partition} begins at {log.start}, and nobody deleted beyond {most}"


def _check_short(past: Past, look: Look, partition: int) -> Iterator[str]:
    """Check that the log keeps at least the retention setting, except unacknowledged records that were lost."""
    log = look.logs.get((SHORT, partition))
    if log is None or log.start == 0 or log.faults:
        return
    kept = sum(size for _, _, size in log.spans)
    own = [op for op in past.ops("records") if op.what["topic"] == SHORT and op.what["partition"] == partition]
    unsure = sum(op.what["count"] * RECORD_ROOM for op in own if not past.promised(op))
    if kept + unsure < KEPT_BYTES:
        yield f"{SHORT}-{partition}: {kept} bytes are kept from {log.start} on, and {KEPT_BYTES} have to be"


def _purge(actor: Actor) -> None:
    ends: dict[int, int] = {}

    def step() -> None:
        partition = actor.draw.randrange(PARTITIONS)
        if actor.draw.random() < 0.85 or partition not in ends:
            base = append(actor, PURGED, partition)
            if base is not None:
                ends[partition] = base
            return
        offset = actor.draw.randint(0, ends[partition])
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=PURGED, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
                )
            ],
            timeout_ms=30_000,
        )

        def succeeded(answer: Any) -> dict[str, Any] | None:
            return None if answer.topics[0].partitions[0].error_code else {}

        what = {"partition": partition, "offset": offset}
        actor.attempt("purges", what, api.DELETE_RECORDS, 2, request, succeeded=succeeded)

    actor.rounds(step)


def _fill(actor: Actor) -> None:
    actor.rounds(lambda: append(actor, SHORT, actor.draw.randrange(PARTITIONS)))


def _sweep(actor: Actor) -> None:
    """Fills a topic, and has retention take a dozen segments in one turn."""

    def bounded(size: int) -> None:
        resource = AlterConfigsResource(
            resource_type=TOPIC_TYPE,
            resource_name=SWEPT,
            configs=[AlterableConfig(name="retention.bytes", config_operation=0, value=str(size))],
        )
        actor.ask(
            api.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        )

    def start() -> int:
        request = ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(name=SWEPT, partitions=[ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)])
            ]
        )
        return int(actor.ask(api.LIST_OFFSETS, 7, request).topics[0].partitions[0].offset)

    def step() -> None:
        if actor.step_count % SWEEP_EVERY == 0:
            bounded(-1)
        elif actor.step_count % SWEEP_EVERY == SWEEP_EVERY * 3 // 4:
            before = start()
            bounded(1)
            for _ in range(TURNS_MAX):  # nothing is appended meanwhile, whose sync would cover the names
                actor.come_again()
                if start() > before:
                    break
        append(actor, SWEPT, 0, count=10)

    actor.rounds(step)
