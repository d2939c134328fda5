"""Store topics in Kafka 0.7's format, and serve them to clients of Kafka 0.7 and to current clients.

    log     the log of a partition (ClassicLog)
    view    its messages as record batches, for current clients
    host    operations of the 0.7 listener that may block or create topics

In this format an offset is a byte position. A message has no timestamp and no producer id.

The page docs/kafka-0.7.md lists the differences from 0.7.2 that users notice. There are smaller differences, too:

- A roll only requests a flush, so the appending thread does not wait for the disk. Messages become visible with this
  flush, not with the roll. During a flush, a producer waits only if its append makes another flush due, or if it also
  reads on its connection.
- All partitions are checked for time-based flushes twice a second.
- An inner message set that ends within a message is refused, because its end could never be read.
- A response is sent completely even if its segment is deleted meanwhile.
- The 0.7 listener opens after the broker has registered in ZooKeeper.
"""
