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
"""
