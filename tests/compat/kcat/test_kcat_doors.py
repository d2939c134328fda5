"""kcat of Debian through every door: librdkafka 2.0.2 with Debian's OpenSSL."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import NoReturn

from tests.compat.doors import Door, House, each_door
from tests.compat.records import values_to_end
from tests.kit.harness import wire

TIMEOUT_S = 60
LINES = [f"line {number}" for number in range(50)]


@each_door
def test_writes_once_and_reads_in_a_group(
    house: House, door: Door, topic: str, not_run: Callable[[str, str], NoReturn]
) -> None:
    path = shutil.which("kcat") or shutil.which("kafkacat")
    if path is None:
        not_run("kcat", "kcat is not installed (apt-get install kcat)")

    def kcat(*arguments: str, text: str = "") -> list[str]:
        settings = [word for key, value in door.librdkafka().items() for word in ("-X", f"{key}={value}")]
        done = subprocess.run(
            [path, "-m", "60", *settings, *arguments], input=text, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    with wire.Connection(int(house.plain.rpartition(":")[2])) as connection:
        assert connection.create_topic(topic, 1) == 0
    kcat("-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", text="\n".join(LINES) + "\n")
    assert values_to_end(house.plain, topic, "read_committed") == LINES
    reading = ("-X", "auto.offset.reset=earliest", "-c", str(len(LINES)), "-q")
    assert kcat("-G", f"group-{topic}", *reading, topic) == LINES
