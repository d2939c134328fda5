"""Adapters that let a member of `kafkalite.failures` use kafkalite's client, confluent-kafka, kafka-python or aiokafka.

    columnar.py        kafkalite's client
    confluent.py       confluent-kafka
    kafka_python.py    kafka-python
    aio.py             aiokafka
    listening.py, writing.py            base classes of the last three: owned partitions; transactions
    configuration.py, adoption.py       split settings for consumer and producers; convert them to kafkalite's settings

Each client library is imported only by its adapter.
"""
