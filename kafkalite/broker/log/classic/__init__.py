"""Topics in Kafka 0.7's format: byte positions for offsets, messages without times or producers.

log   ClassicLog, the log of a partition
view  the same as record batches, for today's clients
host  what the 0.7 listener leaves to Python

docs/kafka-0.7.md lists the differences from 0.7.2 that users notice. The broker also differs in these:

- Messages become visible by the flush that a roll requests, and not by the roll itself: the thread that appends does
  not wait for a disk. A flush blocks only a producer that makes a second one due meanwhile, or reads on its connection.
- All partitions are checked for time flushes twice a second.
- An inner set that ends within a message is refused, because its end could never be read.
- A response from a segment that is deleted meanwhile is sent completely.
- The 0.7 listener opens after the broker has registered in ZooKeeper.
"""
