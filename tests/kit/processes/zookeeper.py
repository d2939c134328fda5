"""A real ZooKeeper, Debian's, as a separate process on a free port with a temporary directory.

`expire` ends a client's session from outside, as the server does when it has not heard from it in time;
`expire_session` that of another process, of which only the number is known.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

if TYPE_CHECKING:
    from typing import Self

JARS = Path("/usr/share/java")
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
START_S = 180.0
SESSION_S = 10.0
"""Of a test's own clients, which look on while the server is restarted."""
TICK_MS = 200
"""Sessions may be as short as two ticks: tests need not wait for the usual six seconds."""
LOG_STEP_KIB = 1024
"""By which the transaction log grows: it is read from the start to its zeros."""
_PASSWORD_SIZE = 16
_SERVER_SECRET = 0xB3415C00
_JAVA_FACTOR, _JAVA_ADDEND, _JAVA_MASK = 0x5DEECE66D, 0xB, (1 << 48) - 1


def installed() -> bool:
    """Whether there is a ZooKeeper to start."""
    return (JARS / "zookeeper.jar").exists() and shutil.which("java") is not None


def password_of(session: int) -> bytes:
    """A session's password, as the server makes it: Java's Random, seeded with the session's number and a constant."""
    state = (session ^ _SERVER_SECRET ^ _JAVA_FACTOR) & _JAVA_MASK
    password = b""
    while len(password) < _PASSWORD_SIZE:
        state = (state * _JAVA_FACTOR + _JAVA_ADDEND) & _JAVA_MASK
        password += (state >> 16).to_bytes(4, "little")
    return password


class ZooKeeper:
    """One server."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="kafkalite-zookeeper-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        config = self._directory / "zoo.cfg"
        config.write_text(
            f"tickTime={TICK_MS}\ndataDir={self._directory}/data\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\nmaxSessionTimeout=60000\n"
        )
        log = (self._directory / "log").open("ab")
        classes = ":".join(str(path) for path in sorted(JARS.glob("*.jar")))
        self._process = subprocess.Popen(
            [
                "java",
                *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                "-Dzookeeper.log.dir=" + str(self._directory),
                f"-Dzookeeper.preAllocSize={LOG_STEP_KIB}",
                "-cp",
                classes,
                MAIN,
                str(config),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        log.close()
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                told = (self._directory / "log").read_text()[-2000:]
                self.stop()
                raise RuntimeError(f"ZooKeeper did not start: {told}")
            time.sleep(0.05)
        return self

    def kill(self) -> None:
        """Ends the process at once; its data stay for the next start."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop the process with SIGSTOP: connections stay open, and requests wait until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def client(self) -> KazooClient:
        """A connected client of the test's own, which comes back soon after the server does."""
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5, ignore_expire=True)
        made = KazooClient(hosts=self.address, timeout=SESSION_S, connection_retry=retry)
        made.start(timeout=START_S)
        return made

    def expire(self, client: KazooClient) -> None:
        """Ends the session of a client: a second connection takes it over and closes it."""
        self._steal(client.client_id)

    def expire_session(self, session: int) -> None:
        """Ends a session by its number, as nodes name their owner."""
        self._steal((session, password_of(session)))

    @property
    def transaction_log(self) -> Path:
        """Where every change was written down (`tests.kit.oracles.zookeeper_log` reads it)."""
        return self._directory / "data" / "version-2"

    def _steal(self, client_id: tuple[int, bytes]) -> None:
        thief = KazooClient(hosts=self.address, client_id=client_id)
        thief.start(timeout=START_S)
        thief.stop()
        thief.close()

    def _answers(self) -> bool:
        """Whether it serves: it accepts connections a while before, and leaves them waiting."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as asked:
            asked.sendall(b"srvr")
            return b"Mode:" in asked.recv(65536)
        return False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
