"""Run a mirror inside a broker, which becomes a replica of a live cluster (section 4 of Kafka's paper, NetDB '11).

    live cluster ─▶ Mirror, on its own thread ─▶ the broker that runs the mirror, through its listener, like any client

Like `kafkalite mirror`, this mirror copies exactly once and continues at its last position. While the source is
unreachable, the broker serves the records that are already copied.

A broker without a mirror does not import this module.

Thread rule: the mirror has one thread, which `start` starts and `stop` ends.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.client.errors import ClientError, LogTruncated
from kafkalite.client.security import OWN, Security
from kafkalite.errors import ConfigError, KafkaError, ProducerFenced
from kafkalite.mirror.status import MirrorStatus
from kafkalite.settings.properties import read_properties
from kafkalite.settings.rows import near_miss

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kafkalite.base.metric_families import Family
    from kafkalite.client import Client
    from kafkalite.mirror.mirror import Mirror
    from kafkalite.mirror.sync import SyncOptions

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "kafkalite-mirror"
NAME: Final = "embedded"
TARGET: Final = "target."
LISTS: Final = ("topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude")
SWITCHES: Final = (
    "sync.topic.configs.enabled",
    "sync.group.offsets.enabled",
    "sync.acls.enabled",
    "sync.quotas.enabled",
)
INTERVALS: Final = {"sync.group.offsets.interval.seconds": 60.0, "refresh.topics.interval.seconds": 30.0}
PREFIX: Final = "mirror.topic.prefix"
DATA_LOSS: Final = "on.data.loss"
DATA_LOSS_VALUES: Final = ("stop", "rewind", "restart")
KEYS: Final = ("name", "bootstrap.servers", PREFIX, DATA_LOSS, *LISTS, *SWITCHES, *INTERVALS)
RETRY_S_MIN: Final = 0.2
RETRY_S_MAX: Final = 15.0
TIMEOUT_S: Final = 30.0
"""Timeout of one request."""
STOP_S: Final = 5.0
"""Time for a mirror's last transaction; after that its waits are interrupted."""
BROKEN_STOP_S: Final = 0.5
"""Time for the last transaction of a mirror that cannot read its source."""
INTERRUPTED_S: Final = 5.0
"""Time for a mirror to end after the interrupt."""
CONNECT_TIMEOUT_S: Final = 4.0


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedOptions:
    """The source and the topics of a mirror in a broker.

    The settings are in a properties file, together with the source client's settings. Their names are those of
    MirrorMaker 2, if it has such a setting. Settings that begin with `target.` configure the client that writes to this
    broker, for listeners that require authentication.
    """

    servers: str
    name: str
    values: Mapping[str, str]
    """The given settings of KEYS."""
    source: Security | None
    target: Security | None

    @classmethod
    def load(cls, servers: str | None, topics: str | None, file: Path | None) -> EmbeddedOptions:
        """Load from a file and the flags of `kafkalite start`, which take precedence.

        Raises ConfigError and StartupError.
        """
        texts = {} if file is None else read_properties(file)
        values = {key: text.strip() for key, text in texts.items() if key in KEYS}
        if servers is not None:
            values["bootstrap.servers"] = servers
        if topics is not None:
            values["topics"] = re.sub(r",", r"[,]", topics)  # a flag is one expression
        for key in texts:
            if key not in KEYS and not key.removeprefix(TARGET).startswith(OWN):
                raise ConfigError(key, f"unknown setting of a mirror{near_miss(key, KEYS)}")
        check(values)
        own = {key.removeprefix(TARGET): text for key, text in texts.items() if key.startswith(TARGET)}
        return cls(
            servers=values["bootstrap.servers"],
            name=values.get("name", NAME),
            values=values,
            source=Security(texts) if any(key.startswith(OWN) for key in texts) else None,
            target=Security(own) if own else None,
        )

    def pattern(self, key: str, default: str | None = None) -> str | None:
        """Join the regular expressions of a setting into one expression.

        If the setting is missing, return the default, which may be None.
        """
        text = self.values.get(key)
        return default if text is None else "|".join(parts_of(text)) or None

    def on(self, key: str) -> bool:
        """Return the value of a boolean setting."""
        return self.values.get(key, "false").lower() == "true"

    def seconds(self, key: str) -> float:
        """Return the value of a setting that is an interval, in seconds."""
        return float(self.values.get(key, INTERVALS[key]))


def parts_of(text: str) -> list[str]:
    """Split a text at commas, except commas inside brackets, as in [,]."""
    return [part.strip() for part in re.split(r",(?![^\[\]]*\])", text) if part.strip()]


def check(values: Mapping[str, str]) -> None:
    """Raise ConfigError for the first invalid setting."""
    from kafkalite.client.cluster import parse_bootstrap
    from kafkalite.model import topic_name_error

    if not values.get("bootstrap.servers"):
        raise ConfigError("bootstrap.servers", "a mirror needs a source; set --mirror-from HOST:PORT")
    try:
        parse_bootstrap(values["bootstrap.servers"])
    except ValueError as error:
        raise ConfigError("bootstrap.servers", str(error)) from error
    name = values.get("name", NAME)
    wrong = topic_name_error(f"kafkalite.mirror-offsets.{name}") if name else "it is empty"
    if wrong is not None:
        raise ConfigError("name", f"{name!r} is not a valid mirror name: {wrong}")
    if (prefix := values.get(PREFIX)) and (wrong := topic_name_error(prefix)) is not None:
        raise ConfigError(PREFIX, f"{prefix[:64]!r} is not a valid topic prefix: {wrong}")
    if values.get(DATA_LOSS, "stop") not in DATA_LOSS_VALUES:
        raise ConfigError(DATA_LOSS, f"must be one of {', '.join(DATA_LOSS_VALUES)}, not {values[DATA_LOSS][:64]!r}")
    for key in LISTS:
        for part in parts_of(values.get(key, "")):
            try:
                re.compile(part)
            except re.error as error:
                raise ConfigError(key, f"{part!r} is not a regular expression: {error}") from error
    for key in SWITCHES:
        if values.get(key, "false").lower() not in {"true", "false"}:
            raise ConfigError(key, f"must be true or false, not {values[key][:64]!r}")
    for key in INTERVALS:
        text = values.get(key, "1")
        if not re.fullmatch(r"\d{1,6}(\.\d+)?", text) or not float(text):
            raise ConfigError(key, f"must be a number of seconds above 0, not {text[:64]!r}")


class EmbeddedMirror:
    """A mirror on its own thread; see the module.

    It ends if the broker stops, if another mirror with the same name starts, if the source has lost records
    (on.data.loss=stop), or on a ValueError such as MirrorLoop. After any other failure it restarts, with increasing
    delays.
    """

    def __init__(self, options: EmbeddedOptions) -> None:
        self._options = options
        self.status = MirrorStatus(options.name, options.servers)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._clients: list[Client] = []
        self._target = ""
        self._thread = threading.Thread(target=self._run, name="kafkalite-mirror", daemon=True)

    def start(self, bootstrap_servers: str) -> None:
        """Start copying to the broker with these addresses."""
        self._target = bootstrap_servers
        self._thread.start()

    def stop(self) -> None:
        """Stop the mirror. It first commits the open transaction if that takes at most a few seconds. Idempotent."""
        self._stop.set()
        if self._thread.ident is None:
            return
        self._thread.join(STOP_S if not self.status.error else BROKEN_STOP_S)
        if self._thread.is_alive():
            with self._lock:
                for client in self._clients:
                    client.interrupt()
            self._thread.join(INTERRUPTED_S)
        if self._thread.is_alive():
            logger.warning("mirror %s is still waiting for %s", self._options.name, self._options.servers)

    def families(self) -> Iterator[Family]:
        """Yield the mirror's metrics."""
        return self.status.families()

    def notes(self) -> list[str]:
        """Return the mirror's notes for the broker's health page."""
        return self.status.not_ready() + self.status.left_behind()

    # --- its thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s = RETRY_S_MIN
        while not self._stop.is_set():
            began = time.monotonic()
            if self._went_well():
                return
            pause_s = RETRY_S_MIN if time.monotonic() - began > RETRY_S_MAX else min(2 * pause_s, RETRY_S_MAX)
            self._stop.wait(pause_s)

    def _went_well(self) -> bool:
        """Run one mirror and log its error. Return False if the mirror should be restarted."""
        try:
            self._mirror_once()
        except ProducerFenced as error:
            self._end(f"another mirror with the same name has started ({error})")
        except (ValueError, LogTruncated) as error:
            self._end(str(error))
        except (KafkaError, ClientError, OSError) as error:
            self._failed(error)
            return False
        except Exception as error:
            logger.exception("mirror %s failed with an unexpected error", self._options.name)
            self._failed(error)
            return False
        return True

    def _end(self, why: str) -> None:
        self.status.lost(None)
        self.status.ended = why
        logger.error("mirror %s of %s has stopped: %s", self._options.name, self._options.servers, why)

    def _failed(self, error: Exception) -> None:
        if self._stop.is_set():
            self.status.lost(None)
            return
        if str(error) != self.status.last_error:
            text = "mirror %s of %s restarts: %s"
            logger.warning(text, self._options.name, self._options.servers, error)
        self.status.lost(error)

    def _mirror_once(self) -> None:
        """Run one mirror until it is stopped or fails."""
        options = self._options
        try:
            source = self._client(options.servers, options.source)
            target = self._client(self._target, options.target)
            mirror = self._make(source, target)
            try:
                self.status.follows(mirror)
                logger.info("mirror %s copies from %s", options.name, options.servers)
                mirror.run(self._stop)
                self.status.lost(None)
            finally:
                mirror.close()
        finally:
            with self._lock:
                clients, self._clients = self._clients, []
            for client in clients:
                client.close()

    def _client(self, servers: str, security: Security | None) -> Client:
        from kafkalite.client import Client

        client = Client(
            servers,
            client_id=CLIENT_ID,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            request_timeout_s=TIMEOUT_S,
            security=security,
        )
        with self._lock:
            self._clients.append(client)
        return client

    def _make(self, source: Client, target: Client) -> Mirror:
        from kafkalite.mirror.mirror import Mirror
        from kafkalite.mirror.topics import CONFIG_EXCLUDE, TopicFilter

        options = self._options
        left_out = options.values.get("config.properties.exclude")
        return Mirror(
            source,
            target,
            name=options.name,
            topics=TopicFilter(options.pattern("topics") or ".*", options.pattern("topics.exclude")),
            prefix=options.values.get(PREFIX, ""),
            on_data_loss=options.values.get(DATA_LOSS, "stop"),
            refresh_s=options.seconds("refresh.topics.interval.seconds"),
            sync=self._sync(),
            config_exclude=CONFIG_EXCLUDE if left_out is None else parts_of(left_out),
            on_note=lambda text: logger.warning("mirror %s: %s", options.name, text),
        )

    def _sync(self) -> SyncOptions:
        from kafkalite.mirror.groups import EXCLUDE, GroupFilter
        from kafkalite.mirror.sync import SyncOptions

        options = self._options
        return SyncOptions(
            topic_configs=options.on("sync.topic.configs.enabled"),
            group_offsets=options.on("sync.group.offsets.enabled"),
            acls=options.on("sync.acls.enabled"),
            quotas=options.on("sync.quotas.enabled"),
            groups=GroupFilter(options.pattern("groups") or ".*", options.pattern("groups.exclude", EXCLUDE) or "(?!)"),
            interval_s=options.seconds("sync.group.offsets.interval.seconds"),
        )
