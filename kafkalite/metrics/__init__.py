"""What a broker tells of itself over HTTP: numbers for Prometheus, and whether it lives and is ready.

page.py       the paths `/metrics`, `/health/live`, `/health/ready`, whosever they are
server.py     a broker's page on the project's HTTP server
command.py    the page of a command that goes on until it is ended
sources.py    who is asked at a scrape, in which order
text.py       families to text, in both formats
requests.py   requests by API: counts, errors, latencies
errors.py     error codes in the answers of the APIs that Python serves
parts.py      what of a broker the sources look at
topics.py     traffic and offsets of topics and partitions
groups.py     consumer groups: offsets, lag
network.py    connections, sign-ins, threads
storage.py    disk, journal, group commit
process.py    what the system knows of the process
latency.py    quantiles of the last minutes from histograms
reading.py    the other way round: what was told, and rates of two reads
slow.py       the log of slow requests
health.py     why a broker is not alive, or not ready

Imported where `metrics.listeners` or `request.slow.log.ms` is set, and nowhere else. Numbers are kept by the parts that
they are about; nothing here runs but while somebody asks. Names are those that dashboards for Kafka ask for (of JMX
exporter in lower case, of kafka_exporter), and `kafkalite_…` for what only this broker has.
"""
