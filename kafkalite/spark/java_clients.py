"""List the configuration names of Kafka's Java clients.

Spark's own connector passes each option `kafka.NAME` to a Java client. The list distinguishes such options from unknown
ones. The names are those of ConsumerConfig, ProducerConfig and AdminClientConfig in Kafka 3.9 to 4.1. TLS settings are
missing, because `kafkalite.client.security` checks them.

Thread rule: constants.
"""

from __future__ import annotations

from typing import Final

JAVA_NUMBERS: Final = frozenset(
    f"kafka.{name}"
    for name in (
        "auto.commit.interval.ms", "batch.size", "buffer.memory", "compression.gzip.level", "compression.lz4.level",
        "compression.zstd.level", "connections.max.idle.ms", "default.api.timeout.ms", "delivery.timeout.ms",
        "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "heartbeat.interval.ms", "linger.ms",
        "max.block.ms", "max.in.flight.requests.per.connection", "max.partition.fetch.bytes", "max.poll.interval.ms",
        "max.poll.records", "max.request.size", "metadata.max.age.ms", "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms", "metrics.num.samples", "metrics.sample.window.ms",
        "partitioner.availability.timeout.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms",
        "reconnect.backoff.ms", "request.timeout.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms",
        "sasl.kerberos.min.time.before.relogin", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds",
        "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms", "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "send.buffer.bytes", "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms", "transaction.timeout.ms",
    )
)  # fmt: skip
"""Options with integers."""

JAVA_FLAGS: Final = frozenset(
    f"kafka.{name}"
    for name in (
        "allow.auto.create.topics", "auto.include.jmx.reporter", "check.crcs", "enable.auto.commit",
        "enable.idempotence", "enable.metrics.push", "exclude.internal.topics",
        "partitioner.adaptive.partitioning.enable", "partitioner.ignore.keys", "sasl.oauthbearer.header.urlencode",
        "transaction.two.phase.commit.enable",
    )
)  # fmt: skip
"""Options with true or false."""

JAVA_TEXTS: Final = frozenset(
    f"kafka.{name}"
    for name in (
        "acks", "auto.offset.reset", "bootstrap.servers", "client.dns.lookup", "client.id", "client.rack",
        "compression.type", "config.providers", "group.id", "group.instance.id", "group.protocol",
        "group.remote.assignor", "interceptor.classes", "isolation.level", "key.deserializer", "key.serializer",
        "metadata.recovery.strategy", "metric.reporters", "metrics.recording.level", "partition.assignment.strategy",
        "partitioner.class", "sasl.client.callback.handler.class", "sasl.jaas.config", "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.service.name", "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.callback.handler.class", "sasl.login.class", "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter", "sasl.mechanism", "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.scope",
        "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url", "security.protocol", "security.providers",
        "share.acknowledgement.mode", "transactional.id", "value.deserializer", "value.serializer",
    )
)  # fmt: skip
"""All other options."""

JAVA_NAMES: Final = JAVA_NUMBERS | JAVA_FLAGS | JAVA_TEXTS

SECURITY_NAMES: Final = frozenset(
    {
        "kafka.security.protocol", "kafka.sasl.mechanism", "kafka.sasl.jaas.config", "kafka.sasl.username",
        "kafka.sasl.password", "kafka.sasl.client.callback.handler.class", "kafka.sasl.login.class",
        "kafka.sasl.oauthbearer.token.endpoint.url", "kafka.sasl.oauthbearer.scope",
        "kafka.sasl.oauthbearer.client.credentials.client.id",
        "kafka.sasl.oauthbearer.client.credentials.client.secret",
    }
)  # fmt: skip
"""SASL and protocol settings that `kafkalite.client.security` uses or refuses."""
