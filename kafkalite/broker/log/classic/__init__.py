"""Store topics in Kafka 0.7's format, and serve them to clients of Kafka 0.7 and to current clients.

    log     the log of a partition (ClassicLog)
    view    its messages as record batches, for current clients
    host    operations of the 0.7 listener that may block or create topics

In this format an offset is a byte position. A message has no timestamp and no producer id.

The page docs/kafka-0.7.md lists the differences from Kafka 0.7.2 that users notice.
"""
