"""The 0.7 producer against a small 0.7 broker in Python: grouping, sizes, queues, hooks."""

import threading

import pytest

from kafkalite.classic.config import ProducerConfig
from kafkalite.classic.errors import (
    ConnectionFailed,
    InvalidConfig,
    MessageSizeTooLarge,
    QueueClosed,
    QueueFull,
)
from kafkalite.classic.handlers import CallbackHandler, QueueItem, StringEncoder
from kafkalite.classic.messages import Message, MessageSet
from kafkalite.classic.named import handler_properties
from kafkalite.classic.producer import Producer, ProducerData
from kafkalite.classic.wire import MULTIPRODUCE, PRODUCE
from tests.kit.fakes.classic_broker import ClassicBroker
from tests.kit.processes.broker import wait_until as wait


@pytest.fixture
def broker():
    made = ClassicBroker(0, partition_count=2).start()
    yield made
    made.stop()


def settled(condition):
    wait(condition, 30, "what was sent arrived")


def send_often(producer, payload):
    """The first sends into a connection whose other end is gone are not told so."""
    for _ in range(1000):
        producer.send(ProducerData("t", [payload]))


def make(broker, **settings):
    return ProducerConfig(broker_list=f"0:127.0.0.1:{broker.port}", **settings)


def payloads(broker, topic):
    """Everything a topic has, partition by partition."""
    return [
        item.message.payload
        for (name, _), log in sorted(broker.logs.items())
        if name == topic
        for item in MessageSet(bytes(log))
    ]


def test_events_of_one_send_are_one_set(broker):
    with Producer(make(broker)) as producer:
        producer.send(ProducerData("t", [b"a", b"b", Message(b"c")]))
        settled(lambda: payloads(broker, "t") == [b"a", b"b", b"c"])
    assert broker.requests == [PRODUCE]


def test_several_topics_go_in_one_request(broker):
    with Producer(make(broker), encoder=StringEncoder()) as producer:
        producer.send(ProducerData("t", ["ä"]), ProducerData("u", ["b"]))
        settled(lambda: payloads(broker, "u") == [b"b"])
    assert payloads(broker, "t") == ["ä".encode()]
    assert broker.requests == [MULTIPRODUCE]


@pytest.mark.parametrize("codec", [1, 2])
def test_compressed_send_is_one_wrapper(broker, codec):
    with Producer(make(broker, compression_codec=codec)) as producer:
        producer.send(ProducerData("t", [b"a" * 100] * 50))
        settled(lambda: len(payloads(broker, "t")) == 50)
    (log,) = broker.logs.values()
    assert len(list(MessageSet(bytes(log)).shallow())) == 1


def test_payload_beyond_the_limit_is_refused_and_nothing_sent(broker):
    with Producer(make(broker, max_message_size=10)) as producer:
        producer.send(ProducerData("t", [b"x" * 10]))
        with pytest.raises(MessageSizeTooLarge):
            producer.send(ProducerData("t", [b"ok", b"x" * 11]))
        settled(lambda: len(payloads(broker, "t")) == 1)


def test_broker_that_is_not_there():
    with (
        Producer(ProducerConfig(broker_list="0:127.0.0.1:1", connect_timeout_ms=50)) as producer,
        pytest.raises(ConnectionFailed),
    ):
        producer.send(ProducerData("t", [b"a"]))


def test_broker_that_comes_back_is_written_to_again(broker):
    with Producer(make(broker, connect_timeout_ms=2000)) as producer:
        producer.send(ProducerData("t", [b"a"]))
        settled(lambda: payloads(broker, "t") == [b"a"])
        broker.stop()
        with pytest.raises(ConnectionFailed):
            send_often(producer, b"lost")
        broker.start()
        producer.send(ProducerData("t", [b"b"]))
        settled(lambda: b"b" in payloads(broker, "t"))


def test_the_connection_is_reopened_after_a_number_of_sends(broker):
    with Producer(make(broker, reconnect_interval=2)) as producer:
        for number in range(5):
            producer.send(ProducerData("t", [b"%d" % number]))
        settled(lambda: sorted(payloads(broker, "t")) == [b"0", b"1", b"2", b"3", b"4"])


def test_queued_events_are_sent_at_the_latest_when_closed(broker):
    with Producer(make(broker, producer_type="async", queue_time=60_000)) as producer:
        producer.send(ProducerData("t", [b"a", b"b"]))
    settled(lambda: sorted(payloads(broker, "t")) == [b"a", b"b"])
    assert set(broker.requests) == {MULTIPRODUCE}
    with pytest.raises(QueueClosed):
        producer.send(ProducerData("t", [b"c"]))


def test_full_batch_goes_at_once(broker):
    with Producer(make(broker, producer_type="async", queue_time=60_000, batch_size=3)) as producer:
        producer.send(ProducerData("t", [b"a", b"b", b"c"]))
        settled(lambda: len(payloads(broker, "t")) == 3)


def test_batch_that_waited_long_enough_goes(broker):
    with Producer(make(broker, producer_type="async", queue_time=20)) as producer:
        producer.send(ProducerData("t", [b"a"]))
        settled(lambda: payloads(broker, "t") == [b"a"])


def test_compressed_topics_are_for_queued_events_alone(broker):
    settings = {"compression_codec": 1, "compressed_topics": ("t",)}
    with Producer(make(broker, producer_type="async", queue_time=20, **settings)) as producer:
        producer.send(ProducerData("t", [b"a"]), ProducerData("u", [b"a"]))
    settled(lambda: payloads(broker, "t") == payloads(broker, "u") == [b"a"])
    codecs = {topic: next(MessageSet(bytes(log)).shallow()).message.codec for (topic, _), log in broker.logs.items()}
    assert codecs == {"t": 1, "u": 0}


class Blocking(CallbackHandler):
    """Blocks the send thread until the test releases it."""

    def __init__(self):
        self.calls = []
        self.go_on = threading.Event()

    def init(self, properties):
        self.calls.append(("init", dict(properties)))

    def before_enqueue(self, item):
        self.calls.append(("before", item.data))
        return item._replace(data=item.data.upper())

    def after_enqueue(self, item, added):
        self.calls.append(("after", item.data, added))

    def before_sending_data(self, items):
        self.go_on.wait(30)
        self.calls.append(("sending", [item.data for item in items]))
        return items

    def last_batch_before_close(self):
        return [QueueItem(b"last", "t", -1)]

    def close(self):
        self.calls.append(("close",))


def test_full_queue_drops_the_event_and_says_so(broker):
    hooks = Blocking()
    config = make(broker, producer_type="async", queue_size=1, batch_size=1)
    with Producer(config, callback_handler=hooks) as producer:
        with pytest.raises(QueueFull):
            producer.send(ProducerData("t", [b"%d" % number for number in range(10)]))
        assert producer.dropped_count == 1
        assert hooks.calls[-1][0] == "after"
        assert hooks.calls[-1][2] is False
        hooks.go_on.set()


def test_hooks_are_called_in_their_order(broker):
    hooks = Blocking()
    hooks.go_on.set()
    producer = Producer(
        make(broker, producer_type="async", queue_time=60_000),
        callback_handler=hooks,
        callback_handler_properties=handler_properties("callback.handler.props", "a=1, b=2"),
    )
    producer.send(ProducerData("t", [b"x"]))
    producer.close()
    assert hooks.calls == [
        ("init", {"a": "1", "b": "2"}),
        ("before", b"x"),
        ("after", b"X", True),
        ("close",),
        ("sending", [b"X", b"last"]),
    ]
    settled(lambda: sorted(payloads(broker, "t")) == [b"X", b"last"])


class Failing(CallbackHandler):
    def before_sending_data(self, items):
        raise RuntimeError("an application's mistake")


def test_a_failed_batch_is_counted_and_the_rest_is_sent(broker):
    config = make(broker, producer_type="async", batch_size=1)
    with Producer(config, callback_handler=Failing()) as producer:
        producer.send(ProducerData("t", [b"a"]))
        settled(lambda: producer.failed_count == 1)
        producer.send(ProducerData("t", [b"b"]))
        settled(lambda: producer.failed_count == 2)


def test_settings_that_do_not_fit_together(broker):
    with pytest.raises(InvalidConfig, match="partitioner cannot be used"):
        Producer(make(broker), partitioner=object())
    with pytest.raises(InvalidConfig, match=r"producer\.type=async"):
        Producer(make(broker), callback_handler=CallbackHandler())
    with pytest.raises(InvalidConfig, match="id:host:port"):
        Producer(ProducerConfig(broker_list="127.0.0.1:9092"))
