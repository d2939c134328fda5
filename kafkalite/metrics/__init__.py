"""Serve metrics and health checks over HTTP, for a broker and for long-running commands.

page.py       the paths `/metrics`, `/health/live`, `/health/ready`
command.py    the server of a long-running command
text.py       renders metric families in Prometheus's and OpenMetrics's format
process.py    metrics of the process
latency.py    quantiles of the last minutes, computed from histograms
reading.py    parses the text format again, and computes rates between two readings

`kafkalite.broker.metrics` has the broker's own metrics.
"""
