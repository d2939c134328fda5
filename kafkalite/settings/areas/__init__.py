"""Rows of the broker's settings table by area. Each class is a part of BrokerConfig (see `kafkalite.settings.broker`).

server        who the broker is, what it binds, where its data lives, threads
connections   bounds of connections, requests, fetch sessions
security      connections that have not shown yet who they are; what they may do
tls           TLS, for all listeners or for one
sasl          SASL, for all listeners, one of them, or a mechanism
quotas        the time windows over which clients' usage is measured
logs          topics, durability, defaults of topics' settings
cleaner       compaction
groups        consumer groups, their offsets
transactions  idempotent producers, transactions
classic       Kafka 0.7's, for classic topics and its listener
"""
