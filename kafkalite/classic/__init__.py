"""Kafka 0.7: its message sets and its client API."""
