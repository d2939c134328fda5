"""Serve a broker's metrics for Prometheus, and its liveness and readiness, over HTTP.

    server      a broker's pages on the project's HTTP server
    sources     the sources of metrics, in their order
    requests    requests by API: counts, errors, latencies
    errors      error codes in the responses of the APIs that Python serves
    parts       references to the parts of a broker that the sources read
    topics      traffic and offsets of topics and partitions
    groups      consumer groups: offsets, lag
    network     connections, authentication, threads
    limits      quotas, connection limits, memory, denials
    storage     disk, journal, group commit
    slow        the log of slow requests
    health      why a broker is not alive, or not ready

The package is imported only if `metrics.listeners` or `request.slow.log.ms` is set. Names of metrics are those in
dashboards for Kafka: the JMX exporter's in lower case, and kafka_exporter's. The names of metrics that only this broker
has begin with `kafkalite_`.

The part that does the work counts it, without this package:

    each worker    requests by API and version, and their times, in its `RequestCounters`; its connections
    each log       bytes, in its `Traffic`
    the flusher    flushes, in its `Histogram`

A worker has RequestCounters only if metrics are served or slow requests are logged. Otherwise it does not read the
clock for them.

A scrape runs on a thread of the HTTP server and calls each source for its metric families. A source reads counts, each
of which is consistent under the GIL, and sums them over workers and topics. It takes only leaf locks. A source that
fails is left out. The text is built a thousand lines at a time, and the GIL is released in between, so that no worker
waits for a scrape.

A part of the broker that this package does not know registers its own source in `BrokerServices.metric_sources`.
"""
