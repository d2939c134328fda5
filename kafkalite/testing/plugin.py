"""Provide pytest fixtures with a broker, and show the broker's log and its flush.on.acks.all in pytest's output.

    kafka_broker            a running KafkaBroker, one per pytest process (so one per pytest-xdist worker), on a free
                            port of 127.0.0.1, in a temporary directory of pytest
    kafka_topic             the name of a new topic with one partition, for one test
    kafka_topic_factory     creates more topics: kafka_topic_factory(3, cleanup_policy="compact")
    kafka_registry          a running schema registry that stores schemas in the broker; `kafka_registry.url`
    kafka_broker_settings   settings of the broker, to be overridden in a conftest.py with the same scope

pytest's configuration file can contain settings, too: `kafkalite_settings`, one per line. Faults end with the test that
requested them.

Every pytest run with kafkalite installed loads this file. So until a fixture is used, it imports little besides pytest.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final, Protocol

import pytest

from kafkalite.testing import captured_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalite.schema_registry.server import RegistryServer
    from kafkalite.testing.broker import KafkaBroker

TEST_NAME_SIZE_MAX: Final = 150
"""Maximum characters of the test's name in its topic's name; a topic name has at most 249."""
INI_SETTINGS: Final = "kafkalite_settings"
FLUSH: Final = "flush.on.acks.all"
LOG_LEVEL: Final = "info"
LOG_LEVELS: Final = frozenset({"debug", "info", "warning", "error"})
LOG_SECTION: Final = "kafkalite broker log"
_BROKER: Final = pytest.StashKey["KafkaBroker"]()
_IN_FORCE: Final = pytest.StashKey[set[str]]()


class TopicFactory(Protocol):
    """The type of `kafka_topic_factory`."""

    def __call__(self, partitions: int = 1, *, name: str | None = None, **settings: object) -> str:
        """Create a topic and return its name. The name begins with the test's name unless `name` is given.

        Settings have Kafka's names, with underscores: `cleanup_policy="compact"`. Raises KafkaError.
        """
        ...


@pytest.fixture(scope="session")
def kafka_broker_settings() -> Mapping[str, object]:
    """Return the settings for `kafka_broker` by key. Override this fixture in a conftest.py with the same scope.

    `{"in_process": True}` runs the broker in pytest's process.
    """
    return {}


@pytest.fixture(scope="session")
def kafka_broker(
    kafka_broker_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[KafkaBroker]:
    """Return a running broker; `kafka_broker.bootstrap_servers` is its address."""
    from kafkalite.testing.broker import KafkaBroker

    settings: dict[str, object] = {
        "listeners": "kafka://127.0.0.1:0",
        "log.dirs": str(tmp_path_factory.mktemp("kafkalite")),
        FLUSH: False,
        **_ini_settings(pytestconfig),
        **kafka_broker_settings,
    }
    with KafkaBroker(settings) as broker:
        pytestconfig.stash[_BROKER] = broker
        _in_force(pytestconfig).add(_durability(flush=broker.flushes_on_acks_all))
        yield broker
        del pytestconfig.stash[_BROKER]


@pytest.fixture
def kafka_topic_factory(kafka_broker: KafkaBroker, request: pytest.FixtureRequest) -> TopicFactory:
    """Return a function that creates topics named after the test: `kafka_topic_factory(3, retention_ms=1000)`.

    The topics are not deleted after the test, since clients that are still closing would see the deletion.
    """
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", request.node.name).strip("-.") or "topic"

    def make(partitions: int = 1, *, name: str | None = None, **settings: object) -> str:
        name = name or f"{stem[:TEST_NAME_SIZE_MAX]}-{secrets.token_hex(4)}"
        kafka_broker.create_topic(name, partitions, **settings)
        return name

    return make


@pytest.fixture
def kafka_topic(kafka_topic_factory: TopicFactory) -> str:
    """Return the name of a new topic with one partition, named after the test."""
    return kafka_topic_factory()


@pytest.fixture(scope="session")
def kafka_registry(kafka_broker: KafkaBroker) -> Iterator[RegistryServer]:
    """Return a running schema registry that stores schemas in `kafka_broker`. `kafka_registry.url` is its address.

    Faults of Produce and Fetch affect the registry, too, because it is a client of the broker.
    """
    from kafkalite.schema_registry.server import RegistryServer

    with RegistryServer(kafka_broker.bootstrap_servers, port=0) as server:
        yield server


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the option `kafkalite_settings` of pytest's configuration file."""
    parser.addini(INI_SETTINGS, "settings of kafka_broker, one key=value per line", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Import kafkalite's modules without assertion rewriting, and capture the log of brokers.

    pytest parses and rewrites all modules of a plugin's package, which is useless here. It would also be harmful: a
    broker imports some modules in its threads, and CPython 3.11 sometimes fails if two threads parse at once.
    """
    level = str(config.getoption("log_level") or config.getini("log_level") or "").lower()
    captured_log.capture(level if level in LOG_LEVELS else LOG_LEVEL)
    package = __name__.partition(".")[0]
    marked: set[str] = getattr(config.pluginmanager.rewrite_hook, "_must_rewrite", set())
    if package in marked:
        marked.remove(package)
        getattr(config.pluginmanager.rewrite_hook, "_marked_for_rewrite_cache", {}).clear()


def pytest_report_header(config: pytest.Config) -> str:
    """Return the line of pytest's header about the broker that the tests use."""
    from kafkalite.version import VERSION

    flush = str(_ini_settings(config).get(FLUSH, "false")).lower() == "true"
    overridden = any(hasattr(plugin, kafka_broker_settings.__name__) for plugin in _conftests(config))
    unless = ", unless kafka_broker_settings override it" if overridden else ""
    return f"kafkalite {VERSION}: kafka_broker {_durability(flush=flush)}{unless}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Show the broker's log of the setup."""
    yield
    _report_log(item, "setup")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Show the broker's log of the test."""
    yield
    _report_log(item, "call")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """End the faults of the test before its fixtures are torn down. Show the broker's log of the teardown."""
    broker = item.config.stash.get(_BROKER, None)
    if broker is not None and broker.running:
        broker.heal()
    yield
    _report_log(item, "teardown")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the broker's durability from a pytest-xdist worker to the controller."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[INI_SETTINGS] = sorted(_in_force(session.config))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """Receive the broker's durability from a pytest-xdist worker."""
    del error
    told = getattr(node, "workeroutput", {}).get(INI_SETTINGS, [])
    config: pytest.Config = node.config  # type: ignore[attr-defined]  # an xdist WorkerController
    _in_force(config).update(told)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report the durability of the brokers that the tests used."""
    for text in sorted(_in_force(config)):
        terminalreporter.write_line(f"kafkalite: kafka_broker {text}")


def _report_log(item: pytest.Item, when: str) -> None:
    text = captured_log.news()
    if text:
        item.add_report_section(when, LOG_SECTION, text)


def _ini_settings(config: pytest.Config) -> dict[str, object]:
    found: dict[str, object] = {}
    for line in config.getini(INI_SETTINGS):
        key, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"{INI_SETTINGS}: {line!r} is not key=value")
        found[key.strip()] = value.strip()
    return found


def _conftests(config: pytest.Config) -> Iterator[object]:
    """Yield the plugins of pytest other than this module."""
    return (plugin for plugin in config.pluginmanager.get_plugins() if getattr(plugin, "__name__", "") != __name__)


def _in_force(config: pytest.Config) -> set[str]:
    return config.stash.setdefault(_IN_FORCE, set())


def _durability(*, flush: bool) -> str:
    """Return the line about a broker's durability for the header and the summary.

    By default the broker acknowledges acks=all from the page cache, which survives a killed process but not a power
    failure. The setting `flush.on.acks.all=true` changes that.
    """
    value = "true" if flush else "false"
    return f"answers acks=all from the {'disk' if flush else 'page cache'} ({FLUSH}={value})"
