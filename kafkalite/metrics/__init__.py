"""Metrics over HTTP, for a broker and for commands: the page, its text, and what is read out of such pages.

page.py       the paths `/metrics`, `/health/live`, `/health/ready`, whosever they are
command.py    the page of a command that goes on until it is ended
text.py       families to text, in both formats
process.py    what the system knows of the process
latency.py    quantiles of the last minutes from histograms
reading.py    the other way round: what was told, and rates of two reads

What a broker tells of itself is in `kafkalite.broker.metrics`.
"""
