"""Adapters that let a member of `kafkalite.failures` use kafkalite's client, confluent-kafka, kafka-python or aiokafka.

    columnar.py          kafkalite's client
    confluent.py         confluent-kafka
    kafka_python.py      kafka-python
    aio.py               aiokafka
    writing.py           base class for transactions with confluent-kafka and kafka-python
    listening.py         base class for reading with any client but kafkalite's
    configuration.py     splits a configuration into consumer and producer settings
    adoption.py          converts connection settings to those of kafkalite's client

In this package, only the adapter for another client library imports that library.
"""
