"""Accept or reject Kafka's broker settings that have no effect here.

So a server.properties of Kafka can usually be used unchanged. Most such settings are accepted with a log message,
because clients cannot notice that they have no effect. Settings that promise protection or a policy are rejected,
because the broker does not provide what they promise. Some settings that Kafka has removed are rejected, too, with the
name of the setting that replaces them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafkalite.errors import ConfigError
from kafkalite.settings.listener_keys import RELOADABLE, listener_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.settings.rows import Setting

_REFUSED: Final = {
    "create.topic.policy.class.name": "Java policy classes cannot be loaded, so the policy would not be enforced",
    "alter.config.policy.class.name": "Java policy classes cannot be loaded, so the policy would not be enforced",
    "principal.builder.class": "Java classes cannot be loaded; ssl.principal.mapping.rules maps names to principals",
    "sasl.server.callback.handler.class": "Java classes cannot be loaded, so they could not authenticate anyone",
    "client.quota.callback.class": "Java classes cannot be loaded, so their quotas would not be enforced",
    "ssl.engine.factory.class": "Java classes cannot be loaded, so its certificates would not be used",
    "advertised.host.name": "was removed from Kafka; use advertised.listeners",
    "advertised.port": "was removed from Kafka; use advertised.listeners",
    "host.name": "was removed from Kafka; use listeners",
    "port": "was removed from Kafka; use listeners",
}
"""Key → why it cannot be ignored."""

_CALLBACK_KEY: Final = "sasl.server.callback.handler.class"
_CALLBACK_KNOWN: Final = ".OAuthBearerValidatorCallbackHandler"

_PREFIXES: Final[dict[str, str]] = {
    "ssl.provider": "TLS uses OpenSSL",
    "ssl.secure.random.implementation": "TLS uses OpenSSL",
    "ssl.keymanager.algorithm": "TLS uses OpenSSL",
    "ssl.trustmanager.algorithm": "TLS uses OpenSSL",
    "sasl.jaas.config": "set it per mechanism: listener.name.<listener>.<mechanism>.sasl.jaas.config",
    "sasl.kerberos.": "GSSAPI is not supported",
    "sasl.login.": "a broker in a cluster logs in once per session and retries by itself",
    "security.providers": "TLS uses OpenSSL",
    "listener.name.": "only TLS, SASL and connection limits can be set per listener",
    "delegation.token.": "delegation tokens are not supported",
    "controller.": "broker and controller are one process",
    "broker.id.generation.enable": "node.id is the configured value or 1",
    "reserved.broker.max.id": "node.id is the configured value or 1",
    "metadata.": "metadata is stored in a separate journal",
    "inter.broker.": "there is one broker",
    "early.start.listeners": "ACLs are loaded before any listener is bound",
    "replica.": "of the replica settings, only those for fetching are supported",
    "follower.": "there is one broker",
    "leader.": "there is one broker",
    "auto.leader.rebalance.enable": "there is one broker",
    "controlled.shutdown.": "there is one broker",
    "num.replica.alter.log.dirs.threads": "there is one broker",
    "unclean.leader.election.interval.ms": "there is one broker",
    "eligible.leader.replicas.": "there is one broker",
    "remote.": "this release has no tiered storage",
    "log.remote.": "this release has no tiered storage",
    "rlmm.": "this release has no tiered storage",
    "rsm.": "this release has no tiered storage",
    "quota.producer.default": "removed from Kafka; set quotas on the running broker",
    "quota.consumer.default": "removed from Kafka; set quotas on the running broker",
    "alter.log.dirs.replication.quota.": "there is one broker",
    "metric": "metrics do not use Java",
    "kafka.metrics.": "metrics do not use Java",
    "auto.include.jmx.reporter": "metrics do not use Java",
    "share.": "share groups come with a later release",
    "group.share.": "share groups come with a later release",
    "group.streams.": "streams groups come with a later release",
    "group.consumer.": "subscription patterns are evaluated when topics change, and assignments are made at once",
    "group.coordinator.": "of the coordinator settings, only the listed group.* and offsets.* settings are supported",
    "group.version": "the consumer group protocol (KIP-848) is always on",
    "errors.deadletterqueue.": "share groups come with a later release",
    "offsets.": "loading and compression of the offsets topic cannot be configured",
    "transaction.": "timeouts are exact, and loading needs no buffer",
    "log.dir.failure.timeout.ms": "there is one data directory",
    "log.initial.task.delay.ms": "periodic work starts together with the broker",
    "log.message.downconversion.enable": "removed in Kafka 4",
    "log.message.format.version": "removed in Kafka 4",
    "log.message.timestamp.difference.max.ms": "removed in Kafka 4",
    "zookeeper.": "only zookeeper.connect and 0.7's zk.* are supported, for the 0.7 listener",
    "password.encoder.": "no passwords are stored",
    "request.timeout.ms": "there is one broker",
    "fetch.purgatory.": "waiting requests are stored differently",
    "producer.purgatory.": "waiting requests are stored differently",
    "delete.records.purgatory.": "waiting requests are stored differently",
    "max.request.partition.size.limit": "request.max.partitions bounds every request",
    "unstable.": "only stable API versions are served",
    "node.epoch": "broker and controller are one process",
}
"""Key, or beginning of keys, → why it means nothing here."""

_DYNAMIC: Final = re.compile(
    r"""
    metric\.reporters | replica\.alter\.log\.dirs\.io\.max\.bytes\.per\.second
    | remote\.(fetch\.max\.wait\.ms | list\.offsets\.request\.timeout\.ms)
    | remote\.log\.(index\.file\.cache\.total\.size\.bytes | reader\.threads)
    | remote\.log\.manager\.(copy | fetch)\.max\.bytes\.per\.second
    | remote\.log\.manager\.(copier | expiration | follower)\.thread\.pool\.size
    | log\.remote\.copy\.lag\.(bytes | ms) | follower\.fetch\.last\.tiered\.offset\.enable
    | errors\.deadletterqueue\.(auto\.create\.topics\.enable | topic\.name\.prefix)
    | group\.(consumer | share | streams)\.(assignment\.interval\.ms | assignor\.offload\.enable)
    | (group | share)\.coordinator\.cached\.buffer\.max\.bytes
    | sasl\.jaas\.config | sasl\.kerberos\.(kinit\.cmd | service\.name | principal\.to\.local\.rules)
    | sasl\.kerberos\.(min\.time\.before\.relogin | ticket\.renew\.(jitter | window\.factor))
    | sasl\.login\.refresh\.(buffer\.seconds | min\.period\.seconds | window\.(factor | jitter))
    | ssl\.(provider | secure\.random\.implementation | (key | trust)manager\.algorithm)
    """,
    re.VERBOSE,
)
"""The keys that Kafka can change while it runs (ALL_DYNAMIC_CONFIGS of its class DynamicBrokerConfig, release 4.4)."""
FOREIGN_LISTS: Final = frozenset({"metric.reporters", "sasl.kerberos.principal.to.local.rules"})
"""The lists among these keys, to which a change may append."""
KEPT_SIZE_MAX: Final = 32_767
"""Maximum number of characters in the name and value of a setting that is stored without effect. Kafka limits the value
alone."""
KEPT_COUNT_MAX: Final = 1000
KEPT_TOTAL_MAX: Final = 262_144
"""Maximum number of characters of all such settings together: each change of the broker's settings writes all of them
into the journal."""

_PATTERN: Final = re.compile("|".join(re.escape(prefix) for prefix in sorted(_PREFIXES, key=len, reverse=True)))


def refuse_foreign(key: str, text: str) -> None:
    """Raise ConfigError for a key that must not be ignored, unless its value is empty."""
    if key in _REFUSED and text.strip():
        raise ConfigError(key, _REFUSED[key])
    # Kafka's handler for bearer tokens does what this broker does; another one would make its own decisions.
    if key.endswith(f".{_CALLBACK_KEY}") and text.strip() and not text.strip().endswith(_CALLBACK_KNOWN):
        raise ConfigError(key, _REFUSED[_CALLBACK_KEY])


def known_dynamic(texts: Mapping[str, str], table: Mapping[str, Setting]) -> dict[str, str]:
    """Return the dynamic settings that have an effect. Others are stored without effect, as in Kafka.

    ConfigError for a setting that cannot be changed while the broker runs, and if too much would be stored.
    """
    for key, text in texts.items():
        of_listener = listener_key(key)
        if key in table or of_listener is not None:
            if not (table[key].dynamic if of_listener is None else of_listener[1] in RELOADABLE):
                raise ConfigError(key, "cannot be changed while the broker runs")
            continue
        refuse_foreign(key, text)
        note = foreign_note(key)
        if note is not None and not _DYNAMIC.fullmatch(key):
            raise ConfigError(key, "cannot be changed while the broker runs")
        if len(key) + len(text) > KEPT_SIZE_MAX:
            raise ConfigError(key[:100], f"is unknown; its name and value can have at most {KEPT_SIZE_MAX} characters")
    known = {key: text for key, text in texts.items() if key in table or listener_key(key) is not None}
    if len(texts) - len(known) > KEPT_COUNT_MAX:
        raise ConfigError("", f"at most {KEPT_COUNT_MAX} unknown settings are stored")
    return known


def check_kept(texts: Mapping[str, str], before: Mapping[str, str], table: Mapping[str, Setting]) -> None:
    """Raise ConfigError if a change would store too much text of settings without effect (KEPT_TOTAL_MAX).

    `before` are the settings before the change, `texts` those after it. If an earlier version stored more, a change is
    valid as long as the size does not grow.
    """
    size = kept_size(texts, table)
    if size > KEPT_TOTAL_MAX and size > kept_size(before, table):
        raise ConfigError("", f"unknown settings can have at most {KEPT_TOTAL_MAX} characters in all")


def kept_size(texts: Mapping[str, str], table: Mapping[str, Setting]) -> int:
    """Return the number of characters in the keys and values of settings that are stored without effect."""
    return sum(len(key) + len(text) for key, text in texts.items() if key not in table and listener_key(key) is None)


def foreign_note(key: str) -> str | None:
    """Return the log message for a setting of Kafka that has no effect here; None for an unknown key."""
    if key in _REFUSED:
        return f"{key} is empty and ignored"
    match = _PATTERN.match(key)
    if match is None or (not match[0].endswith((".", "metric")) and match[0] != key):
        return None
    return f"{key} is accepted and ignored: {_PREFIXES[match[0]]}"


def foreign_rows() -> list[tuple[str, str]]:
    """Return the ignored settings for the documentation: (key or `prefix*`, reason)."""
    return [(f"{key}*" if key.endswith((".", "metric")) else key, why) for key, why in sorted(_PREFIXES.items())]


def refused_rows() -> list[tuple[str, str]]:
    """Return the rejected settings for the documentation: (key, reason)."""
    return sorted(_REFUSED.items())
