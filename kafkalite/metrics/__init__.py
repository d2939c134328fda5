"""Serve metrics and health checks over HTTP, for a broker and for long-running commands.

    page.py       the paths `/metrics`, `/health/live` and `/health/ready`
    command.py    the HTTP server of a long-running command
    text.py       the text formats of Prometheus and OpenMetrics
    process.py    metrics of the process
    latency.py    latency quantiles of the last minutes
    reading.py    parses metrics, and computes rates for `kafkalite top`

`kafkalite.broker.metrics` provides the broker's own metrics.
"""
