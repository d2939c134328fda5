"""0.7's keys: defaults, text to values, refusals."""

import pytest

from kafkalite.classic.config import ConsumerConfig, ProducerConfig, csv_map
from kafkalite.classic.errors import InvalidConfig


def test_consumer_from_properties():
    config = ConsumerConfig.from_properties({
        "groupid": "g", "zk.connect": "a:1,b:2/root", "fetch.size": "100", "autocommit.enable": "false",
        "autooffset.reset": "largest", "unheard.of": "ignored",
    })  # fmt: skip
    assert (config.groupid, config.zk_connect, config.fetch_size) == ("g", "a:1,b:2/root", 100)
    assert config.auto_commit is False
    assert config.auto_offset_reset == "largest"


def test_defaults_are_those_of_0_7_2():
    consumer = ConsumerConfig(groupid="g")
    assert (consumer.fetch_size, consumer.queued_chunks_max, consumer.rebalance_retries_max) == (1_048_576, 10, 4)
    assert (consumer.socket_buffer_size, consumer.auto_commit_interval_ms) == (65_536, 10_000)
    producer = ProducerConfig(broker_list="0:h:1")
    assert (producer.queue_time, producer.queue_size, producer.batch_size) == (5000, 10_000, 200)
    assert (producer.connect_timeout_ms, producer.reconnect_interval) == (5000, 30_000)


def test_pauses_follow_other_settings_unless_set():
    assert ConsumerConfig(groupid="g", zk_sync_time_ms=700).rebalance_backoff_s == 0.7
    assert ConsumerConfig(groupid="g", rebalance_backoff_ms=0).rebalance_backoff_s == 0
    assert ConsumerConfig(groupid="g", zk_session_timeout_ms=900).connection_timeout_s == 0.9


def test_from_a_file(tmp_path):
    path = tmp_path / "consumer.properties"
    path.write_text("# mine\ngroupid=g\nzk.connect=127.0.0.1:2181\n")
    assert ConsumerConfig.load(path).groupid == "g"
    with pytest.raises(InvalidConfig):
        ConsumerConfig.load(tmp_path / "missing")


@pytest.mark.parametrize(
    ("kind", "properties", "text"),
    [
        (ConsumerConfig, {}, "groupid"),
        (ConsumerConfig, {"groupid": "a/b"}, "slash"),
        (ConsumerConfig, {"groupid": "g", "fetch.size": "many"}, "fetch.size must be a number"),
        (ConsumerConfig, {"groupid": "g", "fetch.size": "0"}, "fetch.size must be from 1"),
        (ConsumerConfig, {"groupid": "g", "autocommit.enable": "yes"}, "true or false"),
        (ProducerConfig, {}, "zk.connect or broker.list"),
        (ProducerConfig, {"zk.connect": "a:1", "broker.list": "0:h:1"}, "zk.connect or broker.list"),
        (ProducerConfig, {"broker.list": "0:h:1", "producer.type": "lazy"}, "sync or async"),
        (ProducerConfig, {"broker.list": "0:h:1", "compression.codec": "3"}, "compression.codec must be from 0 to 2"),
    ],
)
def test_what_is_refused(kind, properties, text):
    with pytest.raises(InvalidConfig, match=text):
        kind.from_properties(properties)


def test_map_with_a_bad_pair_keeps_the_good_ones(caplog):
    assert csv_map("topic.partition.count.map", "a:2, b : 3,c,:x,d:-1,e:--5,f:" + "1" * 5000) == {
        "a": 2,
        "b": 3,
        "d": -1,
    }
    assert len(caplog.records) == 4
