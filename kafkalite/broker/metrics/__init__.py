"""What a broker tells of itself over HTTP: numbers for Prometheus, and whether it lives and is ready.

server.py     a broker's page on the project's HTTP server
sources.py    who is asked at a scrape, in which order
requests.py   requests by API: counts, errors, latencies
errors.py     error codes in the answers of the APIs that Python serves
parts.py      what of a broker the sources look at
topics.py     traffic and offsets of topics and partitions
groups.py     consumer groups: offsets, lag
network.py    connections, sign-ins, threads
storage.py    disk, journal, group commit
slow.py       the log of slow requests
health.py     why a broker is not alive, or not ready

Imported where `metrics.listeners` or `request.slow.log.ms` is set, and nowhere else. Numbers are kept by the parts that
they are about; nothing here runs but while somebody asks. Names are those that dashboards for Kafka ask for (of JMX
exporter in lower case, of kafka_exporter), and `kafkalite_…` for what only this broker has.

1. The part that works counts: requests in the C structs of a worker's `RequestCounters` (by API and version, times in
   powers of two microseconds; requests of one kind that arrive together are one `Run`), bytes of a log in its
   `Traffic`, connections in their worker, flushes in the flusher's `Histogram`. A worker has counters only where
   metrics are served or slow requests are logged; otherwise no clock is read and nothing is imported.
2. A scrape runs on a thread of the HTTP server. It asks each source for families. A source reads counts, each of which
   is whole under the GIL, sums workers and topics, and takes leaf locks alone. A source that fails is left out.
3. Text is built a thousand lines at a time, and the GIL is released between pieces, so that no worker waits for a
   scrape.
4. A part that this package does not know registers its own source in `BrokerServices.metric_sources`.
"""
