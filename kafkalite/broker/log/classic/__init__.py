"""Store and serve topics in Kafka 0.7's format: an offset is a byte position, messages have no time and no producer.

log   ClassicLog: the log of a partition
view  its messages as record batches, for current clients
host  operations of the 0.7 listener that may block, or create topics

docs/kafka-0.7.md lists the differences from 0.7.2 that users notice. The broker also differs in these:

- Messages become visible with the flush that a roll requests, not with the roll itself, so that the appending thread
  does not wait for a disk. A flush blocks only a producer whose append makes a second flush due meanwhile, or which
  reads on its connection.
- All partitions are checked for time-based flushes twice a second.
- An inner message set that ends within a message is refused, because its end could never be read.
- A response from a segment that is deleted meanwhile is sent completely.
- The 0.7 listener opens after the broker has registered in ZooKeeper.
"""
