"""Write docs/configuration.md from the tables in kafkalite.settings. With `--check`, only compare, for the tests."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafkalite.settings.broker import BROKER_SETTINGS
from kafkalite.settings.client_metrics import CLIENT_METRICS_SETTINGS
from kafkalite.settings.foreign import foreign_rows, refused_rows
from kafkalite.settings.group import GROUP_SETTINGS
from kafkalite.settings.rows import INT32_MAX, INT64_MAX, Effect, Setting
from kafkalite.settings.topic_settings_table import TOPIC_SETTINGS

TARGET = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

OPENING = """\
# Configuration

Generated from `kafkalite/settings/` by `make docs`; edit there.

A broker reads a `.properties` file (`kafkalite start --config server.properties`) and then `--set key=value`, which
overrides the file. Names, types and defaults follow Apache Kafka 4, so you can use a `server.properties` written for
Kafka. An unknown key or an invalid value is an error: the broker prints one sentence and exits with status 2.

To keep secrets out of the file, use Kafka's configuration providers (KIP-297, KIP-421). They read values from the
environment, from a properties file, or from the files of a directory, where containers mount secrets.

```properties
config.providers=env,file,mounted
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
config.providers.mounted.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider
log.dirs=${env:KAFKA_DATA}
node.id=${file:/etc/kafka/node.properties:id}
broker.rack=${mounted:/run/secrets:rack}
```

`config.providers.env.param.allowlist.pattern` (a regular expression for the whole name) and
`config.providers.file.param.allowed.paths` (comma-separated files and directories) limit what the providers may read.
The values are resolved at the start. A variable that cannot be resolved is an error; Kafka keeps it unresolved.

A topic uses its own override (CreateTopics, AlterConfigs), then the broker setting in the last column, then the
default.
"""

EFFECTS = {
    Effect.YES: "",
    Effect.LATER: "accepted; takes effect with a later release",
    Effect.NONE: "accepted; without effect",
    Effect.REMOVED: "removed in Kafka 4 and refused; topics of earlier releases keep it, without effect",
}

UNITS = {
    "bytes": ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")),
    "ms": ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")),
}


def cell(text: str) -> str:
    """Return text escaped for a table cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def default_text(row: Setting) -> str:
    """Return the default value, also in larger units if it is a round number of them."""
    if row.default_text:
        return row.default_text
    text = row.render(row.default)
    if text is None:
        return "unset"
    if row.default in (INT32_MAX, INT64_MAX, sys.float_info.max):
        return f"{text} (no limit)"
    for size, name in UNITS.get(row.unit, ()):
        if isinstance(row.default, int) and row.default >= size and row.default % size == 0:
            return f"{text} ({row.default // size} {name})"
    return f"`{text}`" if text else "empty"


def bounds_text(row: Setting) -> str:
    """Return the legal values, beyond the type."""
    if row.choices:
        return ", ".join(f"`{choice}`" for choice in row.choices)
    low = f"≥ {row.low:g}" if row.low is not None else ""
    high = f"≤ {row.high:g}" if row.high is not None and row.high < INT32_MAX else ""
    return ", ".join(filter(None, [low, high]))


def type_text(row: Setting) -> str:
    """Return type and unit."""
    return f"{row.type.name.lower()}, {row.unit}" if row.unit else row.type.name.lower()


def description(row: Setting) -> str:
    """Return what a setting does, whether it has an effect, and its other names."""
    aliases = f" Also called {', '.join(f'`{alias}`' for alias in row.aliases)}." if row.aliases else ""
    text = EFFECTS[row.effect]
    effect = f" *{text[:1].upper()}{text[1:]}.*" if text else ""
    return f"{row.doc}{aliases}{effect}"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Return the lines of a Markdown table."""
    names = list(header)
    yield f"| {' | '.join(names)} |"
    yield f"| {' | '.join('---' for _ in names)} |"
    for row in rows:
        yield f"| {' | '.join(map(cell, row))} |"


def broker_rows() -> Iterator[list[str]]:
    """Return a row per broker setting, with a mark for those that can be changed at run time."""
    for key, row in BROKER_SETTINGS.items():
        name = f"`{key}`" + (" ↻" if row.dynamic else "")
        yield [name, type_text(row), default_text(row), bounds_text(row), description(row)]


def plain_rows(settings: dict[str, Setting]) -> Iterator[list[str]]:
    """Return a row per setting of groups or of client metrics."""
    for key, row in settings.items():
        yield [f"`{key}`", type_text(row), default_text(row), bounds_text(row), description(row)]


def topic_rows() -> Iterator[list[str]]:
    """Return a row per topic setting."""
    for key, row in TOPIC_SETTINGS.items():
        keys = ", ".join(f"`{broker_key}`" for broker_key, _ in row.broker_keys)
        yield [f"`{key}`", type_text(row), default_text(row), bounds_text(row), description(row), keys]


def without_effect() -> Iterator[str]:
    """Return the topic settings without effect, by name."""
    for effect, title in ((Effect.LATER, "with a later release"), (Effect.NONE, "without effect here")):
        keys = [f"`{key}`" for key, row in TOPIC_SETTINGS.items() if row.effect is effect]
        if keys:
            yield f"- Accepted, {title}: {', '.join(keys)}."


def document() -> str:
    """Return the whole page."""
    lines = [
        OPENING,
        "## Topic settings",
        "",
        *without_effect(),
        "",
        *table(["setting", "type", "default", "legal", "what it does", "broker's default"], topic_rows()),
        "",
        "## Group settings",
        "",
        "A group's own (`kafka-configs --entity-type groups`), from its members' next heartbeat on. Without one,",
        "`consumer.*` are the broker's `group.consumer.*`, which also say how far a group may go (`min` and `max`).",
        "",
        *table(["setting", "type", "default", "legal", "what it does"], plain_rows(GROUP_SETTINGS)),
        "",
        "## Client metrics",
        "",
        "A subscription's settings (`kafka-client-metrics`, `kafka-configs --entity-type client-metrics`, KIP-714).",
        "",
        *table(["setting", "type", "default", "legal", "what it does"], plain_rows(CLIENT_METRICS_SETTINGS)),
        "",
        "## Broker settings",
        "",
        "↻ marks what AlterConfigs can change while the broker runs.",
        "",
        *table(["setting", "type", "default", "legal", "what it does"], broker_rows()),
        "",
        "## Kafka's settings that mean nothing here",
        "",
        "Accepted with a line in the log:",
        "",
        *table(["setting", "why"], ([f"`{key}`", why] for key, why in foreign_rows())),
        "",
        "Refused, since ignoring them would promise something untrue:",
        "",
        *table(["setting", "why"], ([f"`{key}`", why] for key, why in refused_rows())),
        "",
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Write the page. With `--check`, return 1 if it is out of date."""
    text = document()
    if arguments == ["--check"]:
        if TARGET.read_text(encoding="utf-8") != text:
            print(f"{TARGET.name} is out of date; run `make docs`")
            return 1
        return 0
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
