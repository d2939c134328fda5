"""Define the broker's settings for metrics, health checks and the log of slow requests."""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import INT, LIST, LONG, STRING, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class MetricRows:
    """Settings of metrics, health checks and the log of slow requests."""

    __slots__ = ()

    metrics_listeners: tuple[str, ...] = setting(
        LIST,
        (),
        "Address that serves `/metrics`, `/health/live` and `/health/ready`: `http://HOST:PORT` or "
        "`https://HOST:PORT`; the default port is 9644. Unset: not "
        "served.",
    )
    metrics_users: str = setting(
        STRING,
        "",
        "File with the users who may read the metrics by token, certificate or password (`kafkalite web "
        "add-user`). Required for an address that other machines can reach. Unset: any user of this machine may "
        "read them.",
    )
    metrics_tls_config: str = setting(
        STRING,
        "",
        ".properties file with the TLS settings of `https` addresses, as in Kafka (`ssl.keystore.location`, …).",
    )
    metrics_allowed_hosts: tuple[str, ...] = setting(
        LIST, (), "Further host names that clients of an address without `metrics.users` may use; `*`: any."
    )
    request_slow_log_ms: int = setting(
        LONG,
        0,
        "Log a request that takes longer than this, with its API, client, size and times. Time in which a fetch "
        "waits for data or a join for other members does not count. 0: log none.",
        unit="ms",
        low=0,
    )
    telemetry_max_bytes: int = setting(
        INT,
        1_048_576,
        "Maximum compressed size of the client metrics in one push (KIP-714). Clients push them if"
        " `metrics.listeners` is set and `kafka-client-metrics` has a subscription.",
        unit="bytes",
        low=1,
    )
    metrics_partitions_max: int = setting(
        INT,
        10_000,
        "With more partitions than this, `/metrics` reports totals per topic only.",
        low=0,
    )
