"""Define `Setting`: the definition of one setting, which parses, validates and describes its values.

A table of settings is a dataclass, such as `BrokerConfig` or `TopicConfig`. The fields that are settings have the
arguments of their Setting as metadata (`setting`, `collect`). Values arrive as text, from a .properties file, the
command line or an AlterConfigs request. Only `Setting.parse` converts them. Other modules define which settings exist.

Thread rule: immutable; any thread.
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
from dataclasses import field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Value = bool | int | float | str | tuple[str, ...] | None

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
WRITTEN_DEFAULT: Final = "min.insync.replicas"
"""The setting that Kafka 4.1 writes down as the cluster's when it first starts, with its static value."""
_METADATA_KEY: Final = "setting"


class ConfigType(IntEnum):
    """The type of a setting, with the numbers of DescribeConfigs v3."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)


class ConfigSource(IntEnum):
    """The source of a setting's value, with the numbers of DescribeConfigs v1."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class Effect(Enum):
    """Whether a setting has an effect in this release."""

    YES = "yes"
    LATER = "later"
    NONE = "none"
    REMOVED = "removed"
    """Kafka 4 has no such topic setting: topics of earlier releases keep it, without effect, and no topic gets it."""


NONE: Final = Effect.NONE


class ConfigSynonym(NamedTuple):
    """The value of a setting at one of its sources."""

    name: str
    value: str | None
    source: ConfigSource


def ordered_synonyms(
    key: str,
    names: Sequence[str],
    dynamic: Mapping[str, str],
    cluster: Mapping[str, str | None],
    static: Mapping[str, str],
    defaults: Mapping[str, str | None],
) -> tuple[ConfigSynonym, ...]:
    """Return the values of a broker setting in order of precedence.

    The order is: this broker's value, the cluster's, the one in the file, the default. `names` are the keys that can
    set it. The list begins with the first value that `key` itself sets. Source: Kafka's ConfigHelper.
    """
    places: tuple[tuple[ConfigSource, Mapping[str, str | None]], ...] = (
        (ConfigSource.DYNAMIC_BROKER, dynamic),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, cluster),
        (ConfigSource.STATIC_BROKER, static),
        (ConfigSource.DEFAULT, defaults),
    )
    found = (ConfigSynonym(name, texts[name], source) for source, texts in places for name in names if name in texts)
    return tuple(itertools.dropwhile(lambda synonym: synonym.name != key, found))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting in a response to DescribeConfigs."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str

    @property
    def is_default(self) -> bool:
        """Whether the value is the default. DescribeConfigs v0 returns this instead of the source."""
        return self.source == ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The definition of one setting.

    `low` and `high` are inclusive. If `default` is None, the setting can be unset, and an empty text unsets it.
    """

    key: str
    type: ConfigType
    default: Value
    doc: str
    unit: str = ""
    since: str = "0.1"
    effect: Effect = Effect.YES
    dynamic: bool = False
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False
    """For a string: whether the choices may also be written in capitals."""
    aliases: tuple[str, ...] = ()
    default_text: str = ""
    """The default that the documentation shows, if the value depends on the machine."""
    broker_keys: tuple[tuple[str, int], ...] = ()
    """For a topic or group: the broker settings that provide the default, each with the factor for its value."""

    def entry(
        self, value: str | None, synonyms: tuple[ConfigSynonym, ...], *, key: str | None = None, read_only: bool = False
    ) -> ConfigEntry:
        """Return the setting as an entry of a DescribeConfigs response.

        The source is that of the first synonym, or the default if there are no synonyms. `key` is the requested key, if
        it differs from the setting's.
        """
        return ConfigEntry(
            name=key or self.key,
            value=value,
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
            type=self.type,
            read_only=read_only,
            sensitive=self.type == ConfigType.PASSWORD,
            synonyms=synonyms,
            documentation=self.doc,
        )

    @property
    def attribute(self) -> str:
        """The name of the dataclass field."""
        return attribute_of(self.key)

    def parse(self, text: str) -> Value:
        """Parse and validate a text. The message of a ConfigError lists the valid values."""
        text = text.strip()
        if not text and self.default is None:
            return None
        match self.type:
            case ConfigType.BOOLEAN:
                return self._parse_boolean(text)
            case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                return self._parse_integer(text)
            case ConfigType.DOUBLE:
                return self._parse_double(text)
            case ConfigType.LIST:
                return self._parse_list(text)
            case _:
                return self._parse_string(text)

    def _parse_boolean(self, text: str) -> bool:
        lower = text.lower()
        if lower not in {"true", "false"}:
            raise ConfigError(self.key, f"must be true or false, not {text!r}")
        return lower == "true"

    def _parse_integer(self, text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ConfigError(self.key, f"must be a whole number, not {text[:64]!r}")
        value = int(text)
        bits = {ConfigType.SHORT: 16, ConfigType.INT: 32}.get(self.type, 64)
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise ConfigError(self.key, f"{text} does not fit into {bits} bits")
        self._check_range(value)
        return value

    def _parse_double(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ConfigError(self.key, f"must be a number, not {text[:64]!r}") from None
        if not math.isfinite(value):
            raise ConfigError(self.key, f"must be a finite number, not {text!r}")
        self._check_range(value)
        return value

    def _check_range(self, value: float) -> None:
        if self.low is not None and value < self.low:
            raise ConfigError(self.key, f"must be at least {self.low}, not {value}")
        if self.high is not None and value > self.high:
            raise ConfigError(self.key, f"must be at most {self.high}, not {value}")

    def _parse_list(self, text: str) -> tuple[str, ...]:
        values = tuple(item.strip() for item in text.split(",") if item.strip())
        for item in values:
            if self.choices and item not in self.choices:
                raise ConfigError(self.key, f"must be a list of {', '.join(self.choices)}, not {text!r}")
        return values

    def _parse_string(self, text: str) -> str:
        text = text.lower() if self.any_case else text
        if self.choices and text not in self.choices:
            raise ConfigError(self.key, f"must be one of {', '.join(self.choices)}, not {text!r}")
        return text

    def render(self, value: Value) -> str | None:
        """Return a value as text, in the form that `parse` accepts and Kafka's tools print; None if it is unset."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value)
            case _:
                return str(value)


def attribute_of(key: str) -> str:
    """Return the field name of a key: `log_dirs` for `log.dirs`."""
    return key.replace(".", "_").replace("-", "_")


def key_of(attribute: str) -> str:
    """Return the key of a field name: `log.dirs` for `log_dirs`. A key with dots is unchanged."""
    return attribute.replace("_", ".")


def to_text(value: object) -> str:
    """Convert a Python value to the text of a setting: True to `true`, and a list to a comma-separated list."""
    match value:
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)


def setting(
    type_: ConfigType, default: Value | Callable[[], Value], doc: str, *, default_text: str = "", **more: Any
) -> Any:
    """Create a dataclass field that is a setting. Its key is derived from the field's name (see `collect`).

    If `default` is a function, it is called to get the default.
    """
    row: dict[str, Any] = {"type": type_, "doc": doc, "default_text": default_text, **more}
    if callable(default):
        row["default"] = None
        row["computed"] = True
        return field(default_factory=default, metadata={_METADATA_KEY: row})
    row["default"] = default
    return field(default=default, repr=type_ != ConfigType.PASSWORD, metadata={_METADATA_KEY: row})


def collect(cls: type) -> dict[str, Setting]:
    """Return the settings of a dataclass by key: its own fields first, then those of its base classes in order."""
    table: dict[str, Setting] = {}
    fields = cls.__dataclass_fields__  # type: ignore[attr-defined]  # cls is a dataclass, or fails
    for name in (name for part in cls.__mro__ for name in inspect.get_annotations(part)):
        item = fields[name]
        row = item.metadata.get(_METADATA_KEY)
        if row is None:
            continue
        arguments = dict(row)
        if arguments.pop("computed", False):
            arguments["default"] = item.default_factory()
        key = key_of(name)
        table[key] = Setting(key=key, **arguments)
    return table


def parse_all(table: Mapping[str, Setting], texts: Mapping[str, str]) -> dict[str, Value]:
    """Parse the texts whose keys are in the table. Return field name → value. ConfigError."""
    return {table[key].attribute: table[key].parse(text) for key, text in texts.items() if key in table}


def near_miss(key: str, known: Iterable[str]) -> str:
    """Return a hint for the end of an error message: the known key that is most similar; "" if none is similar."""
    import difflib  # only what is wrong needs it

    close = difflib.get_close_matches(key, list(known), n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""
