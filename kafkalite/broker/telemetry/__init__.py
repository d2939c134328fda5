"""Collect the metrics that clients push to the broker (KIP-714), if the broker serves its own metrics.

otlp       decodes a client's push: OpenTelemetry's MetricsData v1, within limits
clients    the pushing clients, their subscriptions and intervals, and the metrics reported about them
"""
