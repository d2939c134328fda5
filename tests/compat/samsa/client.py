"""One flow with samsa, a client of Kafka 0.7: client.py ZOOKEEPER TOPIC FLOW [ARGUMENT]... A JSON line for each result.

Runs on Python 2.7, which samsa was written for, and on 3 (`for_python3.py`): bytes everywhere, and no annotations.
"""

import json
import sys
import threading
import time

from kazoo.client import KazooClient
from samsa import exceptions
from samsa.client import OFFSET_EARLIEST, OFFSET_LATEST
from samsa.cluster import Cluster

TIMEOUT_S = 60.0


def say(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def text(payload):
    return bytes(payload).decode()


def until(condition, what):
    deadline = time.time() + TIMEOUT_S
    while not condition():
        if time.time() > deadline:
            raise SystemExit(what + ": not in time")
        time.sleep(0.02)


def rows(messages):
    return [[message.offset, message.next_offset, text(message.payload)] for message in messages]


def error_of(request):
    try:
        request()
    except exceptions.ProtocolClientError as error:
        return type(error).__name__


def requests(cluster, topic):
    """Every request there is, to partitions 0 and 1, in magic 0 and 1."""
    broker = cluster.brokers[0].client
    broker.produce(topic, 0, [b"zero", b"one"])
    broker.produce(topic, 0, [b"two"], version=1)
    broker.multiproduce([(topic, 0, [b"three"]), (topic, 1, [b"four", b"five"])], version=1)
    until(lambda: broker.offsets(topic, 1, OFFSET_LATEST, 1) == [28], "both partitions")
    fetches = [(topic, 0, 25, 4096), (topic, 1, 14, 4096)]
    say(
        {
            "fetch": rows(broker.fetch(topic, 0, 0, 4096)),
            "cut": rows(broker.fetch(topic, 0, 0, 40)),
            "multifetch": [rows(messages) for messages in broker.multifetch(fetches)],
            "end": rows(broker.fetch(topic, 0, 53, 4096)),
            "latest": broker.offsets(topic, 0, OFFSET_LATEST, 5),
            "earliest": broker.offsets(topic, 0, OFFSET_EARLIEST, 5),
            "beyond": error_of(lambda: broker.fetch(topic, 0, 54, 4096)),
            "nowhere": error_of(lambda: broker.fetch(topic, 9, 0, 4096)),
        }
    )


def publish(cluster, topic, *payloads):
    """The first alone, the others in one request; the topic may be new."""
    cluster.topics[topic].publish(payloads[0].encode())
    if len(payloads) > 1:
        cluster.topics[topic].publish([payload.encode() for payload in payloads[1:]])


def consume(cluster, topic, group, count):
    """Some messages as a member of a group, then a commit."""
    consumer = cluster.topics[topic].subscribe(group, backoff_increment=0.05)
    for _ in range(int(count)):
        payload = consumer.next_message(timeout=TIMEOUT_S)
        say(None if payload is None else text(payload))
    consumer.commit_offsets()
    leave(consumer)


def member(cluster, topic, group):
    """Every message, until standard input ends; then it commits and leaves."""
    ending = threading.Event()

    def wait():
        sys.stdin.read()
        ending.set()

    threading.Thread(target=wait).start()
    consumer = cluster.topics[topic].subscribe(group, backoff_increment=0.05)
    while not ending.is_set():
        payload = consumer.next_message(timeout=0.05)
        if payload is not None:
            say(text(payload))
    leave(consumer)


def leave(consumer):
    """Commit, and stop fetching: a fetch on a closed connection would wait without end."""
    partitions = list(consumer.partitions)
    consumer.stop_partitions()
    for partition in partitions:
        if partition._fetch_thread is not None:
            partition._fetch_thread.join(TIMEOUT_S)


FLOWS = {"requests": requests, "publish": publish, "consume": consume, "member": member}

if __name__ == "__main__":
    connection = KazooClient(sys.argv[1], timeout=10.0)
    connection.start(TIMEOUT_S)
    kafka = Cluster(connection)
    FLOWS[sys.argv[3]](kafka, sys.argv[2], *sys.argv[4:])
    for number in kafka.brokers:
        kafka.brokers[number].client.disconnect()  # sends what is queued first
    connection.stop()
