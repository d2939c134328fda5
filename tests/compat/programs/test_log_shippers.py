"""Debian's rsyslog, syslog-ng and collectd send lines and measurements, each started in the foreground as a program.

The packages are fetched with apt-get, unpacked in ~/.cache/kafkalite-tests and run from there: nothing is installed, no
service is started. What they need besides (librdkafka) is the machine's.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from kafkalite.client import Client
from tests.compat.toolchains import CACHE, NotAvailable, run
from tests.kit.harness.alone import alone
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.slow

TIMEOUT_S = 60.0
PACKAGES = (
    *("rsyslog", "rsyslog-kafka", "libestr0", "libfastjson4"),
    *("syslog-ng-core", "syslog-ng-mod-rdkafka", "libpcre3", "libivykis0", "libnet1"),
    "collectd-core",
)
FOLDER = CACHE / "debian-programs"
LIBRARIES = f"lib/{platform.machine()}-linux-gnu"


@alone()
def unpacked() -> Path:
    """The root of the unpacked packages."""
    root = FOLDER / "root"
    if not (FOLDER / "complete").exists():
        if shutil.which("apt-get") is None:
            raise NotAvailable("apt-get is not on the PATH")
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        run("apt-get", "download", *PACKAGES, cwd=FOLDER)
        for package in FOLDER.glob("*.deb"):
            run("dpkg", "-x", str(package), str(root))
        (FOLDER / "complete").touch()
    return root


@pytest.fixture
def root(not_run: Callable[[str, str], NoReturn]) -> Path:
    try:
        return unpacked()
    except NotAvailable as missing:
        not_run("rsyslog, syslog-ng and collectd", str(missing))


@contextmanager
def running(root: Path, directory: Path, program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon in the foreground, ended by SIGTERM."""
    libraries = [root / "usr" / LIBRARIES, root / LIBRARIES, root / "usr/lib/syslog-ng"]
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            [str(root / "usr/sbin" / program), *arguments],
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def sent(bootstrap: str, topic: str) -> list[bytes]:
    """Return the records that have arrived so far."""
    with Client(bootstrap) as client:
        if topic not in client.topics():
            return []
        return [bytes(value) for chunk in client.read(topic, 0) for value in chunk.columns.values]


def wait_for(bootstrap: str, topic: str, count: int, process: subprocess.Popen[bytes], directory: Path) -> list[bytes]:
    def there() -> bool:
        assert process.poll() is None, (directory / "output").read_text()
        return len(sent(bootstrap, topic)) >= count

    wait_until(there, TIMEOUT_S, f"{count} messages")
    return sent(bootstrap, topic)


LINES = [b"line %d" % number for number in range(50)]


def test_rsyslog_sends_each_line_of_a_file(root: Path, bootstrap: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "in.log").write_bytes(b"\n".join(LINES) + b"\n")
    (tmp_path / "conf").write_text(
        f'global(workDirectory="{tmp_path}")\n'
        'module(load="imfile")\nmodule(load="omkafka")\n'
        'template(name="bare" type="string" string="%msg%")\n'
        f'input(type="imfile" File="{tmp_path}/in.log" Tag="app" ruleset="out")\n'
        f'ruleset(name="out") {{ action(type="omkafka" broker=["{bootstrap}"] topic="{topic}" template="bare"'
        ' confParam=["compression.codec=zstd"]) }\n'
    )
    modules = root / "usr" / LIBRARIES / "rsyslog"
    flags = ("-n", "-f", f"{tmp_path}/conf", "-i", f"{tmp_path}/pid", "-M", str(modules))
    with running(root, tmp_path, "rsyslogd", *flags) as process:
        assert wait_for(bootstrap, topic, len(LINES), process, tmp_path) == LINES


def test_syslog_ng_sends_each_line_of_a_file(root: Path, bootstrap: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "in.log").write_bytes(b"\n".join(LINES) + b"\n")
    (tmp_path / "conf").write_text(
        f'@version: 3.38\nsource s {{ file("{tmp_path}/in.log" follow-freq(1) flags(no-parse)); }};\n'
        f'destination d {{ kafka-c(bootstrap-servers("{bootstrap}") topic("{topic}") message("$MSG")); }};\n'
        "log { source(s); destination(d); };\n"
    )
    places = [("-f", "conf"), ("--persist-file", "persist"), ("--control", "control"), ("--pidfile", "pid")]
    flags = [word for flag, name in places for word in (flag, str(tmp_path / name))]
    modules = ("--module-path", str(root / "usr/lib/syslog-ng/3.38"))
    with running(root, tmp_path, "syslog-ng", "-F", "-e", "--no-caps", *flags, *modules) as process:
        assert wait_for(bootstrap, topic, len(LINES), process, tmp_path) == LINES


def test_collectd_sends_measurements_as_json(root: Path, bootstrap: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(
        f'Hostname "box"\nBaseDir "{tmp_path}"\nPIDFile "{tmp_path}/pid"\nInterval 1\n'
        f'PluginDir "{root}/usr/lib/collectd"\nTypesDB "{root}/usr/share/collectd/types.db"\n'
        "LoadPlugin load\nLoadPlugin write_kafka\n"
        f'<Plugin write_kafka>\n  Property "metadata.broker.list" "{bootstrap}"\n'
        f'  <Topic "{topic}">\n    Format JSON\n  </Topic>\n</Plugin>\n'
    )
    with running(root, tmp_path, "collectd", "-f", "-C", f"{tmp_path}/conf") as process:
        first, *_ = wait_for(bootstrap, topic, 3, process, tmp_path)
    (measured,) = json.loads(first)
    assert (measured["host"], measured["plugin"], len(measured["values"])) == ("box", "load", 3)
