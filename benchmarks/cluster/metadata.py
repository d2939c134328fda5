"""Measure what the metadata of a large cluster costs a broker: loading a snapshot, and the death of a broker.

The snapshot has 2,000 to 200,000 partitions with three replicas, on a thousand brokers. When a broker dies, each
partition that it led gets another leader.

Measured are CPU seconds of the metadata thread, bytes on the wire, and memory that stays. No log is opened.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from pathlib import Path
from typing import Final

from benchmarks.path.harness import Row, write_result
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.cluster.image import Delta, Image
from kafkalite.broker.cluster.replay import Replay
from tests.kit.fakes.controller import data_batch, snapshot_of
from tests.kit.processes.broker import usage_of

PARTITIONS: Final = (2_000, 20_000, 200_000)
PER_TOPIC: Final = 100
BROKERS: Final = 1000
DIRECTORY: Final = bytes(15) + b"\x02"


def records_of(partitions: int) -> list[object]:
    """Return records of topics, with their partitions spread over the brokers."""
    records: list[object] = []
    for number in range(partitions):
        topic_id = (number // PER_TOPIC + 1).to_bytes(16, "big")
        if number % PER_TOPIC == 0:
            records.append(types.TopicRecord(name=f"topic-{number // PER_TOPIC}", topic_id=topic_id))
        replicas = [(number + each) % BROKERS for each in range(3)]
        records.append(
            types.PartitionRecord(
                partition_id=number % PER_TOPIC,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                directories=[DIRECTORY] * 3,
            )
        )
    return records


def death_of(image: Image, broker: int) -> list[object]:
    """Return the records that the controller writes when a broker dies: the second replica becomes leader."""
    changes: list[object] = []
    for topic in image.topics.values():
        for number, each in topic.partitions.items():
            if broker in each.isr:
                isr = [other for other in each.isr if other != broker]
                leader = isr[0] if each.leader == broker else -2
                changes.append(
                    types.PartitionChangeRecord(partition_id=number, topic_id=topic.id, isr=isr, leader=leader)
                )
    return changes


def measured(partitions: int) -> Row:
    data = snapshot_of(1, *records_of(partitions))
    gc.collect()
    before = usage_of(os.getpid()).rss_bytes
    replay, began = Replay(), time.thread_time()
    image = replay.load(data, partitions + partitions // PER_TOPIC, 1)
    row: Row = {"snapshot_mb": len(data) / 1e6, "load_cpu_s": time.thread_time() - began}
    gc.collect()
    row["kept_mb"] = (usage_of(os.getpid()).rss_bytes - before) / 1e6
    changes = death_of(image, 5)
    wire = len(data_batch(0, 1, *changes))
    began = time.thread_time()
    delta = Delta(image)
    for change in changes:
        delta.apply(change)
    delta.build(image.offset + len(changes), 1)
    row |= {"death_changes": len(changes), "death_kb": wire / 1e3, "death_cpu_ms": (time.thread_time() - began) * 1e3}
    return row


def main(*, small: bool, repeats: int) -> list[Path]:
    result: Row = {}
    for partitions in PARTITIONS[:1] if small else PARTITIONS:
        found = [measured(partitions) for _ in range(repeats)]
        result[str(partitions)] = {key: statistics.median(row[key] for row in found) for key in found[0]}
        print(partitions, result[str(partitions)], flush=True)
    return [write_result("cluster-metadata", {"partitions": result, "brokers": BROKERS})]
