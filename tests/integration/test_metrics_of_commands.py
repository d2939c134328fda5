"""`/metrics` and `/health/…` of commands: their sources, their users, and errors of a bad address."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.base.metric_families import Family, labels
from kafkalite.cli import Parser, UsageError
from kafkalite.cli.metrics_page import add_metrics_arguments, metrics_page
from kafkalite.web.users import Role, token_line
from tests.kit.harness.scrape import Scrape, ask

pytestmark = pytest.mark.integration


def flags(*words: str) -> argparse.Namespace:
    parser = Parser()
    add_metrics_arguments(parser)
    return parser.parse_args(words)


def families() -> Iterator[Family]:
    yield Family("kafkalite_things", "counter", "Things.", [(labels(kind="a"), 3)])


def broken() -> Iterator[Family]:
    raise RuntimeError("out of order")
    yield


def test_what_a_command_tells_stands_beside_its_process_and_a_broken_source_is_counted() -> None:
    reasons: list[str] = []
    with metrics_page(flags("--metrics", "127.0.0.1:0"), [families, broken], ready=lambda: reasons) as url:
        assert url is not None
        seen = Scrape.of(url)
        assert seen("kafkalite_things_total", kind="a") == 3
        assert seen("process_resident_memory_bytes") > 0
        assert seen("kafkalite_scrape_failed_sources") == 1
        assert (ask(url, "/health/live").status, ask(url, "/health/ready").status) == (200, 200)
        reasons.append("the live broker is away")
        down = ask(url, "/health/ready")
        assert (down.status, down.json) == (503, {"status": "down", "reasons": reasons})
        assert ask(url, "/health/live").status == 200
        assert ask(url, "/").status == 404
        assert ask(url, method="POST").status == 405


def test_without_the_flag_nothing_listens() -> None:
    with metrics_page(flags(), [families]) as url:
        assert url is None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--metrics", "0.0.0.0:0"], "reachable from other machines"),
        (["--metrics", "127.0.0.1:70000"], "not between 0 and 65535"),
        (["--metrics", "a b:1"], "not an address to listen on"),
        (["--metrics-users", "users"], "requires --metrics"),
    ],
)
def test_an_address_that_cannot_be_is_a_usage_error(words: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why), metrics_page(flags(*words), []):
        raise AssertionError("it serves")


def test_other_machines_are_asked_who_they_are(tmp_path: Path) -> None:
    line, token = token_line("prometheus", Role.VIEWER)
    file = tmp_path / "users"
    file.write_text(line + "\n")
    file.chmod(0o600)
    with metrics_page(flags("--metrics", "0.0.0.0:0", "--metrics-users", str(file)), [families]) as url:
        assert url is not None
        here = url.replace("0.0.0.0", "127.0.0.1")
        assert ask(here).status == 401
        assert ask(here, Authorization=f"Bearer {token}").status == 200
