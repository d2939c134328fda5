"""FastStream on confluent-kafka: `python faststream_app.py BOOTSTRAP FROM TO` writes each message in capitals."""

import asyncio
import sys

from faststream import FastStream
from faststream.confluent import KafkaBroker

bootstrap, source, target = sys.argv[1:]
broker = KafkaBroker(bootstrap)


@broker.subscriber(source, group_id=f"{source}-faststream", auto_offset_reset="earliest")
@broker.publisher(target)
async def to_capitals(text: str) -> str:
    return text.upper()


asyncio.run(FastStream(broker).run())
