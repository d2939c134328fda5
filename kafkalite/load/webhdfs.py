"""Store loaded files in HDFS through WebHDFS: `webhdfs://namenode:9870/path`, or `swebhdfs://` for TLS.

A writer creates a lock file and touches it regularly. If it stops doing so, another writer may replace the lock file.
The old writer can then no longer publish its change (kafkalite.load.manifest).

The package `hdfs` implements the protocol, without Java or libhdfs.

Thread rule: one thread at a time, as in kafkalite.load.storage. The thread that touches the lock file has its own
client.
"""

from __future__ import annotations

import contextlib
import getpass
import io
import json
import os
import socket
import threading
import time
import urllib.parse
import uuid
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from kafkalite.base.extras import needs_extra
from kafkalite.load.storage import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SCHEMES: Final = {"webhdfs": "http", "swebhdfs": "https"}
PORTS: Final = {"webhdfs": 9870, "swebhdfs": 9871}
TIMEOUT_S: Final = 30.0
"""How long a request may be idle."""
WAIT_S: Final = 60.0
"""How long requests are retried while the NameNode is away or in safe mode."""
LEASE_S: Final = 60.0
"""After this time without a touch, another writer may replace the lock file."""
TOUCH_S: Final = 15.0
POLL_S: Final = 0.2
READ_SIZE: Final = 1024 * 1024
USER: Final = "HADOOP_USER_NAME"
"""The environment variable for the user name of Hadoop's own clients."""
MISSING: Final = ("FileNotFoundException", "PathNotFoundException")
BUSY: Final = ("SafeModeException", "RetriableException", "StandbyException")
FORBIDDEN: Final = ("AccessControlException", "SecurityException")


def is_webhdfs(place: str) -> bool:
    """Return whether a path is a WebHDFS URL."""
    return place.partition("://")[0] in SCHEMES


def parsed(url: str) -> tuple[str, str]:
    """Split a WebHDFS URL into the NameNodes, in the form that the package `hdfs` expects, and the path. LoadError."""
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    hosts = []
    for host in authority.split(","):
        split = urllib.parse.urlsplit(f"//{host}")
        try:
            port = split.port or PORTS[scheme]
        except ValueError:
            port = 0
        if not split.hostname or split.username is not None or not port:
            raise LoadError(f"{url} is not an HDFS URL; write {scheme}://NAMENODE:{PORTS[scheme]}/PATH (user: {USER})")
        hosts.append(f"{SCHEMES[scheme]}://{split.hostname}:{port}")
    if not path.strip("/"):
        raise LoadError(f"{url} has no path; write {scheme}://NAMENODE:{PORTS[scheme]}/PATH")
    return ";".join(hosts), f"/{path.strip('/')}"


class WebHdfs:
    """A Storage in a directory of HDFS. LoadError if HDFS refuses a request."""

    keeps_turns = False

    def __init__(self, url: str) -> None:
        self._hosts, self._path = parsed(url)
        self.location = url.rstrip("/")
        self._user = os.environ.get(USER) or getpass.getuser()
        self._client: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    @property
    def client(self) -> Any:
        """The client of the package `hdfs`. LoadError if the package is not installed.

        Unlike other Python clients, it reports whether a rename was done, streams a file in one request, recognizes
        error responses when reading a file, and supports several NameNodes.
        """
        if self._client is None:
            try:
                import hdfs
            except ImportError as error:
                raise LoadError(needs_extra(f"{self.location} needs the package hdfs", "hdfs")) from error
            self._client = hdfs.InsecureClient(self._hosts, user=self._user, timeout=TIMEOUT_S)
        return self._client

    def _full(self, name: str) -> str:
        """Return the HDFS path of a name, or of a full URL."""
        name = name.removeprefix(self.location)
        return f"{self._path}/{name.strip('/')}".rstrip("/")

    def _asked(self, call: Callable[[], Any], name: str) -> Any:
        """Call a function, and call it again after temporary errors. Return its result.

        Raises FileNotFoundError, FileExistsError and LoadError.
        """
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return call()
            except self._failures as error:
                self._translated(error, name, waits=time.monotonic() < deadline)
            time.sleep(POLL_S)

    @property
    def _failures(self) -> tuple[type[Exception], ...]:
        """Return the exception classes of the packages `hdfs` and `requests`."""
        import requests
        from hdfs.util import HdfsError

        return HdfsError, requests.exceptions.RequestException

    @contextlib.contextmanager
    def translating(self, name: str) -> Iterator[None]:
        """Return a context for a call that cannot be retried.

        Exceptions of the package `hdfs` become LoadError or OSError.
        """
        try:
            yield
        except self._failures as error:
            self._translated(error, name, waits=False)

    def _translated(self, error: Exception, name: str, *, waits: bool) -> None:
        """Raise the error for an exception of the package `hdfs`: a LoadError or an OSError.

        If `waits` is set and the problem may be temporary, return instead.
        """
        import requests

        if isinstance(error, requests.exceptions.ConnectionError | requests.exceptions.Timeout):
            if waits:
                return
            raise LoadError(f"HDFS at {self._hosts} does not respond") from error
        kind = getattr(error, "exception", None) or ""
        text = str(error).partition("\n")[0].strip()
        if kind in MISSING or "does not exist" in text:
            raise FileNotFoundError(f"{self.location}/{name} does not exist") from error
        if kind == "FileAlreadyExistsException":
            raise FileExistsError(f"{self.location}/{name} already exists") from error
        if kind in FORBIDDEN or "Authentication" in text:
            who = f"user {self._user} (from {USER} or the system)"
            raise LoadError(f"HDFS at {self._hosts} denies {who} access to {self._full(name)}: {text}") from error
        if kind in BUSY or "safe mode" in text:
            if waits:
                return
            raise LoadError(f"HDFS at {self._hosts} is in safe mode or its NameNode is in standby: {text}") from error
        raise LoadError(f"HDFS at {self._hosts} rejected {self._full(name)}: {text or kind}") from error

    # --- files --------------------------------------------------------------------------------------------------------

    def exists(self, name: str) -> bool:
        return self._status(name) is not None

    def _status(self, name: str) -> dict[str, Any] | None:
        with contextlib.suppress(FileNotFoundError):
            found: dict[str, Any] = self._asked(lambda: self.client.status(self._full(name)), name)
            return found
        return None

    def names(self, folder: str) -> list[str]:
        try:
            found: list[str] = self._asked(lambda: self.client.list(self._full(folder)), folder)
        except FileNotFoundError:
            return []
        return sorted(found)

    def read(self, name: str) -> bytes:
        def whole() -> bytes:
            with self.client.read(self._full(name), chunk_size=READ_SIZE) as chunks:
                return b"".join(chunks)

        data: bytes = self._asked(whole, name)
        return data

    def open(self, name: str) -> IO[bytes]:
        status = self._status(name)
        if status is None:
            raise FileNotFoundError(f"{self.location}/{name} does not exist")
        return io.BufferedReader(_Reader(self, name, status["length"]), READ_SIZE)

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """Return `length` bytes of a file from `offset` on."""

        def part() -> bytes:
            with self.client.read(self._full(name), offset=offset, length=length, chunk_size=READ_SIZE) as chunks:
                return b"".join(chunks)

        data: bytes = self._asked(part, name)
        if len(data) != length:
            raise LoadError(f"HDFS returned {len(data)} of {length} bytes of {self._full(name)} at {offset}")
        return data

    def create(self, name: str) -> IO[bytes]:
        writer = self._asked(lambda: self.client.write(self._full(name), overwrite=False), name)
        return cast("IO[bytes]", _Writer(self, name, writer))

    def finish(self, file: IO[bytes]) -> None:
        file.close()

    def put(self, name: str, data: bytes) -> None:
        temporary = f"{name}.{uuid.uuid4().hex}.tmp"
        self._asked(lambda: self.client.write(self._full(temporary), data=data, overwrite=True), name)
        self.move(temporary, name)

    def move(self, old: str, new: str) -> None:
        """Rename a file, which HDFS does atomically.

        FileExistsError if the new name exists, FileNotFoundError if the old name does not.
        """
        deadline = time.monotonic() + WAIT_S
        asked = False
        while True:
            try:
                answer = self.client._rename(self._full(old), destination=self._full(new))  # noqa: SLF001  # the answer itself
                if answer.json()["boolean"]:
                    return
            except self._failures as error:
                self._translated(error, old, waits=time.monotonic() < deadline)
                asked = True  # the rename may have been done
                time.sleep(POLL_S)
                if self.exists(old):
                    continue
            there = self.exists(new)
            if asked and there and not self.exists(old):
                return
            if there:
                raise FileExistsError(f"{self.location}/{new} already exists")
            raise FileNotFoundError(f"{self.location}/{old} does not exist")

    def make_folder(self, folder: str) -> set[str]:
        self._asked(lambda: self.client.makedirs(self._full(folder)), folder)
        return set()

    def sync(self, folders: Iterable[str]) -> None:
        """Do nothing: an acknowledged rename is already in the NameNode's journal."""

    def remove(self, name: str) -> None:
        self._asked(lambda: self.client.delete(self._full(name)), name)

    def remove_folder(self, folder: str) -> None:
        self._asked(lambda: self.client.delete(self._full(folder), recursive=True), folder)

    def place(self, name: str) -> str:
        return name if name.startswith(self.location) else f"{self.location}/{name}".rstrip("/")

    def filesystem(self) -> Any:
        from kafkalite.load.arrow_files import filesystem_of

        return filesystem_of(self)

    # --- turns --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def turn(self, name: str, timeout_s: float) -> Iterator[None]:
        mine = {**this_process(), "token": uuid.uuid4().hex}
        self._take(name, mine, timeout_s)
        over = threading.Event()
        toucher = threading.Thread(target=self._touch, args=(name, over), name="hdfs-turn", daemon=True)
        toucher.start()
        try:
            yield
        finally:
            over.set()
            toucher.join()
            with contextlib.suppress(LoadError, FileNotFoundError):
                if self._holder(name).get("token") == mine["token"]:
                    self.remove(name)

    def _take(self, name: str, mine: dict[str, Any], timeout_s: float) -> None:
        """Create the lock file. Wait until its current holder removes it, dies, or stops touching it.

        A holder can lose the lock while it runs, if it was suspended or the NameNode was unavailable. So the next
        writer first renames the pending file of the unfinished change.

        LoadError after `timeout_s` seconds.
        """
        deadline = time.monotonic() + timeout_s
        data = json.dumps(mine).encode()
        seen, since_s = None, 0.0
        while True:
            with contextlib.suppress(FileExistsError):
                self._asked(lambda: self.client.write(self._full(name), data=data, overwrite=False), name)
                return
            status = self._status(name)
            touched = None if status is None else (status["modificationTime"], status["fileId"])
            if touched != seen:
                seen, since_s = touched, time.monotonic()
            holder = self._holder(name)
            if holder.get("token") == mine["token"]:  # an earlier attempt succeeded, but its response was lost
                return
            if touched is not None and (time.monotonic() - since_s > LEASE_S or is_dead(holder)):
                with contextlib.suppress(FileNotFoundError):
                    stale = f"{name}.{uuid.uuid4().hex}.tmp"
                    self.move(name, stale)  # only one of the waiting writers succeeds
                    self.remove(stale)
                continue
            if time.monotonic() > deadline:
                raise LoadError(f"another load has locked {self.location}; stop it or wait until it ends")
            time.sleep(POLL_S)

    def _holder(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.read(name))
        except (FileNotFoundError, ValueError):
            return {}
        return found

    def _touch(self, name: str, over: threading.Event) -> None:
        own = WebHdfs(self.location)
        while not over.wait(TOUCH_S):
            with contextlib.suppress(Exception):  # HDFS is away: the turn may be lost, and the change then fails
                own.client.set_times(own._full(name), modification_time=time.time_ns() // 1_000_000)


class _Reader(io.RawIOBase):
    """A file of HDFS for reading with random access."""

    def __init__(self, storage: WebHdfs, name: str, size: int) -> None:
        super().__init__()
        self._storage = storage
        self._file_name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), max(0, self._size - self._at))
        if length:
            buffer[:length] = self._storage.read_at(self._file_name, self._at, length)
            self._at += length
        return length


class _Writer(io.RawIOBase):
    """A file of HDFS for sequential writing. Its content is complete after `close`."""

    def __init__(self, storage: WebHdfs, name: str, writer: Any) -> None:
        super().__init__()
        self._storage = storage
        self._file_name = name
        self._writer = writer
        self._writer.__enter__()
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        if chunk:
            self._guarded(lambda: self._writer.write(chunk))
            self._at += len(chunk)
        return len(chunk)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._guarded(lambda: self._writer.__exit__(None, None, None))

    def _guarded(self, call: Callable[[], Any]) -> None:
        with self._storage.translating(self._file_name):
            call()


def this_process() -> dict[str, Any]:
    """Return data that identifies this process to other processes of the same machine."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {"host": socket.gethostname(), "boot": boot, "pid": os.getpid(), "started": started(os.getpid())}


def started(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; "" if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def is_dead(holder: dict[str, Any]) -> bool:
    """Return whether the holder of the lock was a process of this machine that no longer exists."""
    here = this_process()
    same = holder.get("host") == here["host"] and holder.get("boot") == here["boot"]
    return same and started(int(holder.get("pid", 0))) != holder.get("started")
