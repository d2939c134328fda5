"""Rows of the broker's settings table about what it tells of itself."""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import INT, LIST, LONG, STRING, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class MetricRows:
    """Metrics and health."""

    __slots__ = ()

    metrics_listeners: tuple[str, ...] = setting(
        LIST,
        (),
        "Where `/metrics`, `/health/live` and `/health/ready` are served, `http://HOST:PORT` or `https://HOST:PORT`,"
        " port 9644 unless one is given. Needs waitress (the extra `metrics`). Unset: nowhere.",
    )
    metrics_users: str = setting(
        STRING,
        "",
        "A file of those who may ask, by token, certificate or password (`kafkalite web add-user`). An address that"
        " other machines reach needs it. Unset: everybody on this machine.",
    )
    metrics_tls_config: str = setting(
        STRING,
        "",
        "A file with the certificate of `https` addresses, by Kafka's settings (`ssl.keystore.location`, …).",
    )
    metrics_allowed_hosts: tuple[str, ...] = setting(
        LIST, (), "Names by which an address without `metrics.users` may be asked, beside this machine's; `*` is any."
    )
    request_slow_log_ms: int = setting(
        LONG,
        0,
        "A request that takes longer is logged, with its API, client, size and times; what a fetch waits for data, or a"
        " join for others, does not count. 0: none is.",
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
