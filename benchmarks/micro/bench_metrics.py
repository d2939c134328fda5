"""Measure the processor time of a metrics scrape with 60,000 samples, as text and compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kafkalite import Broker
from kafkalite.broker.metrics.sources import Sources
from kafkalite.metrics.text import compressed, render

TOPICS = 75
PARTITIONS = 50
SAMPLES = 60_000


@pytest.fixture(scope="module")
def sources() -> Iterator[Sources]:
    with Broker(metrics_listeners="http://127.0.0.1:0") as broker:
        for at in range(TOPICS):
            broker.create_topic(f"a-topic-of-usual-length-{at}", PARTITIONS)
        parts = broker._parts.told  # noqa: SLF001 - it is the part that is measured
        assert parts is not None
        yield Sources(parts)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_text(benchmark: Callable[..., bytes], sources: Sources, openmetrics: bool) -> None:
    text = benchmark(lambda: b"".join(render(sources.families(), openmetrics=openmetrics)))
    assert sum(not line.startswith(b"#") for line in text.splitlines()) >= SAMPLES


def test_text_compressed(benchmark: Callable[..., bytes], sources: Sources) -> None:
    packed = benchmark(lambda: b"".join(compressed(render(sources.families(), openmetrics=False))))
    assert len(packed) < 10 * SAMPLES
