"""A member of a group by any of the four clients, as a process that is killed, or kills itself by what it handles.

    python tests/kit/processes/killed_member.py BOOTSTRAP TOPIC CLIENT STRATEGY LOG [--kill-at N] [--poison N]…
        [--pause-ms MS] [--fails N] [--partitions]

Each call of the handler is a line of LOG: partition, value, monotonic time. It runs with any checkout on PYTHONPATH,
so that a benchmark can hold an older one against this one.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite.client import Client
from kafkalite.failures import Ignore, Message, Policy, RetryForever, RetryHere, RetryTopics, Runner
from kafkalite.failures.adapters.columnar import ColumnarPort

if TYPE_CHECKING:
    from kafkalite.failures.runner import Port

SESSION_S = 6
STRATEGIES: dict[str, Any] = {
    "ignore": Ignore(record=True),
    "forever": RetryForever("50 ms"),
    "here": RetryHere(2, "20 ms"),
    "topics": RetryTopics(["1 s"]),
    "key": RetryTopics(["1 s"]),
}
CLIENTS = ("kafkalite", "confluent", "kafka-python", "aiokafka")


def port_of(client: str, own: Client, servers: str, name: str) -> Port:
    """The client's port, as a static member: its next life has the partitions at once."""
    match client:
        case "confluent":
            from kafkalite.failures.adapters.confluent import ConfluentPort

            given = {"bootstrap.servers": servers, "group.instance.id": name, "session.timeout.ms": SESSION_S * 1000}
            return ConfluentPort(given, name)
        case "kafka-python":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                from kafkalite.failures.adapters.kafka_python import KafkaPythonPort
            return KafkaPythonPort({"bootstrap_servers": servers}, name)
        case "aiokafka":
            from kafkalite.failures.adapters.aio import AioPort

            return AioPort({"bootstrap_servers": servers})
        case _:
            return ColumnarPort(own, name, instance_id=name, session_timeout_s=float(SESSION_S))


def policy_of(topic: str, strategy: str) -> Policy:
    """Of the group that has the topic's name."""
    order = "key" if strategy == "key" else "none"
    return Policy(group=topic, topics=[topic], strategy=STRATEGIES[strategy], fatal=[LookupError], order=order)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("strategy", choices=STRATEGIES)
    parser.add_argument("log", type=Path)
    parser.add_argument("--kill-at", type=int, default=0, help="the call of the handler at which it is killed")
    parser.add_argument("--poison", type=int, action="append", default=[], help="records that kill it each time")
    parser.add_argument("--pause-ms", type=float, default=0.0, help="of each call")
    parser.add_argument("--fails", type=int, default=0, help="each Nth record fails the first time")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.WARNING)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    out = os.open(arguments.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    calls = 0
    poison = {b"%d" % number for number in arguments.poison}

    def handle(record: Message) -> None:
        nonlocal calls
        calls += 1
        value = record.value or b""
        os.write(out, b"%d %s %f\n" % (record.partition, value, time.monotonic()))
        if arguments.pause_ms:
            time.sleep(arguments.pause_ms / 1000)
        if calls == arguments.kill_at or value in poison:
            os.kill(os.getpid(), signal.SIGKILL)
        if arguments.fails and int(value) % arguments.fails == 0 and not record.attempt:
            raise RuntimeError("not now")

    name = f"m-{arguments.topic}"
    with Client(arguments.bootstrap) as own, own.twin() as control:
        port = port_of(arguments.client, own, arguments.bootstrap, name)
        Runner(policy_of(arguments.topic, arguments.strategy), handle, port, control, member=name).run(stop)


if __name__ == "__main__":
    main()
