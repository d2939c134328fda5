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

The package is imported only if `metrics.listeners` or `request.slow.log.ms` is set. Metrics have the names that the JMX
exporter (in lower case) and kafka_exporter use. Metrics that only this broker has begin with `kafkalite_`.

Workers, logs and the flusher count their own work. The sources sum these counts at each scrape.

Thread rule: a scrape runs on a thread of the HTTP server. It takes leaf locks, and the lock of one group at a time.
"""
