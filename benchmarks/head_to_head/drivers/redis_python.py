"""Load driver redis-py: Redis streams through redis-py, with hiredis' parser if it is installed.

A batch is a pipeline without MULTI. redis-py reads all its replies before it continues, so one batch is in flight
regardless of --in-flight. Consuming is XREAD of 1000 entries after the last one.
"""

from __future__ import annotations

import redis

from benchmarks.head_to_head.drivers.common import Run, guarded

NAME = "redis-py"
COUNT_MAX = 1000
FIELD = b"d"


def produce(run: Run) -> None:
    client, entry = redis.Redis(run.host, run.port), {FIELD: run.payload()}
    client.ping()
    run.begin()
    while run.count < run.messages:
        count = min(run.batch, run.messages - run.count)
        if count == 1:
            client.xadd(run.topic, entry)
        else:
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(count):
                    pipeline.xadd(run.topic, entry)
                pipeline.execute()
        run.advance(run.count + count)
    run.end()


def read(client: redis.Redis, topic: str, last: bytes, count: int) -> tuple[list[bytes], bytes]:
    """Return the payloads of the next entries, at least one, and the last entry's id."""
    while not (found := client.xread({topic: last}, count=count, block=100)):
        pass
    entries = found[0][1]
    return [fields[FIELD] for _, fields in entries], entries[-1][0]


def consume(run: Run) -> None:
    client, last = redis.Redis(run.host, run.port), b"0-0"
    client.ping()
    run.begin()
    while run.count < run.messages:
        payloads, last = read(client, run.topic, last, min(COUNT_MAX, run.messages - run.count))
        run.receive(payloads)
    run.end()


def latency(run: Run) -> None:
    sending, reading = redis.Redis(run.host, run.port), redis.Redis(run.host, run.port)
    sending.ping()
    reading.ping()
    pipeline = sending.pipeline(transaction=False)

    def receive() -> None:
        last = b"0-0"
        while run.received < run.total:
            payloads, last = read(reading, run.topic, last, COUNT_MAX)
            for payload in payloads:
                run.receive_stamped(payload)

    run.latency(lambda payload: pipeline.xadd(run.topic, {FIELD: payload}), pipeline.execute, receive)


def main() -> None:
    run = Run.open(NAME, acks=("one", "disk"))
    guarded(NAME, lambda: {"produce": produce, "consume": consume, "latency": latency}[run.mode](run))
    run.report(f"redis-py {redis.__version__}{' with hiredis' if redis.utils.HIREDIS_AVAILABLE else ''}")


if __name__ == "__main__":
    main()
