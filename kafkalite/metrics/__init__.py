"""Metrics over HTTP, for a broker and for commands: the pages, their text format, and a parser.

page.py       the paths `/metrics`, `/health/live`, `/health/ready`
command.py    the page of a long-running command
text.py       families to text, in both formats
process.py    metrics of the process
latency.py    quantiles of the last minutes from histograms
reading.py    the reverse of text.py, and rates between two readings

`kafkalite.broker.metrics` has the broker's own metrics.
"""
