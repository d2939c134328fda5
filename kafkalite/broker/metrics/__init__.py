"""Serve a broker's metrics for Prometheus, and its liveness and readiness, over HTTP.

server.py     a broker's pages on the project's HTTP server
sources.py    the sources of metrics, in their order
requests.py   requests by API: counts, errors, latencies
errors.py     error codes in the responses of the APIs that Python serves
parts.py      references to the parts of a broker that the sources read
topics.py     traffic and offsets of topics and partitions
groups.py     consumer groups: offsets, lag
network.py    connections, authentication, threads
limits.py     quotas, connection limits, memory, denials
storage.py    disk, journal, group commit
slow.py       the log of slow requests
health.py     why a broker is not alive, or not ready

The package is imported only if `metrics.listeners` or `request.slow.log.ms` is set. Each part of the broker counts by
itself; nothing here runs except during a scrape. Names of metrics are those in dashboards for Kafka (the JMX exporter's
in lower case, kafka_exporter's), and `kafkalite_…` for metrics that only this broker has.

1. The part that does the work counts. Requests: in the C structs of a worker's `RequestCounters` (by API and version,
   times in powers of two microseconds; requests of one kind that arrive together are one `Run`). Bytes of a log: in its
   `Traffic`. Connections: in their worker. Flushes: in the flusher's `Histogram`. A worker has counters only if metrics
   are served or slow requests are logged; otherwise no clock is read and nothing is imported.
2. A scrape runs on a thread of the HTTP server and calls each source for its families. A source reads counts, each of
   which is consistent under the GIL, sums workers and topics, and takes only leaf locks. A source that fails is
   omitted.
3. Text is built a thousand lines at a time, and the GIL is released between pieces, so that no worker waits for a
   scrape.
4. A part that this package does not know registers its own source in `BrokerServices.metric_sources`.
"""
