"""Load the extension classes that a producer's settings name, such as serializer.class and partitioner.class.

    event.handler=my_module:MyHandler          imported, and created without arguments, as in 0.7
    serializer.class=kafka.serializer.StringEncoder          one of 0.7's names for built-in classes
    callback.handler.props=file=/tmp/x,level=2               the argument of the handler's init()

An object that the program passes takes precedence over the setting. An unknown name raises InvalidConfig: a producer
without its partitioner would silently send keys to other partitions.

Source: Kafka 0.7.2 (`kafkalite.classic`, fact 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.base import plugins
from kafkalite.base.dataclass import dataclass
from kafkalite.classic.errors import InvalidConfig
from kafkalite.classic.handlers import CallbackHandler, DefaultEncoder, DefaultEventHandler, StringEncoder
from kafkalite.classic.partitioner import DefaultPartitioner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.classic.config import ProducerConfig, QueueSettings
    from kafkalite.classic.handlers import Encoder, EventHandler
    from kafkalite.classic.partitioner import Partitioner

ENCODERS: Final = {
    "kafka.serializer.DefaultEncoder": DefaultEncoder,
    "kafka.serializer.StringEncoder": StringEncoder,
}
PARTITIONERS: Final = {"kafka.producer.DefaultPartitioner": DefaultPartitioner}
DEFAULT_EVENT_HANDLER: Final = "kafka.producer.async.DefaultEventHandler"
_CALLBACKS: Final = tuple(name for name in vars(CallbackHandler) if not name.startswith("_"))


@dataclass(frozen=True, slots=True)
class Handlers:
    """The extension objects of a producer."""

    encoder: Encoder
    event_handler: EventHandler
    callback: CallbackHandler


def handlers(
    config: QueueSettings,
    *,
    encoder: Encoder | None = None,
    event_handler: EventHandler | None = None,
    event_handler_properties: Mapping[str, str] | None = None,
    callback_handler: CallbackHandler | None = None,
    callback_handler_properties: Mapping[str, str] | None = None,
) -> Handlers:
    """Return a producer's extension objects, and call the `init` of its handlers.

    An object given here comes first, then the class that the settings name, then 0.7's default.
    """
    if encoder is None:
        name = config.serializer_class
        encoder = _make("serializer.class", name, ENCODERS, ["to_message"]) if name else DefaultEncoder()
    if callback_handler is None:
        name = config.callback_handler
        callback_handler = _make("callback.handler", name, {}, _CALLBACKS) if name else CallbackHandler()
    if event_handler is None:
        name = config.event_handler
        if name and name != DEFAULT_EVENT_HANDLER:
            event_handler = _make(
                "event.handler", name, {DEFAULT_EVENT_HANDLER: DefaultEventHandler}, ["init", "handle", "close"]
            )
        else:
            event_handler = DefaultEventHandler(config, callback_handler)
    found = Handlers(encoder, event_handler, callback_handler)
    found.callback.init(
        _properties("callback.handler.props", config.callback_handler_props, callback_handler_properties)
    )
    found.event_handler.init(_properties("event.handler.props", config.event_handler_props, event_handler_properties))
    return found


def partitioner(config: ProducerConfig) -> Partitioner:
    """Return the partitioner that partitioner.class names, or 0.7's default."""
    name = config.partitioner_class
    found: Partitioner = _make("partitioner.class", name, PARTITIONERS, ["partition"]) if name else DefaultPartitioner()
    return found


def handler_properties(key: str, text: str) -> dict[str, str]:
    """Parse `k1=v1,k2=v2`, the format of callback.handler.props and event.handler.props."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, value = part.partition("=")
        if not separator:
            raise InvalidConfig(f"{key} must be key=value,key=value, not {text!r}")
        found[name.strip()] = value.strip()
    return found


def _properties(key: str, text: str | None, given: Mapping[str, str] | None) -> Mapping[str, str]:
    return given if given is not None else handler_properties(key, text or "")


def _make(key: str, text: str, known: Mapping[str, Any], methods: Iterable[str]) -> Any:
    try:
        return plugins.make(text, known=known, methods=methods)
    except ValueError as error:
        raise InvalidConfig(f"{key}: {error}") from error
