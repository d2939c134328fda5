"""Produce or consume with kafkalite's Kafka 0.7 classes, and print the rate as one line of JSON.

    python -m benchmarks.clients.classic_bench produce --port 9072 --topic t --count 1000000 --batch 50
    python -m benchmarks.clients.classic_bench consume --port 9072 --topic t --count 1000000 --how stream

`produce` uses Producer (sync, a list of brokers, partition 0 only), and ends when all but the last `--tail` messages
are visible. Those wait for the flush by time, which this program does not wait for.

`consume` ends after `count` messages. `--how stream` uses the fetch thread, queue and KafkaStream of a
ConsumerConnector, without its ZooKeeper. `--how simple` uses SimpleConsumer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator

from kafkalite.classic import ConsumerConfig, Producer, ProducerConfig, ProducerData, SimpleConsumer
from kafkalite.classic.fetcher import Fetcher
from kafkalite.classic.handlers import DefaultDecoder
from kafkalite.classic.stream import ChunkQueue, ConsumedPosition, KafkaStream
from kafkalite.classic.wire import LATEST
from kafkalite.zookeeper.nodes import BrokerNode, BrokerPartition

FETCH_SIZE = 1 << 20
OVERHEAD = 10
VISIBLE_S = 60.0


def payloads(size: int, batch: int, count: int) -> Iterator[list[bytes]]:
    """Yield lists of one batch each, from a few thousand different payloads in turn."""
    pool = [(b"%010d" % number * (size // 10 + 1))[:size] for number in range(batch * max(1, 5000 // batch))]
    lists = [pool[first : first + batch] for first in range(0, len(pool), batch)]
    for number in range(count // batch):
        yield lists[number % len(lists)]


def produce(arguments: argparse.Namespace) -> int:
    """Send the messages, and wait until they are visible; return their number."""
    config = ProducerConfig(broker_list=f"0:127.0.0.1:{arguments.port}", compression_codec=arguments.codec)
    sent = 0
    with Producer(config) as producer:
        for batch in payloads(arguments.size, arguments.batch, arguments.count):
            producer.send(ProducerData(arguments.topic, batch))
            sent += len(batch)
    end = (sent - arguments.tail) * (arguments.size + OVERHEAD)
    with SimpleConsumer("127.0.0.1", arguments.port) as consumer:
        deadline = time.monotonic() + VISIBLE_S
        while arguments.codec == 0 and consumer.get_offsets_before(arguments.topic, 0, LATEST, 1)[0] < end:
            if time.monotonic() > deadline:
                raise SystemExit(f"not all messages were visible {VISIBLE_S:g} s after the last send")
            time.sleep(0.001)
    return sent


def consume_stream(arguments: argparse.Namespace) -> tuple[int, int]:
    """Return the messages and bytes that a stream returned."""
    queue = ChunkQueue(10)
    position = ConsumedPosition(arguments.topic, BrokerPartition(0, 0), 0, queue)
    config = ConsumerConfig(groupid="bench", fetch_size=FETCH_SIZE)
    fetcher = Fetcher(BrokerNode(0, "bench", "127.0.0.1", arguments.port), [position], config, lambda *_: None)
    stream = KafkaStream(queue, DefaultDecoder(), timeout_ms=60_000, shallow=False)
    fetcher.start()
    count = size = 0
    for item in itertools.islice(stream, arguments.count):
        size += len(item.message.payload)
        count += 1
    fetcher.interrupt()
    queue.end()
    fetcher.join()
    return count, size


def consume_simple(arguments: argparse.Namespace) -> tuple[int, int]:
    """Return the messages and bytes that fetches returned."""
    count = size = offset = 0
    with SimpleConsumer("127.0.0.1", arguments.port) as consumer:
        while count < arguments.count:
            found = consumer.fetch(arguments.topic, 0, offset, FETCH_SIZE)
            for message, offset in found:  # noqa: B007  # the last one is where to fetch next
                size += len(message.payload)
                count += 1
    return count, size


def main() -> None:
    parser = argparse.ArgumentParser(prog="classic_bench", description=__doc__)
    parser.add_argument("what", choices=("produce", "consume"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--tail", type=int, default=0)
    parser.add_argument("--codec", type=int, default=0)
    parser.add_argument("--how", choices=("stream", "simple"), default="stream")
    arguments = parser.parse_args()
    wall, cpu = time.monotonic(), time.process_time()
    row: dict[str, object] = {}
    if arguments.what == "produce":
        count = produce(arguments)
    else:
        how = consume_stream if arguments.how == "stream" else consume_simple
        count, row["hash"] = how(arguments)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    row |= {
        "count": count, "unit_count": count, "wall_s": wall, "rate_per_s": count / wall, "client_cpu_s": cpu,
        "mb_per_s": count * arguments.size / wall / 1e6,
    }  # fmt: skip
    sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
