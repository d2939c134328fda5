"""Ten messages, and a broker that dies at the worst moments: what acks=0, acks=1 and an idempotent producer make of it.

python examples/delivery/broker_dies.py [kafkalite|confluent]

The broker is one for tests, in this process, since the program reads its log. It can be made to die before it has
written a request, or after that and before it has answered. Each producer is the one of the columnar client, or
confluent-kafka's.
"""

import sys
import threading
import time

from kafkalite.client import Client
from kafkalite.testing import KafkaBroker

COUNT = 10
PRODUCERS = {
    "acks=0": {"acks": 0},
    "acks=1, sent again": {"acks": 1},
    "acks=all, idempotent": {"acks": -1, "idempotent": True},
}
DEATHS = ("before it has written", "before it has answered")


def main(kind: str) -> None:
    send = {"kafkalite": send_columns, "confluent": send_one_by_one}[kind]
    with KafkaBroker(in_process=True) as broker:
        print(f"{'':22}the broker died {DEATHS[0]:24}{DEATHS[1]}")
        for name, settings in PRODUCERS.items():
            before, behind = (stored(broker, send, settings, death) for death in DEATHS)
            print(f"{name:38}{f'{before} of {COUNT}':24}{behind} of {COUNT}", flush=True)


def stored(broker: KafkaBroker, send, settings: dict[str, object], death: str) -> int:
    """How many messages are in the log in the end."""
    topic = f"orders-{time.monotonic_ns()}"
    broker.create_topic(topic)
    written = death == "before it has answered"
    fault = broker.delay("Produce", 3600) if written else broker.disconnect("Produce", times=None)
    log = broker.logs.topics[topic].partitions[0]
    sender = threading.Thread(target=send, args=(broker.bootstrap_servers, topic, settings))
    sender.start()
    while fault.count == 0 or (written and log.log_end_offset == 0):
        time.sleep(0.01)
    fault.end()
    broker.restart(kill=True)
    sender.join()
    with Client(broker.bootstrap_servers) as client:
        return client.end_offset(topic, 0)


def send_columns(bootstrap: str, topic: str, settings: dict[str, object]) -> None:
    with Client(bootstrap) as client, client.producer(**settings) as producer:
        producer.send(topic, 0, [b"a book"] * COUNT)
        producer.flush()


def send_one_by_one(bootstrap: str, topic: str, settings: dict[str, object]) -> None:
    from confluent_kafka import Producer

    more = {"acks": settings["acks"], "enable.idempotence": "idempotent" in settings, "linger.ms": 100}
    producer = Producer({"bootstrap.servers": bootstrap, **more})
    for _ in range(COUNT):
        producer.produce(topic, b"a book")
    producer.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "kafkalite")
    except KeyboardInterrupt:
        sys.exit(130)
