"""Topics of Kafka 0.7: offsets reported to a consumer remain readable, complete and in order; nothing else
is promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kit.harness.classic_client import ClassicClient
from tests.kit.oracles import classic_oracle
from tests.power.look import TOKEN
from tests.power.promises.base import Past, Promise, TopicPlan
from tests.power.world import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.look import Look
    from tests.power.world import Actor, World

TOPIC, PARTITIONS = "old", 2


class Classic(Promise):
    """One producer and asker a partition of a classic topic."""

    name = "classic"

    def topics(self, world: World) -> dict[str, TopicPlan]:
        return {TOPIC: (PARTITIONS, {"message.format": "classic", "segment.bytes": "6000"})}

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        yield from ((f"classic {i}", lambda actor, i=i: _write(actor, i)) for i in range(PARTITIONS))

    def check(self, past: Past, look: Look) -> Iterator[str]:
        if TOPIC not in look.topics:
            return
        with ClassicClient(look.classic_port) as client:
            for partition in range(PARTITIONS):
                yield from _check_partition(past, client, partition)


def _check_partition(past: Past, client: ClassicClient, partition: int) -> Iterator[str]:
    name = f"{TOPIC}-{partition}"
    found = client.offsets(TOPIC, partition)
    end = found[0] if found else 0
    own = [op for op in past.ops("classic ends") if op.what["partition"] == partition]
    told = max((op.result["end"] for op in own if past.promised(op) and op.result is not None), default=0)
    if end < told:
        yield f"{name}: the end was told to be {told}, and is {end}"
    if end == 0:
        return
    data = b""
    while len(data) < end:
        code, piece = client.fetch(TOPIC, partition, len(data))
        if code or not piece:
            yield f"{name}: a consumer at {len(data)} gets error {code}, {len(piece)} bytes, the end is {end}"
            return
        data += piece
    if len(data) != end:
        yield f"{name}: {len(data)} bytes can be read, the end is {end}"
    try:
        entries = [message.payload for _, message in classic_oracle.read_entries(data)]
    except classic_oracle.OracleError as error:
        yield f"{name}: what is there is no message set: {error}"
        return
    tokens = [int(match[1]) if (match := TOKEN.search(payload)) else -1 for payload in entries]
    yield from _check_order(past, name, partition, tokens)


def _check_order(past: Past, name: str, partition: int, tokens: list[int]) -> Iterator[str]:
    """Of what was sent to one process of the run, in order, a first part is there."""
    by_run: dict[int, list[int]] = {}
    for op in past.ops("classic"):
        if op.what["partition"] == partition:
            by_run.setdefault(op.connection[0], []).extend(range(op.what["first"], op.what["first"] + op.what["count"]))
    expected: list[int] = []
    for sent in by_run.values():
        there = set(tokens)
        count = sum(token in there for token in sent)
        expected += sent[:count]
    if tokens != expected:
        wrong = next((i for i, pair in enumerate(zip(tokens, expected, strict=False)) if pair[0] != pair[1]), -1)
        yield f"{name}: messages are lost, doubled or out of order from the {wrong}th on of {len(tokens)}"


def _write(actor: Actor, partition: int) -> None:
    def step() -> None:
        actor.come_again()
        if actor.draw.random() < 0.3:
            actor.ask_classic_end("classic ends", {"partition": partition}, TOPIC, partition)
            return
        count = actor.draw.choice((1, 2))
        first = actor.world.tokens(count)
        messages = [classic_oracle.OracleMessage(value(first + i, actor.draw)) for i in range(count)]
        what = {"partition": partition, "first": first, "count": count}
        actor.send_classic("classic", what, TOPIC, partition, classic_oracle.encode_set(messages))

    actor.rounds(step)
