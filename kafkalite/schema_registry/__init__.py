"""A schema registry with the REST interface of Confluent's: Avro schemas, stored in a compacted topic.

registry.py    the operation behind each request
state.py       subjects, versions and settings in memory, built from the topic
records.py     the format of the topic's records, which is Confluent's
topic.py       reads, follows and writes the topic
rest.py        paths and JSON, as a WSGI application
server.py      the HTTP server (waitress)
status.py      metrics and readiness
errors.py      codes and texts of errors

GET /schemas/ids/7 ─▶ rest ─▶ registry ─▶ state ◀── topic ◀── _schemas
POST /subjects/s/versions ─▶ rest ─▶ registry ─▶ decision ─▶ topic ─▶ _schemas

`kafkalite registry` runs one.

Several registries can share a topic: they write in turns, and a common transactional id fences the others. One thread
follows the topic, one serves all HTTP sockets, and waitress's workers run the requests. The write lock and the refresh
lock are taken before the state's lock.
"""
