"""HDFS itself: a NameNode and a DataNode in one process (Hadoop's MiniDFSCluster), from its published jars.

Maven fetches the jars once into build/hadoop. Files stay over a restart; the NameNode's ports do too.
"""

from __future__ import annotations

import getpass
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from tests.kit.harness.alone import alone
from tests.kit.processes.broker import REPOSITORY, free_port
from tests.kit.processes.maven import NotAvailable, fetch_once

VERSION = "3.5.0"
JAR_DIR = REPOSITORY / "build" / "hadoop" / VERSION
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.kafkalite.tests</groupId><artifactId>hdfs</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-minicluster</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-runtime</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
"""
START_TIMEOUT_S = 180


@alone()
def jars() -> Path:
    """The folder with the jars, fetched when it is not there yet."""
    return fetch_once(JAR_DIR, POM.format(version=VERSION), f"Hadoop {VERSION}")


class MiniHdfs:
    """One NameNode, one DataNode. A context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rpc_port = free_port()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, path: str) -> str:
        return f"webhdfs://127.0.0.1:{self.port}{path}"

    def rpc_url(self, path: str) -> str:
        """As Hadoop's own clients call it."""
        return f"hdfs://127.0.0.1:{self._rpc_port}{path}"

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self.start(fresh=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def start(self, *, fresh: bool = False, ready: bool = True) -> None:
        """`ready`: waits until files can be written."""
        settings = {
            "hdfs.minidfs.basedir": str(self._directory / "dfs"),
            "dfs.namenode.safemode.extension": "0",
            "dfs.replication": "1",
        }
        words = [word for name, value in settings.items() for word in ("-D", f"{name}={value}")]
        words += ["-nnport", str(self._rpc_port), "-httpport", str(self.port), *(["-format"] if fresh else [])]
        main = "org.apache.hadoop.test.MiniDFSClusterManager"
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*", main, *words],
                cwd=self._directory, stdout=log, stderr=log,
            )  # fmt: skip
        if ready:
            self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        url = f"http://127.0.0.1:{self.port}/webhdfs/v1/ready?op=CREATE&overwrite=true&user.name={getpass.getuser()}"
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                raise NotAvailable(f"HDFS ended at its start:\n{(self._directory / 'log').read_text()[-3000:]}")
            try:  # the redirect shows that a DataNode is available
                request = urllib.request.Request(url, method="PUT", data=b"")
                urllib.request.build_opener(_NoRedirect).open(request, timeout=5)
            except urllib.error.HTTPError as error:
                if error.code == 307:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise NotAvailable(f"HDFS was not ready within {START_TIMEOUT_S} s")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def admin(self, *words: str) -> str:
        """dfsadmin, such as -safemode enter."""
        main = "org.apache.hadoop.hdfs.tools.DFSAdmin"
        command = ["java", "-Xmx256m", "-cp", f"{jars()}/*", main, "-fs", f"hdfs://127.0.0.1:{self._rpc_port}", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: object) -> None:
        return None
