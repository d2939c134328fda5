"""Families to text: what another library's parsers read back, in both formats."""

import gzip
import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.base.metric_families import Family, labels
from kafkalite.metrics import text as text_module
from kafkalite.metrics.text import PIECE_LINES, compressed, render, wants_openmetrics
from tests.kit.harness.scrape import Scrape


def rendered(*families: Family, openmetrics: bool = False) -> str:
    return b"".join(render(families, openmetrics=openmetrics)).decode()


FAMILIES = (
    Family("requests", "counter", 'Requests, "all".\nReally \\ all.', [("", 3), (labels(topic="a"), 2)]),
    Family("free", "gauge", "Free.", [("", -1.5), (labels(disk="x"), math.inf)]),
    Family("times", "summary", "Times.", [(labels(quantile=0.5), 1.25), ("_count", 4), ("_sum", 9.5)]),
    Family(
        "spans",
        "histogram",
        "Spans.",
        [(f"_bucket{labels(le='0.5')}", 1), (f"_bucket{labels(le='+Inf')}", 3), ("_count", 3), ("_sum", 7.0)],
    ),
)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_both_formats_are_read_back(openmetrics: bool) -> None:
    scrape = Scrape(rendered(*FAMILIES, openmetrics=openmetrics), openmetrics=openmetrics)
    assert {name: family.type for name, family in scrape.families.items()} == {
        "requests": "counter",
        "free": "gauge",
        "times": "summary",
        "spans": "histogram",
    }
    assert scrape.families["requests"].documentation == 'Requests, "all".\nReally \\ all.'
    assert scrape("requests_total") == 3
    assert scrape("requests_total", topic="a") == 2
    assert scrape("free", disk="x") == math.inf
    assert scrape("times", quantile=0.5) == 1.25
    assert scrape("spans_bucket", le="+Inf") == 3


@given(text=st.text(st.characters(exclude_categories=["Cs"])), value=st.floats())
def test_any_client_id_and_any_value_are_exported(text: str, value: float) -> None:
    told = rendered(Family("x", "gauge", "X.", [(labels(client=text), value)]), openmetrics=True)
    assert len(told.splitlines()) == 4
    ((_, found),) = Scrape(told, openmetrics=True).samples.items()
    assert found == value or (math.isnan(found) and math.isnan(value))


def test_two_parts_with_one_name_are_exported_together() -> None:
    parts = [Family("x", "gauge", "X.", [(labels(part=part), at)]) for at, part in enumerate("ab")]
    text = rendered(parts[0], FAMILIES[0], parts[1])
    assert text.count("# TYPE x gauge") == 1
    assert Scrape(text)("x", part="b") == 1


def test_a_name_without_samples_is_not_exported() -> None:
    assert rendered(Family("x", "gauge", "X.", [])) == ""


def test_others_get_a_turn_after_each_family_and_each_thousand_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    done = [0]  # since the last breath, in families and lines
    most = []

    def breathe() -> None:
        most.append(done[0])
        done[0] = 0

    def families() -> Iterator[Family]:
        for at in range(5):
            done[0] += PIECE_LINES
            yield Family(f"x{at}", "gauge", "X.", rows())

    def rows() -> Iterator[tuple[str, int]]:
        for at in range(2 * PIECE_LINES + 1):
            done[0] += 1
            yield labels(at=at), at

    monkeypatch.setattr(text_module, "breathe", breathe)
    for _ in render(families(), openmetrics=False):
        pass
    assert max(most) == PIECE_LINES
    assert done == [0]


def test_a_long_text_comes_in_pieces_and_compressed_is_the_same() -> None:
    family = Family("x", "gauge", "X.", [(labels(at=at), at) for at in range(3 * PIECE_LINES)])
    pieces = list(render([family], openmetrics=False))
    assert len(pieces) == 3
    assert gzip.decompress(b"".join(compressed(pieces))) == b"".join(pieces)


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text; version=1.0.0", True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=0.0.1", False),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.6", False),
        ("application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x,;;==,", False),
    ],
)
def test_the_format_is_what_the_asker_likes_best(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics
