"""Encode and decode Kafka's requests, responses and record batches. No I/O, no clock.

protocol            bytes ↔ messages of every API
record              record batches for Python: columns in and out, compression
acl_messages        ACLs ↔ the fields of their requests and responses
consumer_protocol   the subscriptions and assignments inside JoinGroup and SyncGroup
"""
