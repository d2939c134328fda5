"""Measure the cost of many TLS connections, and of a storm of them to others: `python -m benchmarks.tls_crowd`.

    handshakes   the broker's CPU seconds of full and resumed handshakes, one after the other, for each kind of key;
                 and of many at a time, so that it does not sleep between their steps. Just before each such round,
                 OpenSSL's server alone is measured in memory: the least that a broker can take at that moment
    idle         memory of connections that have completed a handshake and one request
    half-open    latency of a plaintext client, one request in flight, while many connections begin a handshake and do
                 not continue; every second one has sent a whole hello, which the broker answers

Clients use several loopback addresses, and the storm several processes. The number of connections is limited by the
broker's descriptors (`ulimit -Hn`).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import multiprocessing
import resource
import selectors
import shutil
import socket
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.path.harness import client, cpu_seconds
from tests.kit.harness.certificates import Authority
from tests.kit.harness.tls_broker import answered, api_versions
from tests.kit.processes.broker import BrokerProcess, free_port, usage_of

KEY_BITS = {"ECDSA P-256": 0, "RSA 2048": 2048}
PER_ADDRESS = 5000
AT_A_TIME = 20
ROUNDS = 10
IN_MEMORY = 200


@contextlib.contextmanager
def broker(folder: Path, authority: Authority, bits: int, **settings: str) -> Iterator[tuple[BrokerProcess, int]]:
    """Start a broker with a plaintext and a TLS listener; yield it and the port of the latter."""
    folder.mkdir()
    authority.issue("server", bits=bits).write_pem(folder / "server.pem")
    plain, sealed = free_port(), free_port()
    found = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{sealed}",
        "ssl.keystore.location": str(folder / "server.pem"),
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    with BrokerProcess(folder / "broker", found, port=plain) as process:
        settle(process)
        yield process, sealed


def settle(process: BrokerProcess) -> None:
    """Wait until the broker has loaded what it loads after its start, so that this does not count for the requests."""
    spent = -1.0
    while (now := process.usage().cpu_s) > spent:
        spent = now
        time.sleep(1.5)


def connect(port: int, number: int = 0) -> socket.socket:
    """Connect from a different address for each PER_ADDRESS connections."""
    return socket.create_connection(("127.0.0.1", port), 60, (f"127.0.0.{2 + number // PER_ADDRESS}", 0))


def secure(context: ssl.SSLContext, port: int, number: int = 0, session: object = None) -> ssl.SSLSocket:
    sock = context.wrap_socket(connect(port, number), server_hostname="localhost", session=session)  # type: ignore[arg-type]
    sock.sendall(api_versions())
    answered(sock)
    return sock


def handshakes(folder: Path, authority: Authority, context: ssl.SSLContext, count: int) -> None:
    for name, bits in KEY_BITS.items():
        with broker(folder / name.split()[0], authority, bits) as (process, port):
            with secure(context, port) as first:
                session = first.session
            for what, ticket in (("full", None), ("resumed", session)):
                began = cpu_seconds(process.pid)
                for _ in range(count):
                    secure(context, port, session=ticket).close()
                each = (cpu_seconds(process.pid) - began) / count
                print(f"handshake and request, {name}, {what}: {each * 1e6:.0f} µs of CPU")
            shake(context, port, AT_A_TIME)
            rounds: list[tuple[float, float]] = []
            for _ in range(ROUNDS):
                alone = openssl_alone(context, folder / name.split()[0] / "server.pem", ticket=bits > 0)
                began = cpu_seconds(process.pid)
                for _ in range(0, count // ROUNDS, AT_A_TIME):
                    shake(context, port, AT_A_TIME)
                shaken = -(-(count // ROUNDS) // AT_A_TIME) * AT_A_TIME
                rounds.append((alone, (cpu_seconds(process.pid) - began) / shaken))
            alone, each = (statistics.median(column) for column in zip(*rounds, strict=True))
            ratio = statistics.median(ours / theirs for theirs, ours in rounds)
            print(f"handshake, {name}, full, {AT_A_TIME} at a time: {each * 1e6:.0f} µs of CPU", end="")
            print(f", OpenSSL alone {alone * 1e6:.0f}, x {ratio:.2f}")


def openssl_alone(context: ssl.SSLContext, identity: Path, *, ticket: bool) -> float:
    """Return the CPU seconds of a handshake at the server, between two buffers in memory."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(identity)
    serving.num_tickets = int(ticket)
    took = 0.0
    for _ in range(IN_MEMORY):
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(to_client, to_server, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        began = time.thread_time()
        server = serving.wrap_bio(to_server, to_client, server_side=True)
        with contextlib.suppress(ssl.SSLWantReadError):
            server.do_handshake()
        took += time.thread_time() - began
        client.do_handshake()
        began = time.thread_time()
        server.do_handshake()
        del server
        took += time.thread_time() - began
    return took / IN_MEMORY


def shake(context: ssl.SSLContext, port: int, count: int) -> None:
    """Complete this many handshakes at a time."""
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            sock = context.wrap_socket(connect(port), server_hostname="localhost", do_handshake_on_connect=False)
            sock.setblocking(False)
            try:
                sock.do_handshake()
            except ssl.SSLWantReadError:
                selector.register(sock, selectors.EVENT_READ)
            else:
                sock.close()  # the broker was that quick, and may have nothing more to say
        while selector.get_map():
            for key, _ in selector.select(60):
                sock = key.fileobj  # type: ignore[assignment]
                with contextlib.suppress(ssl.SSLWantReadError):
                    sock.do_handshake()
                    selector.unregister(sock)
                    sock.close()


def idle(folder: Path, authority: Authority, context: ssl.SSLContext, count: int) -> None:
    with broker(folder / "idle", authority, 0) as (process, port):
        held = [secure(context, port)]
        before = usage_of(process.pid).rss_bytes
        held += [secure(context, port, number) for number in range(count)]
        after = usage_of(process.pid).rss_bytes
        print(
            f"{count} idle TLS connections: {(after - before) / count / 1000:.1f} KB each, {after / 1e6:.0f} MB in all"
        )
        for sock in held:
            sock.close()


def client_hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def latency(port: int, topic: str, count: int) -> float:
    """Return the p99 of requests in µs, with one in flight."""
    return float(client("raw_bench", "produce", "--port", port, "--topic", topic, "--count", count)["p99_us"])


def crowd(end: Connection, port: int, first: int, count: int, hello: bytes) -> None:
    """Begin this many handshakes in a separate process, report it, and keep them open until asked to end."""
    held = []
    for number in range(first, first + count):
        held.append(connect(port, number))
        with contextlib.suppress(ConnectionError):  # it was the oldest
            held[-1].sendall(hello if number % 2 else hello[:100])
    end.send("begun")
    end.recv()


def half_open(folder: Path, authority: Authority, context: ssl.SSLContext, count: int, limit: int) -> None:
    """Measure the latency during a storm. `limit` is the number of unauthenticated connections: the oldest are closed
    above it."""
    hello = client_hello(context)
    with broker(folder / f"half-{limit}", authority, 0, connection_authentication_max=str(limit)) as (process, port):
        latency(process.port, "warm", 5000)
        alone = latency(process.port, "alone", 20_000)
        beside: list[float] = []
        done = threading.Event()

        def ask() -> None:
            while not done.is_set():
                beside.append(latency(process.port, "beside", 20_000))

        asking = threading.Thread(target=ask)
        asking.start()
        processes = multiprocessing.get_context("spawn")  # a fork would hold the pipes of the other client
        crowds = [processes.Pipe() for _ in range(0, count, PER_ADDRESS)]
        for number, (_, end) in enumerate(crowds):
            arguments = (end, port, number * PER_ADDRESS, min(count - number * PER_ADDRESS, PER_ADDRESS), hello)
            processes.Process(target=crowd, args=arguments, daemon=True).start()
        for ours, _ in crowds:
            ours.recv()
        open_count = usage_of(process.pid).descriptor_count
        during = len(beside)
        done.set()
        asking.join()
        rss = usage_of(process.pid).rss_bytes
        print(f"{count} half-open handshakes, at most {limit} kept ({open_count} descriptors, {rss / 1e6:.0f} MB):")
        runs = ", ".join(f"{p99:.0f}" for p99 in beside)
        print(f"  p99 of another client {alone:.0f} µs; beside, run by run, {runs} µs ({during} before the last came)")
        for ours, _ in crowds:
            ours.send("enough")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.tls_crowd", description=__doc__.split("\n\n")[0])
    parser.add_argument("--half-open", type=int, default=20_000)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--handshakes", type=int, default=2000)
    parser.add_argument("--only", choices=("handshakes", "idle", "half-open"))
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = Path(tempfile.mkdtemp(prefix="kafkalite-tls-crowd-"))
    authority = Authority()
    context = ssl.create_default_context(cafile=str(authority.write_pem(folder / "authority.pem")))
    gc.disable()
    try:
        if arguments.only in {None, "handshakes"}:
            handshakes(folder, authority, context, arguments.handshakes)
        if arguments.only in {None, "idle"}:
            idle(folder, authority, context, arguments.idle)
        if arguments.only in {None, "half-open"}:
            for limit in (5000, min(arguments.half_open, hard - 2000)):
                half_open(folder, authority, context, arguments.half_open, limit)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
