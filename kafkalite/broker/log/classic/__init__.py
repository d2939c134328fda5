"""Topics in Kafka 0.7's format: byte positions for offsets, messages without times or producers.

log   ClassicLog, the log of a partition
view  the same as record batches, for today's clients
host  what the 0.7 listener leaves to Python
"""
