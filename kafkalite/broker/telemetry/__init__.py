"""Clients' own metrics (KIP-714), where the broker's metrics are served.

otlp       what a client pushed: OpenTelemetry's MetricsData v1, read within bounds
clients    which clients there are, who pushes what and how often, and what is told of it
"""
