"""Classes that a producer's settings name, events that name their partition, and producers for one broker."""

import sys
import types

import pytest

from kafkalite.classic import (
    EARLIEST,
    LATEST,
    AsyncProducer,
    AsyncProducerConfig,
    BrokerPartition,
    CallbackHandler,
    InvalidConfig,
    InvalidMessageSize,
    InvalidPartition,
    Message,
    MessageSet,
    MessageSizeTooLarge,
    Producer,
    ProducerConfig,
    ProducerData,
    ProduceRequest,
    SimpleConsumer,
    SyncProducer,
    SyncProducerConfig,
)
from kafkalite.classic.messages import encode_message_set
from kafkalite.zookeeper import session as zookeeper
from tests.kit.fakes.classic_broker import MULTIPRODUCE, PRODUCE, ClassicBroker
from tests.kit.fakes.zookeeper import FakeServer
from tests.kit.processes.broker import wait_until

CALLS = []


class Last:
    """Every key to the last partition."""

    def partition(self, _key, partition_count):
        return partition_count - 1


class Upper:
    def to_message(self, event):
        return Message(event.upper().encode())


class Recording(CallbackHandler):
    def init(self, properties):
        CALLS.append(("callback", dict(properties)))

    def before_enqueue(self, item):
        return item._replace(data=item.data + b"!")


class Sending:
    def init(self, properties):
        CALLS.append(("events", dict(properties)))

    def handle(self, items, producer, encoder):
        for item in items:
            producer.send(item.topic, [encoder.to_message(item.data)], item.partition)

    def close(self):
        CALLS.append(("closed",))


class NeedsAnArgument:
    def __init__(self, what):
        self.what = what

    def partition(self, key, partition_count):
        return 0


@pytest.fixture
def plugins(monkeypatch):
    """A module of an application's."""
    CALLS.clear()
    module = types.ModuleType("an_application")
    for kind in (Last, Upper, Recording, Sending, NeedsAnArgument):
        setattr(module, kind.__name__, kind)
    module.number = 7
    monkeypatch.setitem(sys.modules, "an_application", module)


@pytest.fixture
def broker():
    made = ClassicBroker(0, partition_count=4).start()
    yield made
    made.stop()


@pytest.fixture
def registered(broker, monkeypatch):
    """A ZooKeeper in memory that knows the broker and its topic t."""
    server = FakeServer()
    monkeypatch.setattr(zookeeper, "connect", lambda *_, **__: server.client())
    for path, value in (("/brokers/ids/0", f"c:127.0.0.1:{broker.port}"), ("/brokers/topics/t/0", "4")):
        server.put(path, value.encode(), session=-1)


def arrived(broker, topic, partition, *payloads):
    def found():
        log = bytes(broker.logs.get((topic, partition), b""))
        return [item.message.payload for item in MessageSet(log)] == list(payloads)

    wait_until(found, 60, f"{payloads} in {topic}-{partition}")


def fixed(broker, **properties):
    return {"broker.list": f"0:127.0.0.1:{broker.port}", **{key.replace("_", "."): v for key, v in properties.items()}}


def test_partitioner_class_says_where_keys_go(plugins, broker, registered):
    with Producer({"zk.connect": "memory", "partitioner.class": "an_application:Last"}) as producer:
        producer.send(ProducerData("t", [b"a"], key="any"))
        arrived(broker, "t", 3, b"a")


def test_names_of_0_7_mean_what_is_built_in(broker, registered):
    names = {
        "partitioner.class": "kafka.producer.DefaultPartitioner",
        "serializer.class": "kafka.serializer.StringEncoder",
        "event.handler": "kafka.producer.async.DefaultEventHandler",
        "producer.type": "async",
    }
    with Producer({"zk.connect": "memory", **names}) as producer:
        producer.send(ProducerData("t", ["ä", b"raw", Message(b"m")], key=2))
    arrived(broker, "t", 2, "ä".encode(), b"raw", b"m")


def test_serializer_class_makes_messages(plugins, broker):
    with Producer(fixed(broker, serializer_class="an_application:Upper")) as producer:
        producer.send(ProducerData("t", ["abc"], partition=1))
        arrived(broker, "t", 1, b"ABC")


def test_handlers_are_made_and_get_their_properties(plugins, broker):
    settings = {
        "producer.type": "async",
        "event.handler": "an_application:Sending",
        "event.handler.props": "a=1,b = 2",
        "callback.handler": "an_application:Recording",
        "callback.handler.props": "file=/x=y",
    }
    with Producer({**fixed(broker), **settings}) as producer:
        producer.send(ProducerData("t", [b"a"], partition=0))
    arrived(broker, "t", 0, b"a!")
    assert CALLS == [("callback", {"file": "/x=y"}), ("events", {"a": "1", "b": "2"}), ("closed",)]
    assert broker.requests == [PRODUCE], "its own handler sent it, not the default one"


def test_object_that_the_program_gives_beats_the_setting(plugins, broker):
    with Producer(fixed(broker, serializer_class="nobody:Here"), encoder=Upper()) as producer:
        producer.send(ProducerData("t", ["abc"], partition=1))
        arrived(broker, "t", 1, b"ABC")


def test_empty_values_of_the_sample_file_mean_the_defaults(broker):
    empty = dict.fromkeys(("partitioner.class", "serializer.class", "event.handler", "callback.handler"), "")
    with Producer({**fixed(broker), **empty}) as producer:
        producer.send(ProducerData("t", [b"a"], partition=0))
        arrived(broker, "t", 0, b"a")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (
            "partitioner.class",
            "com.acme.MyPartitioner",
            r"module:Class, and not one of kafka\.producer\.DefaultPartitioner",
        ),
        ("partitioner.class", "no_such_module:X", "no_such_module:X could not be imported"),
        ("partitioner.class", "an_application:Missing", "could not be imported"),
        ("partitioner.class", "an_application:Upper", "has no method partition"),
        ("partitioner.class", "an_application:number", "could not be created without arguments"),
        ("partitioner.class", "an_application:NeedsAnArgument", "could not be created without arguments"),
        ("serializer.class", "kafka.serializer.LongEncoder", r"serializer\.class: .*, and not one of kafka"),
        ("serializer.class", "an_application:Last", "has no method to_message"),
        ("event.handler", "an_application:Last", "has no method init, handle, close"),
        ("callback.handler", "an_application:Sending", "has no method before_enqueue"),
        ("callback.handler", "x", "callback.handler: 'x' is not of the form module:Class"),
        ("callback.handler.props", "novalue", r"callback\.handler\.props must be key=value"),
    ],
)
def test_what_is_refused(plugins, registered, key, value, text):
    with pytest.raises(InvalidConfig, match=text):
        Producer({"zk.connect": "memory", "producer.type": "async", key: value})


def test_settings_that_would_have_no_effect_are_refused(broker):
    with pytest.raises(InvalidConfig, match=r"partitioner\.class cannot be used"):
        ProducerConfig.from_properties(fixed(broker, partitioner_class="a:B"))
    with pytest.raises(InvalidConfig, match=r"callback\.handler needs producer\.type=async"):
        ProducerConfig.from_properties(fixed(broker, callback_handler="a:B"))


def test_partition_that_the_events_name(broker, registered):
    with Producer(ProducerConfig(zk_connect="memory")) as producer:
        producer.send(ProducerData("t", [b"a"], partition=2))
        producer.send(ProducerData("t", [b"b"], key="has no say", partition=BrokerPartition(0, 2)))
        arrived(broker, "t", 2, b"a", b"b")
        for wrong in (4, -1, BrokerPartition(1, 0)):
            with pytest.raises(InvalidPartition, match="no live broker has partition"):
                producer.send(ProducerData("t", [b"c"], partition=wrong))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_partition_that_the_events_name_with_a_fixed_list(broker, kind):
    with Producer(fixed(broker, producer_type=kind)) as producer:
        producer.send(ProducerData("t", [b"a"], partition=3))
        producer.send(ProducerData("t", [b"b"], partition=BrokerPartition(0, 3)))
        with pytest.raises(InvalidPartition):
            producer.send(ProducerData("t", [b"c"], partition=BrokerPartition(9, 3)))
    arrived(broker, "t", 3, b"a", b"b")


def test_sync_producer_of_one_broker(broker):
    with SyncProducer.create({"host": "127.0.0.1", "port": str(broker.port), "max.message.size": "10"}) as producer:
        producer.send("t", [b"a", Message(b"b")], 1)
        producer.send("t", MessageSet(encode_message_set([b"c"])), 1)
        producer.multi_send([ProduceRequest("t", 1, encode_message_set([b"d"])), ProduceRequest("u", 0, b"")])
        arrived(broker, "t", 1, b"a", b"b", b"c", b"d")
        with pytest.raises(MessageSizeTooLarge):
            producer.send("t", [b"x" * 11], 1)
        for broken in (encode_message_set([b"c"])[:-1], b"\0\0\0", b"\xff" * 20):
            with pytest.raises(InvalidMessageSize):
                producer.multi_send([ProduceRequest("t", 1, broken)])
    assert broker.requests == [PRODUCE, PRODUCE, MULTIPRODUCE]
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        assert consumer.get_offsets_before("t", 1, LATEST, 1) == [44]
        assert consumer.get_offsets_before("t", 1, EARLIEST, 1) == [0]


def test_async_producer_of_one_broker(plugins, broker):
    settings = {"host": "127.0.0.1", "port": str(broker.port), "serializer.class": "an_application:Upper"}
    with AsyncProducer.create(settings) as producer:
        producer.send("t", "a", 0)
    arrived(broker, "t", 0, b"A")
    config = AsyncProducerConfig(host="127.0.0.1", port=broker.port, queue_time=60_000)
    with AsyncProducer.create(config, callback_handler=Recording()) as producer:
        producer.send("t", b"b", 0)
    arrived(broker, "t", 0, b"A", b"b!")


@pytest.mark.parametrize("kind", [SyncProducerConfig, AsyncProducerConfig])
def test_producer_of_one_broker_needs_its_address(kind):
    with pytest.raises(InvalidConfig, match="needs host and port"):
        kind(host="127.0.0.1")
    with pytest.raises(InvalidConfig, match="port must be from 0 to 65535"):
        kind(host="127.0.0.1", port=65536)
