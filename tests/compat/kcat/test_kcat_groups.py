"""kcat -G: librdkafka 2.0.2's balanced consumer, with everything that Debian users have scripts for."""

from __future__ import annotations

from collections.abc import Callable

from tests.compat.kcat.test_kcat import create, kcat

__all__ = ["kcat"]


def test_group_reads_on_where_it_stopped(kcat: Callable[..., str], port: int, topic: str) -> None:
    create(port, topic, 3)
    kcat("-P", "-t", topic, text="".join(f"a{number}\n" for number in range(50)))
    settings = ["-q", "-e", "-X", "auto.offset.reset=earliest", "-X", "enable.auto.commit=true"]
    first = kcat(*settings, "-G", f"group-{topic}", topic).split()
    assert sorted(first) == sorted(f"a{number}" for number in range(50))
    kcat("-P", "-t", topic, text="b1\nb2\nb3\n")
    assert sorted(kcat(*settings, "-G", f"group-{topic}", topic).split()) == ["b1", "b2", "b3"]
