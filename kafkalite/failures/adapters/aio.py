"""Let a group member of `kafkalite.failures` read and write with aiokafka.

The event loop of aiokafka runs in a separate thread, so that aiokafka sends heartbeats while handlers run.

Thread rule: methods belong to the runner's thread, except coroutines, `transact` and `write`. A queue passes aiokafka's
callbacks to the runner's thread. Producers belong to the event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import queue
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka import TopicPartition as TheirPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CorruptRecordException, KafkaError, MessageSizeTooLargeError

from kafkalite.failures.adapters.configuration import NEEDED, divided, require_group, require_no_topics
from kafkalite.failures.adapters.listening import FETCH_WAIT_MS, Listening
from kafkalite.failures.runner import CommitRefused
from kafkalite.failures.transaction_writer import TransactionFailed
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from kafkalite.failures.runner import Fetch
    from kafkalite.failures.transaction_writer import Written

RECORDS_MAX: Final = 500
REQUEST_SIZE_MAX: Final = 100_000_000
COMMIT_TIMEOUT_S: Final = 5.0
HEAR_S: Final = 0.005
NO_KEY: Final = object()
CONSUMER_NAMES: Final = inspect.signature(AIOKafkaConsumer).parameters.keys() - {"loop"}
CONSUMER_DEFAULTS: Final = {
    name: one.default
    for name, one in inspect.signature(AIOKafkaConsumer).parameters.items()
    if name not in {"topics", "loop", "api_version"}  # the last has no effect
}
PRODUCER_NAMES: Final = inspect.signature(AIOKafkaProducer).parameters.keys() - {"loop"}

Result = TypeVar("Result")
logger = logging.getLogger(__name__)


class AioPort(Listening):
    """Reads and writes with aiokafka.

    `config` is the configuration of an AIOKafkaConsumer without `loop`. It may include settings of an AIOKafkaProducer.

    `config` can also be an AIOKafkaConsumer that is not started and has no subscription. It needs the policy's group,
    enable_auto_commit=False, isolation_level="read_committed" and auto_offset_reset="earliest". The member creates its
    own consumer with the same settings.

    Raises ValueError for unsuitable settings, TypeError for an unknown setting or another object.
    """

    by_partition = True

    def __init__(self, config: Mapping[str, Any] | AIOKafkaConsumer) -> None:
        super().__init__()
        given = divided(settings_of(config), CONSUMER_NAMES, PRODUCER_NAMES)
        if not isinstance(config, Mapping):
            if given.group is None:
                raise ValueError("the consumer has no group_id: make it with the policy's group")
            config._closed = True  # noqa: SLF001  # it was never opened; otherwise it warns that it was not closed
        self._consumer_config, self._config, self._named_group = given
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="failures-aiokafka", daemon=True)
        self._died: BaseException | None = None
        """The exception of a task that ends the member."""
        self._consumer: Any = None
        self._group = ""
        self._claims = False
        self._producers: dict[TopicPartition | None, Any] = {}
        self._told: queue.SimpleQueue[tuple[Callable[[Any], None], Any, asyncio.Future[None]]] = queue.SimpleQueue()

    def _run(self) -> None:
        """Run the event loop until `close` stops it.

        If a task raises SystemExit, the loop continues, so that `close` can leave the group. The next `poll` raises the
        SystemExit.
        """
        while True:
            try:
                self._loop.run_forever()
            except BaseException as error:  # noqa: BLE001  # raised by `poll`
                self._died = error
            else:
                return

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the event loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _do_hearing(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the event loop and wait for its result. Meanwhile run rebalance callbacks in this thread.

        The coroutine may itself wait for a callback.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        while not future.done():
            concurrent.futures.wait([future], HEAR_S)
            self._hear()
        return future.result()

    def claim(self) -> None:
        self._claims = True

    def assigned(self, partitions: Any) -> None:
        """Initialize each partition's transactional id before its position is read.

        aiokafka commits a transaction's offsets with the group id alone. Without a member id and generation, brokers
        cannot reject the commit of a replaced member. So the transactional id has to fence the member.
        """
        for one in sorted(partitions) if self._claims else ():
            self._do(self._producer(TopicPartition(one.topic, one.partition)))
        super().assigned(partitions)

    def open(
        self,
        group: str,
        topics: Sequence[str],
        on_assigned: Callable[[list[TopicPartition]], None],
        on_revoked: Callable[[list[TopicPartition]], None],
        on_lost: Callable[[list[TopicPartition]], None],
    ) -> None:
        require_group(self._named_group, group)
        self.listen(on_assigned, on_revoked, on_lost)
        self._group = group
        self._thread.start()
        self._do_hearing(self._open(topics))

    async def _open(self, topics: Sequence[str]) -> None:
        self._consumer = AIOKafkaConsumer(
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **{
                "partition_assignment_strategy": (RangePartitionAssignor,),
                "fetch_max_wait_ms": FETCH_WAIT_MS,
                **self._consumer_config,
            },
        )
        self._consumer.subscribe(list(topics), listener=Listener(self))
        await self._consumer.start()

    async def tell(self, what: Callable[[Any], None], partitions: Any) -> None:
        """Run a rebalance callback in the runner's thread, and wait until it has returned."""
        heard: asyncio.Future[None] = self._loop.create_future()
        self._told.put((what, partitions, heard))
        await heard

    def _hear(self) -> None:
        while True:
            try:
                what, partitions, heard = self._told.get_nowait()
            except queue.Empty:
                return
            try:
                what(partitions)
            finally:
                self._loop.call_soon_threadsafe(heard.set_result, None)

    def _read(self, timeout_s: float) -> list[Fetch]:
        if self._died is not None:
            raise self._died
        try:
            found = self._do_hearing(self._consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=RECORDS_MAX))
        except CorruptRecordException as error:  # it does not name the batch; the runner finds it
            logger.info("reading: %s", error)
            return []
        return self.fetches(found)

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        self._loop.call_soon_threadsafe(self._consumer.seek, TheirPartition(*partition), offset)

    def _position(self, partition: TopicPartition) -> int:
        if partition not in self.owned:
            return -1
        try:
            return int(self._do(asyncio.wait_for(self._consumer.position(TheirPartition(*partition)), 1.0)))
        except (KafkaError, TimeoutError):
            return -1

    def _halt(self, partition: TopicPartition) -> None:
        self._loop.call_soon_threadsafe(self._consumer.pause, TheirPartition(*partition))

    def _unhalt(self, partition: TopicPartition) -> None:
        self._loop.call_soon_threadsafe(self._consumer.resume, TheirPartition(*partition))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            self._do(asyncio.wait_for(self._consumer.commit(theirs(offsets)), COMMIT_TIMEOUT_S))
        except (KafkaError, TimeoutError) as error:
            raise CommitRefused(str(error)) from error

    def member(self) -> None:
        """Return None: no group membership is needed, since transactional ids fence replaced members."""

    # --- writing ------------------------------------------------------------------------------------------------------

    def transact(
        self,
        records: Sequence[Written],
        offsets: Mapping[TopicPartition, int],
        scope: TopicPartition | None,
        member: object,
    ) -> None:
        assert member is None, "this producer takes no group metadata"
        assert scope is not None, "a transaction is one partition's"
        try:
            self._do(self._transact(records, offsets, scope))
        except KafkaError as error:
            self._do(self._give_up(scope))
            raise TransactionFailed(str(error), too_large=isinstance(error, MessageSizeTooLargeError)) from error

    async def _transact(
        self, records: Sequence[Written], offsets: Mapping[TopicPartition, int], scope: TopicPartition
    ) -> None:
        producer = await self._producer(scope)
        async with producer.transaction():
            await self._send(producer, records)
            await producer.send_offsets_to_transaction(theirs(offsets), self._group)

    async def _producer(self, scope: TopicPartition | None) -> Any:
        if scope not in self._producers:
            more = {} if scope is None else {"transactional_id": f"kafkalite-failures-{self._group}-{scope}"}
            given = {"max_request_size": REQUEST_SIZE_MAX, **self._config, "acks": "all", **more}
            producer = AIOKafkaProducer(key_serializer=key_of, **given)
            await producer.start()
            self._producers[scope] = producer
        return self._producers[scope]

    def revoked(self, partitions: Any) -> None:
        super().revoked(partitions)
        for one in partitions:
            self._do(self._give_up(TopicPartition(one.topic, one.partition)))

    async def _give_up(self, scope: TopicPartition) -> None:
        producer = self._producers.pop(scope, None)
        if producer is not None:
            try:
                await producer.stop()
            except KafkaError as error:
                logger.info("the producer of %s was not stopped: %s", scope, error)

    def write(self, records: Sequence[Written]) -> None:
        async def work() -> None:
            await self._send(await self._producer(None), records)

        try:
            self._do(work())
        except KafkaError as error:
            raise TransactionFailed(str(error), too_large=isinstance(error, MessageSizeTooLargeError)) from error

    @staticmethod
    async def _send(producer: Any, records: Sequence[Written]) -> None:
        futures = [
            await producer.send(
                topic,
                message.value,
                NO_KEY if message.key is None else message.key,
                partition,
                message.timestamp if message.timestamp >= 0 else None,
                list(message.headers),
            )
            for topic, partition, message in records
        ]
        await asyncio.gather(*futures)

    def close(self) -> None:
        if not self._thread.is_alive():
            self._loop.close()  # never opened, or closed already
            return
        try:
            self.leave()
        finally:
            self._do(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _close(self) -> None:
        for producer in self._producers.values():
            await producer.stop()
        if self._consumer is not None:
            await self._consumer.stop()


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    """Passes the consumer's rebalance callbacks to the AioPort."""

    def __init__(self, port: AioPort) -> None:
        self._port = port

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self._port.tell(self._port.revoked, revoked)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        await self._port.tell(self._port.assigned, assigned)


def settings_of(consumer: object) -> Mapping[str, Any]:
    """Return a configuration unchanged, or the settings of an AIOKafkaConsumer. Raises ValueError, TypeError."""
    if isinstance(consumer, Mapping):
        return consumer
    if not isinstance(consumer, AIOKafkaConsumer):
        raise TypeError(
            f"consumer must be an AIOKafkaConsumer or a dict with its configuration, not a {type(consumer).__name__}"
        )
    shown = shown_by(consumer)
    if shown["_fetcher"] is not None:
        raise ValueError("the consumer is started; create it, and do not start it: the member starts its own")
    require_no_topics(consumer)
    found = {}
    for name, default in CONSUMER_DEFAULTS.items():
        if f"_{name}" not in shown:
            raise TypeError(f"this release of aiokafka does not show {name}: pass the consumer's configuration")
        if name in NEEDED or shown[f"_{name}"] != default:
            found[name] = shown[f"_{name}"]
    if found.get("rebalance_timeout_ms") == shown["_session_timeout_ms"]:
        del found["rebalance_timeout_ms"]  # its default
    return found


def shown_by(consumer: AIOKafkaConsumer) -> dict[str, Any]:
    """Return a consumer's settings from its private attributes, because aiokafka has no public attributes for them."""
    shown = {**vars(consumer._client), **vars(consumer)}  # noqa: SLF001  # it has no public name
    return {**shown, "_consumer_timeout_ms": round(shown["_consumer_timeout"] * 1000)}


def key_of(key: object) -> Any:
    """Return a record's key for aiokafka; None for the marker NO_KEY.

    This function is the producer's key serializer. With a serializer, aiokafka accepts a record whose key and value are
    both None.
    """
    return None if key is NO_KEY else key


def theirs(offsets: Mapping[TopicPartition, int]) -> dict[Any, int]:
    """Convert offsets to the classes of aiokafka."""
    return {TheirPartition(*place): offset for place, offset in offsets.items()}
