"""Store and serve topics in Kafka 0.7's format: an offset is a byte position, messages have no time and no producer.

log   ClassicLog: the log of a partition
view  its messages as record batches, for current clients
host  operations of the 0.7 listener that may block, or create topics

docs/kafka-0.7.md lists the differences from 0.7.2 that users notice. There are smaller differences, too:

- A roll only requests a flush, and messages become visible with that flush, not with the roll. So the appending thread
  does not wait for a disk. During a flush, a producer waits only if its append makes another flush due, or if it also
  reads on its connection.
- All partitions are checked for time-based flushes twice a second.
- An inner message set that ends within a message is refused, because its end could never be read.
- A response is sent completely even if its segment is deleted meanwhile.
- The 0.7 listener opens after the broker has registered in ZooKeeper.
"""
