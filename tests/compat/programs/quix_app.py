"""Quix Streams: `python quix_app.py BOOTSTRAP FROM TO` writes each message in capitals, exactly once, until it is
killed.
"""

import sys
import tempfile

from quixstreams import Application

bootstrap, source, target = sys.argv[1:]
app = Application(
    broker_address=bootstrap,
    consumer_group=f"{source}-quix",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.5,
    state_dir=tempfile.mkdtemp(),
)
texts = app.topic(source, value_deserializer="string")
capitals = app.topic(target, value_serializer="string")


def counted(value: str, state) -> str:
    """With a store, so that a changelog topic is made and written in the same transactions."""
    number = state.get("count", 0) + 1
    state.set("count", number)
    return f"{value.upper()}#{number}"


app.dataframe(texts).apply(counted, stateful=True).to_topic(capitals)
app.run()
