"""process.roles and related settings: standalone brokers, brokers of a cluster, and refused combinations."""

import pytest

from kafkalite.errors import ConfigError
from kafkalite.settings.broker import BrokerConfig

IN_CLUSTER = {
    "process.roles": "broker",
    "node.id": "7",
    "controller.quorum.bootstrap.servers": "one:9093, [::1]:9094",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092",
}
BOTH = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}


def load(*layers: dict[str, str]) -> BrokerConfig:
    merged = {key: value for layer in layers for key, value in layer.items()}
    return BrokerConfig.load(None, {key: value for key, value in merged.items() if value != "none"})


def test_broker_in_a_cluster_knows_where_controllers_are() -> None:
    config = load(IN_CLUSTER, {"controller.quorum.voters": "1@one:9093,2@two:9095"})
    assert config.in_cluster
    assert config.quorum_servers() == (("one", 9093), ("::1", 9094))
    assert config.quorum_voters() == {1: ("one", 9093), 2: ("two", 9095)}
    assert not any("standalone" in note for note in config.notes)


@pytest.mark.parametrize(
    "quorum",
    [
        {},
        {"controller.quorum.bootstrap.servers": "localhost:9093"},
        {"controller.quorum.voters": "1@localhost:9093"},
    ],
    ids=["nothing", "servers", "voters"],
)
def test_both_roles_stand_alone_where_the_only_voter_is_itself(quorum: dict[str, str]) -> None:
    config = load(BOTH, quorum)
    assert not config.in_cluster
    assert [listener.name for listener in config.bound_listeners] == ["PLAINTEXT"]
    assert [note for note in config.notes if "standalone" in note] == [
        f"{key} is accepted but has no effect: this broker is standalone" for key in quorum
    ]


def test_settings_of_a_cluster_mean_nothing_without_a_role() -> None:
    config = load({"controller.quorum.bootstrap.servers": "one:9093"})
    assert not config.in_cluster


@pytest.mark.parametrize(
    ("given", "key", "words"),
    [
        ({**BOTH, "controller.quorum.voters": "1@a:9093,2@b:9093"}, "process.roles", "other voters"),
        ({**BOTH, "controller.quorum.voters": "2@b:9093"}, "process.roles", "other voters"),
        ({**BOTH, "controller.quorum.bootstrap.servers": "a:9093,b:9093"}, "process.roles", "other voters"),
        ({**BOTH, "controller.quorum.bootstrap.servers": "a:9999"}, "process.roles", "other voters"),
        ({**BOTH, "process.roles": "controller"}, "process.roles", "cannot be a controller"),
        ({"process.roles": "broker,master"}, "process.roles", "broker, controller"),
        ({**IN_CLUSTER, "controller.quorum.bootstrap.servers": "none"}, "process.roles", "requires controller.quorum"),
        ({**IN_CLUSTER, "controller.quorum.bootstrap.servers": "one"}, "controller.quorum.bootstrap", "host:port"),
        ({**IN_CLUSTER, "controller.quorum.bootstrap.servers": "one:0"}, "controller.quorum.bootstrap", "host:port"),
        ({**IN_CLUSTER, "controller.quorum.voters": "one:9093"}, "controller.quorum.voters", "id@host:port"),
        (
            {**IN_CLUSTER, "controller.quorum.voters": "1" * 99 + "@one:9093"},
            "controller.quorum.voters",
            "id@host:port",
        ),
        ({**IN_CLUSTER, "controller.quorum.voters": "7@one:9093"}, "node.id", "id of a controller"),
        ({**IN_CLUSTER, "controller.listener.names": "none"}, "controller.listener.names", "is empty"),
        (
            {**IN_CLUSTER, "listener.security.protocol.map": "CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT"},
            "sasl.mechanism.controller.protocol",
            "not 'GSSAPI'",
        ),
        ({**IN_CLUSTER, "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "listeners", "does not bind"),
        ({**IN_CLUSTER, "listeners": "PLAINTEXT://:9092,kafka07://:9072"}, "listeners", "Kafka 0.7"),
        ({**IN_CLUSTER, "zookeeper.connect": "z:2181"}, "zookeeper.connect", "classic"),
        ({**IN_CLUSTER, "inter.broker.listener.name": "INSIDE"}, "inter.broker.listener.name", "INSIDE is not one"),
        ({**IN_CLUSTER, "security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol", "SSL is not one"),
        ({**IN_CLUSTER, "security.inter.broker.protocol": "TLS"}, "security.inter.broker.protocol", "SASL_SSL"),
        (
            {**IN_CLUSTER, "security.inter.broker.protocol": "SSL", "inter.broker.listener.name": "PLAINTEXT"},
            "inter.broker.listener.name",
            "cannot be set together",
        ),
        (
            {
                **IN_CLUSTER,
                "listeners": "SASL_PLAINTEXT://:9092",
                "sasl.enabled.mechanisms": "PLAIN",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
            },
            "sasl.mechanism.inter.broker.protocol",
            "not 'GSSAPI'",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(given: dict[str, str], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        load(given)
    assert str(refused.value).startswith(key)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"listeners": "INSIDE://:9092,PLAINTEXT://:9093"}, ("PLAINTEXT", "PLAINTEXT")),
        ({"listeners": "INSIDE://:9092,OUTSIDE://:9093"}, ("INSIDE", "PLAINTEXT")),
        (
            {"listeners": "INSIDE://:9092,OUTSIDE://:9093", "inter.broker.listener.name": "outside"},
            ("OUTSIDE", "SASL_PLAINTEXT"),
        ),
        (
            {
                "listeners": "INSIDE://:9092,SASL_PLAINTEXT://:9093",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
            },
            ("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
        ),
    ],
)
def test_which_listener_brokers_use_among_themselves(given: dict[str, str], found: tuple[str, str]) -> None:
    more = {
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    listener = load({**IN_CLUSTER, **more, **given}).inner_listener
    assert (listener.name, listener.protocol) == found
