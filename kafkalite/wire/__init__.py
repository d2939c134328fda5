"""What stands in Kafka's requests and batches: messages, records, and what consumers tell each other. No I/O, no clock.

protocol            bytes ↔ messages of every API
record              record batches for Python: columns in and out, compression
consumer_protocol   what members of a group put into joins and syncs
"""
