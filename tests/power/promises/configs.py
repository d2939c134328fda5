"""Settings changed while running: of a topic, a group, a subscription or the broker, they hold once answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.power.promises.base import Past, Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.history import Op
    from tests.power.look import Look
    from tests.power.world import Actor, World

TOPIC_TYPE, BROKER_TYPE, CLIENT_METRICS_TYPE, GROUP_TYPE = 2, 4, 16, 32
LARGE = 10_000_000_000
"""Values are this and more: nothing is removed because of them."""
SHORT = 45_000
"""The same for a group's session: the group has no members."""
OFTEN = 300_000
"""The same of an interval: its default."""
PLACES = (
    (TOPIC_TYPE, "plain", "retention.ms", LARGE),
    (BROKER_TYPE, "1", "log.cleaner.delete.retention.ms", LARGE),
    (GROUP_TYPE, "configured", "consumer.session.timeout.ms", SHORT),
    (CLIENT_METRICS_TYPE, "subscribed", "interval.ms", OFTEN),
)
"""Kind, name, setting, and what its values begin above."""


class Configs(Promise):
    """One setting of each of PLACES, changed again and again."""

    name = "configs"

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        yield "configs", _alter

    def check(self, past: Past, look: Look) -> Iterator[str]:
        ops = past.ops("configs")
        for kind, name, key, base in PLACES:
            own = [op for op in ops if op.what["key"] == key]
            if own and (kind != TOPIC_TYPE or name in look.topics):
                yield from _check_setting(past, look, (kind, name, key, base), own)


def _check_setting(past: Past, look: Look, place: tuple[int, str, str, int], own: list[Op]) -> Iterator[str]:
    kind, name, key, base = place
    wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    answer = look.ask(api.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[wanted])).results[0]
    if answer.error_code:
        yield f"{key} of {name}: error {answer.error_code}"
        return
    text = answer.configs[0].value
    sure = max((i for i, op in enumerate(own) if past.promised(op)), default=-1)
    allowed = {op.what["value"] for op in own[max(sure, 0) :]}
    if text not in allowed and (sure >= 0 or int(text) > base):
        yield f"{key} of {name} is {text}, but was set to {own[sure].what['value']}"


def _alter(actor: Actor) -> None:
    number = [0]

    def step() -> None:
        actor.come_again()
        kind, name, key, base = actor.draw.choice(PLACES)
        number[0] += 1
        text = str(base + number[0])
        change = AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[AlterableConfig(name=key, value=text)]
        )

        def succeeded(answer: Any) -> dict[str, Any] | None:
            return None if answer.responses[0].error_code else {}

        actor.attempt(
            "configs",
            {"key": key, "value": text},
            api.INCREMENTAL_ALTER_CONFIGS,
            1,
            IncrementalAlterConfigsRequest(resources=[change]),
            succeeded=succeeded,
        )

    actor.rounds(step)
