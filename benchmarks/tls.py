"""Measure the cost of TLS, with two listeners of one broker in turns: `python -m benchmarks.tls [--kafka]`.

Each case writes or reads the same records over both listeners, and medians of the rounds are compared. Clients encrypt
and decrypt on the same machine. So CPU is counted separately for broker and client, and each ratio of rates is printed
next to the best possible ratio. If broker and client keep all cores busy, this is the ratio of their total CPU.

librdkafka encrypts and decrypts in one thread per broker. The output shows how busy this thread is, because no broker
can speed it up. AES alone, timed by OpenSSL, is printed before and after. With `--kafka`, Apache Kafka from its own
start scripts does the same in the same rounds.

    librdkafka   does not combine records: it encrypts each value separately, and each record's header too
    java         Kafka's own producer program, which encrypts full TLS records (16 KB)
    bare         prepared requests over bare sockets, five in flight: full records, and almost no client work

Topics are deleted after each case, so that allocating new memory is not measured.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shutil
import socket
import ssl
import statistics
import struct
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.head_to_head.kafkas import Kafka
from benchmarks.pairs import interval, mean_interval
from benchmarks.path.harness import ROOT, cpu_seconds
from tests.kit.harness.certificates import PASSWORD, Authority
from tests.kit.harness.wire import Record, batch_of, frame, header, produce_body
from tests.kit.processes.apache_kafka import KAFKA_VERSION, ApacheKafka, jars
from tests.kit.processes.broker import BrokerProcess, free_port

SIZE = 1000
IN_FLIGHT = 5
LISTENERS = ("PLAINTEXT", "SSL")


class Server:
    """A broker with both listeners, and the client settings to reach them."""

    def __init__(self, name: str, folder: Path, pid: int, ports: dict[str, int]) -> None:
        self.name = name
        self.folder = folder
        self.pid = pid
        self.ports = ports
        self.admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{ports['PLAINTEXT']}"})

    def properties(self, listener: str) -> dict[str, object]:
        """Return the settings for librdkafka."""
        found: dict[str, object] = {"bootstrap.servers": f"127.0.0.1:{self.ports[listener]}"}
        if listener == "SSL":
            found |= {"security.protocol": "SSL", "ssl.ca.location": str(self.folder / "authority.pem")}
        return found

    def connect(self, listener: str) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=60)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if listener == "SSL":
            context = ssl.create_default_context(cafile=str(self.folder / "authority.pem"))
            found = context.wrap_socket(found, server_hostname="127.0.0.1")
        return found

    @contextlib.contextmanager
    def topic(self, name: str) -> Iterator[str]:
        self.admin.create_topics([NewTopic(name, 1, 1)])[name].result()
        try:
            yield name
        finally:
            self.admin.delete_topics([name])[name].result()


class Took(NamedTuple):
    """Seconds of a run, and CPU seconds of the client's thread that talks to the broker, if it has one."""

    wall: float
    thread: float = math.nan


Case = Callable[[Server, str, str, int], Took]
"""(server, listener, topic, records) -> what it took."""


def speaking_seconds() -> float:
    """Return the CPU seconds of the busiest librdkafka thread that talks to a broker. Its client must be alive."""
    found = [0.0]
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            if (task / "comm").read_text().startswith("rdk:broker"):
                found.append(int((task / "schedstat").read_text().split()[0]) / 1e9)
    return max(found)


def librdkafka(records: int) -> Case:
    def run(server: Server, listener: str, topic: str, count: int) -> Took:
        batching = {"linger.ms": 50, "batch.num.messages": records, "batch.size": 1_000_000, "acks": 1}
        producer = Producer({**server.properties(listener), **batching})
        value = bytes(SIZE)
        began = time.monotonic()
        for _ in range(count):
            while True:
                try:
                    producer.produce(topic, value, partition=0)
                    break
                except BufferError:
                    producer.poll(0.01)
        if producer.flush(120):
            raise RuntimeError("some records were not delivered")
        return Took(time.monotonic() - began, speaking_seconds())

    return run


def consume(server: Server, listener: str, topic: str, count: int) -> Took:
    # Where its queue is full librdkafka looks again after a second: a fast listener meets that, a slow one does not.
    queue = {"queued.min.messages": count, "queued.max.messages.kbytes": 2_000_000, "fetch.queue.backoff.ms": 10}
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**server.properties(listener), **queue, **group})
    consumer.subscribe([topic])
    left = count - len(consumer.consume(1, 60.0))
    began = time.monotonic()
    while left > 0:
        left -= len(consumer.consume(min(left, 10_000), 10.0))
    took = Took(time.monotonic() - began, speaking_seconds())
    consumer.close()
    return took


def java(records: int) -> Case:
    def run(server: Server, listener: str, topic: str, count: int) -> Took:
        properties = [f"bootstrap.servers=127.0.0.1:{server.ports[listener]}", "acks=1", "linger.ms=50"]
        properties += [f"batch.size={records * (SIZE + 10) + 100}", f"security.protocol={listener}"]
        if listener == "SSL":
            properties += ["ssl.truststore.type=PEM", f"ssl.truststore.location={server.folder / 'authority.pem'}"]
        command = ["java", "-Xms512m", "-Xmx512m", "-cp", f"{jars()}/*", "org.apache.kafka.tools.ProducerPerformance"]
        command += ["--topic", topic, "--num-records", str(count), "--record-size", str(SIZE), "--throughput", "-1"]
        done = subprocess.run([*command, "--producer-props", *properties], capture_output=True, text=True, check=True)
        rate = done.stdout.strip().splitlines()[-1].partition("records sent, ")[2].split()[0]
        return Took(count / float(rate))

    return run


def bare(records: int, in_flight: int = IN_FLIGHT) -> Case:
    def run(server: Server, listener: str, topic: str, count: int) -> Took:
        batch = batch_of([Record(key=None, value=os.urandom(SIZE)) for _ in range(records)])
        request = frame(header(0, 7, 1) + produce_body(topic, [(0, batch)]))
        with server.connect(listener) as sock:
            answers = sock.makefile("rb")
            began = time.monotonic()
            for number in range(count // records + in_flight):
                if number >= in_flight:
                    answers.read(struct.unpack(">i", answers.read(4))[0])
                if number < count // records:
                    sock.sendall(request)
            return Took(time.monotonic() - began)

    return run


CASES: dict[str, Case] = {
    "librdkafka, batches of 1000": librdkafka(1000),
    "librdkafka, batches of 50": librdkafka(50),
    "java, batches of 1000": java(1000),
    "java, batches of 50": java(50),
    "bare, batches of 1000": bare(1000),
    "bare, batches of 50": bare(50),
    "bare, 1 record, 1 in flight": bare(1, 1),
}
ONE_AT_A_TIME = "bare, 1 record, 1 in flight"
CONSUME = "librdkafka, consume"


@contextlib.contextmanager
def kafkalite(folder: Path) -> Iterator[Server]:
    ports = {listener: free_port() for listener in LISTENERS}
    settings = {
        "listeners": ",".join(f"{listener}://127.0.0.1:{port}" for listener, port in ports.items()),
        "ssl.keystore.location": str(folder / "server.pem"),
        "log.segment.delete.delay.ms": "0",
    }
    with BrokerProcess(folder / "kafkalite", settings=settings, port=ports["PLAINTEXT"]) as process:
        yield Server("kafkalite", folder, process.pid, ports)


@contextlib.contextmanager
def apache_kafka(folder: Path) -> Iterator[Server]:
    ports = {listener: free_port() for listener in LISTENERS}
    options = (*Kafka.HEAP, *Kafka.OPTIONS)
    kafka = ApacheKafka(folder / "kafka", port=ports["PLAINTEXT"], java_options=options)
    addresses = ",".join(f"{listener}://127.0.0.1:{port}" for listener, port in ports.items())
    kafka.settings |= {
        "listeners": f"{addresses},CONTROLLER://127.0.0.1:{kafka.controller_port}",
        "advertised.listeners": addresses,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(folder / "server.p12"),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "log.segment.delete.delay.ms": "0",
    }
    with kafka as running:
        assert running.process is not None
        yield Server(f"Kafka {KAFKA_VERSION}", folder, running.process.pid, ports)


class Round(NamedTuple):
    """One run of a case: GB of records, and seconds."""

    size: float
    wall: float
    broker: float
    client: float
    thread: float


def own_seconds() -> float:
    """Return the CPU seconds of this process and its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(
    servers: list[Server], cases: dict[str, Case], count: int, rounds: int
) -> dict[tuple[str, str, str], list[Round]]:
    """Return (case, server, listener) -> rounds. The first round only warms up and is dropped."""
    took: dict[tuple[str, str, str], list[Round]] = defaultdict(list)
    for number in range(rounds + 1):
        for name, case in cases.items():
            amount = count // 10 if name == ONE_AT_A_TIME else count
            turn = [(server, listener) for server in servers for listener in LISTENERS]
            for server, listener in turn[:: 1 if number % 2 else -1]:
                runs = {name: case} | ({CONSUME: consume} if name == next(iter(CASES)) else {})
                with server.topic(f"t{time.monotonic_ns()}") as topic:
                    for what, run in runs.items():
                        broker, client = cpu_seconds(server.pid), own_seconds()
                        wall, thread = run(server, listener, topic, amount)
                        broker, client = cpu_seconds(server.pid) - broker, own_seconds() - client
                        if number:
                            size = amount * SIZE / 1e9
                            took[what, server.name, listener].append(Round(size, wall, broker, client, thread))
    return took


def report(took: dict[tuple[str, str, str], list[Round]]) -> None:
    """Return lines for each case and server. "at best": CPU of broker and client together, plain divided by TLS."""
    print(f"{ROOT.name:46} {'MB/s: plain':>11} {'TLS':>6} {'ratio':>6} {'at best':>7}", end="")
    print(f" {'CPU s/GB, broker: plain':>24} {'TLS':>6} {'more':>6} {'client: plain':>14} {'TLS':>6}")
    for what, server in dict.fromkeys((what, server) for what, server, _ in took):
        plain, tls = (took[what, server, listener] for listener in LISTENERS)
        rates = [statistics.median(run.size * 1000 / run.wall for run in runs) for runs in (plain, tls)]
        brokers = [statistics.median(run.broker / run.size for run in runs) for runs in (plain, tls)]
        clients = [statistics.median(run.client / run.size for run in runs) for runs in (plain, tls)]
        best = (brokers[0] + clients[0]) / (brokers[1] + clients[1])
        print(
            f"{f'{what}, {server}':46} {rates[0]:11.1f} {rates[1]:6.1f} {rates[1] / rates[0]:6.2f} {best:7.2f}", end=""
        )
        print(
            f" {brokers[0]:24.2f} {brokers[1]:6.2f} {brokers[1] - brokers[0]:6.2f} {clients[0]:14.2f} {clients[1]:6.2f}"
        )
        if not math.isnan(tls[0].thread):
            busy = [statistics.median(run.thread / run.wall for run in runs) for runs in (plain, tls)]
            highest = 1000 / statistics.median(run.thread / run.size for run in tls)
            print(f"    the client's thread is busy for {busy[0]:.2f} of the time, {busy[1]:.2f} with TLS", end="")
            print(f", where no broker lets it pass {highest:.0f} MB/s")
        pairs = list(zip(plain, tls, strict=True))
        if len(pairs) > 1:
            ratio = interval([sealed.size / sealed.wall / (bare.size / bare.wall) for bare, sealed in pairs])
            more = mean_interval([sealed.broker / sealed.size - bare.broker / bare.size for bare, sealed in pairs])
            print(f"    {len(pairs)} rounds, 95 %: ratio {ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})", end="")
            print(f", more {more[0]:.2f} ({more[1]:.2f} to {more[2]:.2f})")


def report_aes() -> None:
    """Return the cost of a GB in AES alone, by `openssl speed`, in full records and in records of about one value."""
    if shutil.which("openssl") is None:
        return
    for size in (16384, 1024):
        for what, flags in (("sealing", []), ("opening", ["-decrypt"])):
            command = ["openssl", "speed", *flags, "-seconds", "1", "-bytes", str(size), "-evp", "aes-128-gcm"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rate = float(done.stdout.strip().splitlines()[-1].split()[-1].removesuffix("k")) * 1000
            print(f"AES-128-GCM, {what} {size:5} bytes at a time: {1e9 / rate:.2f} CPU s/GB")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.tls", description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=300_000, help=f"records of {SIZE} bytes a round")
    parser.add_argument("--rounds", type=int, default=5, help="beside one that warms up")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka too")
    parser.add_argument("--only", help="the cases whose name begins so")
    arguments = parser.parse_args()
    cases = {name: case for name, case in CASES.items() if name.startswith(arguments.only or "")}
    if shutil.which("java") is None:
        cases = {name: case for name, case in cases.items() if not name.startswith("java")}
    if not cases:
        parser.error(f"no case that can run starts with {arguments.only}; choose from {', '.join(CASES)}")
    folder = Path(tempfile.mkdtemp(prefix="kafkalite-tls-"))
    authority = Authority()
    authority.write_pem(folder / "authority.pem")
    identity = authority.issue("server")
    identity.write_pem(folder / "server.pem")
    identity.write_pkcs12(folder / "server.p12")
    report_aes()
    try:
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(kafkalite(folder))]
            if arguments.kafka:
                servers.append(stack.enter_context(apache_kafka(folder)))
            took = measure(servers, cases, arguments.count, arguments.rounds)
            report_aes()  # once more: the machine may have become slower or faster meanwhile
        report(took)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
