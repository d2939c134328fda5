"""A schema registry: the REST interface of Confluent's, Avro schemas, kept in a compacted topic.

registry.py    what each request does
state.py       what the topic says, in memory
records.py     the topic's format, Confluent's
topic.py       the topic: read to its end and followed; written in transactions
rest.py        paths and JSON, as a WSGI application
server.py      the HTTP server under it (waitress)
errors.py      codes and texts of what is refused

GET /schemas/ids/7 ─▶ rest ─▶ registry ─▶ state ◀── topic ◀── _schemas
POST /subjects/s/versions ─▶ rest ─▶ registry ─▶ decision ─▶ topic ─▶ _schemas

`kafkalite registry` runs one.

Writes take turns by one transactional id. One thread follows the topic and one serves all sockets of HTTP, with
waitress's workers. A write's lock and a refresh's are taken before the state's.
"""
