"""Delete policies of an application's: given to Broker(...), or named by a setting; both kinds of topic."""

import sys
import types
from pathlib import Path

import pytest

from kafkalite import Broker, ConfigError, RetentionPolicy, SegmentAge
from tests.kit.harness.log_harness import make_batch


class KeepOne:
    """Of topics whose name begins with `short`, the segment that is being written."""

    def deletable_count(self, segments, now_ms):
        return len(segments) - 1 if segments[0].topic.startswith("short") else 0


def segment_counts(broker):
    """Segments of topics `short` and `long` after a retention, each with three before."""
    for name in ("short", "long"):
        broker.create_topic(name, retention_ms=-1)
        log = broker.logs.topics[name].partitions[0]
        for _ in range(2):
            log.append(make_batch())
            log.roll()
        log.append(make_batch())
        assert len(log.segments) == 3
    broker.logs.housekeeper.apply_retention()
    return [len(broker.logs.topics[name].partitions[0].segments) for name in ("short", "long")]


def test_policy_given_to_the_broker():
    policy: RetentionPolicy = KeepOne()
    with Broker(retention_policies=[policy]) as broker:
        assert segment_counts(broker) == [1, 3]


def test_policy_named_by_the_setting(monkeypatch):
    module = types.ModuleType("an_application")
    module.KeepOne = KeepOne
    monkeypatch.setitem(sys.modules, "an_application", module)
    with Broker({"log.retention.policies": "an_application:KeepOne"}) as broker:
        assert segment_counts(broker) == [1, 3]


def test_without_one_nothing_goes():
    with Broker() as broker:
        assert segment_counts(broker) == [3, 3]


@pytest.mark.parametrize("name", ["nothing", "no_such_module:X", "collections:OrderedDict"])
def test_policy_that_is_none_is_refused_and_leaves_nothing_behind(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match=r"log\.retention\.policies"):
        Broker({"log.retention.policies": name})
    assert list(Path(tmp_path).iterdir()) == []


def test_what_a_policy_is_shown():
    seen = []

    class Looking:
        def deletable_count(self, segments, now_ms):
            seen.extend(segments)
            return 0

    with Broker(retention_policies=[Looking()]) as broker:
        broker.create_topic("t", 2, retention_ms=-1)
        broker.logs.topics["t"].partitions[1].append(make_batch())
        broker.logs.housekeeper.apply_retention()
    assert [(type(segment), segment.topic, segment.partition, segment.end_offset) for segment in seen] == [
        (SegmentAge, "t", 0, 0),
        (SegmentAge, "t", 1, 1),
    ]
