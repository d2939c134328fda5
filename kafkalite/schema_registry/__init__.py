"""A schema registry for Avro, with the REST interface of Confluent's registry. Schemas are stored in a compacted topic.

    registry.py    the operations: register, look up, delete, check compatibility
    state.py       subjects, versions and settings in memory, built from the topic
    records.py     the format of the topic's records, which is Confluent's
    topic.py       reads, follows and writes the topic
    rest.py        paths and JSON, as a WSGI application
    server.py      the HTTP server
    status.py      metrics and readiness
    errors.py      codes and texts of errors

A read, such as GET /schemas/ids/7, is answered from the state. A write, such as POST /subjects/s/versions, appends
records to the topic `_schemas`. A thread follows the topic and updates the state.

The command `kafkalite registry` runs a registry. Several registries can share a topic.

Threads: one follows the topic, one serves all HTTP sockets, and waitress's workers run the requests.
"""
