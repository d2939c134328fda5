"""Feeds a broker with spoiled exchanges of strangers: `python -m tests.fuzz --minutes 20 --build asan`.

Each of TLS, SASL and HTTP has its share of the time, and its own process of the broker, of the release, the debug or
the sanitised build (`make build-debug`, `make build-asan`). It ends with status 1 when the broker died, logged a
traceback or a report of the sanitiser, did not serve an honest client, let somebody in, or grew without bound. Seeds
are shown: `--seed` gives the same exchanges again. Counts by commit: docs/proof.md.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from tests.fuzz.exchanges import EXCHANGES, Doors
from tests.kills.campaign import commit
from tests.kit.harness.certificates import Authority
from tests.kit.harness.tls_broker import answered, api_versions
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, free_port
from tests.power import proof

BUILDS = ("release", "debug", "asan")
LOOK_EVERY = 200
"""Exchanges between two looks at the broker."""
COUNTED_MIN = 10.0
"""Minutes of a run that is written down."""
GROWTH_MAX = 300 << 20
SIGNS = (b"Traceback", b"AddressSanitizer", b"runtime error", b"assertion", b"Segmentation", b"Fatal Python error")
SIGNED_IN = re.compile(r'kafkalite_sign_ins_total\{[^}]*outcome="success"[^}]*\} [1-9]')
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="unused" password="unused" user_alice="correct horse";'
)


class Trouble(Exception):
    """A forbidden behaviour of the broker."""


def environment(build: str) -> dict[str, str]:
    """Of a broker's process of a build."""
    if build == "release":
        return {}
    native = REPOSITORY / "build" / build / "kafkalite" / "_native"
    if not native.is_dir():
        raise SystemExit(f"there is no {build} build: make build-{build}")
    found = {"KAFKALITE_NATIVE_PATH": str(native)}
    if build == "asan":
        libraries = [_library("libasan.so"), _library("libstdc++.so.6")]
        options = "detect_leaks=0:allocator_may_return_null=1:handle_abort=0:handle_sigbus=0:quarantine_size_mb=32"
        found |= {"LD_PRELOAD": ":".join(libraries), "PYTHONMALLOC": "malloc", "ASAN_OPTIONS": options}
    return found


def _library(name: str) -> str:
    command = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def broker_of(folder: Path, build: str) -> tuple[BrokerProcess, Doors]:
    """A broker with a listener of each kind, without known users."""
    folder.mkdir(parents=True)
    authority = Authority()
    authority_file = authority.write_pem(folder / "authority.pem")
    authority.issue("server").write_pem(folder / "server.pem")
    ports = {name: free_port() for name in ("SSL", "SASL_SSL", "SASL_PLAINTEXT", "http")}
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items() if name != "http"),
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.location": str(authority_file),
        "ssl.client.auth": "requested",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "connection.failed.authentication.delay.ms": "0",
        "metrics.listeners": f"http://127.0.0.1:{ports['http']}",
    }
    process = BrokerProcess(folder, settings, port=ports["SSL"], environment=environment(build))
    return process.start(timeout_s=300), Doors(ports, str(authority_file))


class Watch:
    """Looks at a broker now and then: Trouble when it is not as it has to be."""

    def __init__(self, broker: BrokerProcess, doors: Doors) -> None:
        self._broker, self._doors, self._log_size = broker, doors, 0
        self.rss = GROWTH_MAX
        self.look()
        self.rss = broker.usage().rss_bytes

    def look(self) -> None:
        """Once."""
        if not self._broker.alive:
            raise Trouble("the broker died")
        with self._broker.log_path.open("rb") as log:
            log.seek(max(0, self._log_size - 100))
            text = log.read()
            self._log_size = log.tell()
        for sign in SIGNS:
            if sign in text:
                raise Trouble(f"{sign.decode()!r} in the log")
        grown = self._broker.usage().rss_bytes - self.rss
        if grown > GROWTH_MAX:
            raise Trouble(f"it holds {grown >> 20} MiB more than at first")
        with self._doors.context.wrap_socket(self._doors.connect("SSL")) as sock:
            sock.sendall(api_versions(5))
            if answered(sock) != 5:
                raise Trouble("an honest client is not served")
        if SIGNED_IN.search(get(self._doors.ports["http"], "/metrics")):
            raise Trouble("somebody has signed in")


def get(port: int, path: str) -> str:
    """What an honest HTTP client is given."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        while piece := sock.recv(65536):
            answer += piece
    if b" 200 " not in answer[:20]:
        raise Trouble("an honest HTTP client is not served")
    return answer.decode()


def fuzz(name: str, build: str, seconds: float, seed: int) -> int:
    """Exchanges done; Trouble."""
    folder = Path(tempfile.mkdtemp(prefix=f"kafkalite-fuzz-{name}-"))
    broker, doors = broker_of(folder / "broker", build)
    chance = random.Random(f"{seed} {name}")
    count = 0
    try:
        watch = Watch(broker, doors)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            EXCHANGES[name](doors, chance)
            count += 1
            if count % LOOK_EVERY == 0:
                watch.look()
        watch.look()
        broker.stop(300)
    except (Trouble, OSError, AssertionError) as error:
        raise Trouble(f"{name}, {build}, seed {seed}, exchange {count}: {error!r}; {broker.log_path}") from error
    finally:
        broker.close()
    shutil.rmtree(folder)
    return count


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--build", choices=BUILDS, default="release")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args(arguments)
    tried = commit()  # it may have gone on when this ends
    row: dict[str, object] = {"build": given.build, "minutes": given.minutes}
    for name in EXCHANGES:
        try:
            row[name] = fuzz(name, given.build, given.minutes * 60 / len(EXCHANGES), given.seed)
        except Trouble as error:
            print(error)
            return 1
        print(f"{name}: {row[name]:,} exchanges, seed {given.seed}", flush=True)
    if given.minutes >= COUNTED_MIN and not tried.endswith("+"):
        proof.add("fuzz", tried, row, str(given.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
