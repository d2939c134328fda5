"""Encode and decode Kafka's requests, responses and record batches.

    protocol            requests and responses of the APIs
    record              record batches as columns, and compression
    acl_messages        ACLs as fields of the APIs for ACLs
    consumer_protocol   the subscriptions and assignments inside JoinGroup and SyncGroup

Pure: no I/O, no clock.
"""
