"""Topics: one that was made is there with its id and partitions, one that was deleted never comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.power.promises.base import Past, Promise
from tests.power.promises.records import append

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.history import Op
    from tests.power.look import Look
    from tests.power.world import Actor, World


def create_topic(actor: Actor, name: str, count: int, configs: dict[str, str]) -> str | None:
    """Makes a topic; its id in hexadecimal, None for a refusal."""
    wanted = CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=text) for key, text in configs.items()],
    )

    def succeeded(answer: Any) -> dict[str, Any] | None:
        found = answer.topics[0]
        return None if found.error_code else {"id": found.topic_id.hex()}

    what = {"made": True, "name": name, "count": count}
    request = CreateTopicsRequest(topics=[wanted])
    found = actor.attempt("topics", what, api.CREATE_TOPICS, 7, request, succeeded=succeeded)
    return None if found is None else str(found["id"])


def delete_topic(actor: Actor, name: str) -> bool:
    """Deletes a topic; False for a refusal."""

    def succeeded(answer: Any) -> dict[str, Any] | None:
        return None if answer.responses[0].error_code else {}

    what = {"made": False, "name": name}
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
    return actor.attempt("topics", what, api.DELETE_TOPICS, 6, request, succeeded=succeeded) is not None


class Topics(Promise):
    """Topics that come and go under the same names, with records in them."""

    name = "topics"

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        yield from ((f"churn {i}", lambda actor, i=i: _churn(actor, f"churn-{i}")) for i in range(3))

    def check(self, past: Past, look: Look) -> Iterator[str]:
        by_name: dict[str, list[Op]] = {}
        for op in past.ops("topics"):
            by_name.setdefault(op.what["name"], []).append(op)
        for name, ops in by_name.items():
            yield from _check_name(past, look, name, ops)
        for topic in look.topics.values():
            if not topic.internal and topic.name not in by_name:
                yield f"topic {topic.name} was never asked for"


def _check_name(past: Past, look: Look, name: str, ops: list[Op]) -> Iterator[str]:
    """Check a topic against the last answered request for its name, or a later unanswered one."""
    sure = max((i for i, op in enumerate(ops) if past.promised(op)), default=-1)
    open_ = ops[sure + 1 :]
    found = look.topics.get(name)
    if found is None:
        if sure >= 0 and ops[sure].what["made"] and not any(not op.what["made"] for op in open_):
            yield f"topic {name} was made, and is missing"
        return
    known = {op.result["id"] for op in ops[:sure] if op.what["made"] and op.result is not None}
    last = ops[sure] if sure >= 0 else None
    if last is not None and last.what["made"] and last.result is not None and found.id == last.result["id"]:
        if found.partition_count != last.what["count"]:
            yield f"topic {name} has {found.partition_count} partitions, it was made with {last.what['count']}"
        return
    if found.id in known or not any(op.what["made"] for op in open_):
        state = "deleted" if sure < 0 or not ops[sure].what["made"] else "another one"
        yield f"topic {name} was {state}, and is there with id {found.id}"


def _churn(actor: Actor, name: str) -> None:
    known: dict[str, Any] = {"id": None, "count": 0}

    def begin() -> None:
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        found = bytes(actor.ask(api.METADATA, 12, wanted).topics[0].topic_id)
        known.update(id=found.hex() if any(found) else None)
        known["count"] = known["count"] or 1

    def step() -> None:
        if known["id"] is None:
            known["count"] = actor.draw.choice((1, 2))
            known["id"] = create_topic(actor, name, known["count"], {"segment.bytes": "6000"})
            return
        for _ in range(actor.draw.randrange(5)):
            append(actor, name, actor.draw.randrange(known["count"]), id=known["id"])
        if actor.draw.random() < 0.7 and delete_topic(actor, name):
            known["id"] = None

    actor.rounds(step, start=begin)
