"""Random changes of a cluster by its admin APIs: topics, settings of all kinds, rules, users, quotas."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from kafkalite.base.acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.client.connection import Connection
from kafkalite.errors import ErrorCode, KafkaError, error_for
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from kafkalite.client import Client

BROKER, CLIENT_METRICS, GROUP = 4, 16, 32
SET, DELETE = 0, 1


class Storm:
    """See the module. Settings of one broker are those of `node_id`."""

    def __init__(self, client: Client, bootstrap: str, seed: int) -> None:
        self.client = client
        self.bootstrap = bootstrap
        self.node_id = 1
        self.rng = random.Random(seed)
        self.topics: dict[str, int] = {}
        self.rules: list[Acl] = []
        self.done: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        moves = [
            *[self.create] * 4,
            *(self.delete, self.grow, self.set_topic, self.set_broker),
            *(self.add_rule, self.remove_rule, self.set_user, self.remove_user, self.set_quota, self.clear_quota),
            *(self.set_group, self.set_client_metrics, self.set_all_brokers),
        ]
        for _ in range(steps):
            move = self.rng.choice(moves)
            try:
                move()
            except KafkaError as error:
                self.done[f"refused {error.code.name}"] += 1
            else:
                self.done[move.__name__] += 1

    def any_topic(self) -> str:
        return self.rng.choice(sorted(self.topics)) if self.topics else "none"

    def create(self) -> None:
        name = f"t{self.rng.randrange(40)}"
        count = self.rng.randrange(1, 5)
        values = {"retention.ms": str(self.rng.randrange(1000, 100_000))} if self.rng.random() < 0.5 else {}
        self.client.admin.create_topic(name, partitions=count, configs=values)
        self.topics[name] = count

    def delete(self) -> None:
        name = self.any_topic()
        self.client.admin.delete_topic(name)
        del self.topics[name]

    def grow(self) -> None:
        name = self.any_topic()
        self.client.admin.add_partitions(name, self.topics.get(name, 0) + 1)
        self.topics[name] += 1

    def set_topic(self) -> None:
        key = self.rng.choice(["retention.ms", "max.message.bytes"])
        value = self.rng.choice([None, "50000", "60000"])
        self.client.admin.alter_topic_configs(self.any_topic(), {key: value})

    def set_broker(self) -> None:
        self.client.admin.alter_broker_configs(self.node_id, {"log.cleaner.threads": self.rng.choice([None, "1", "2"])})

    def set_all_brokers(self) -> None:
        key, value = self.rng.choice(
            [("log.retention.ms", "600000"), ("log.segment.bytes", "1048576"), ("no.such", "x")]
        )
        self.alter(BROKER, "", key, self.rng.choice([None, value]))

    def set_group(self) -> None:
        key = self.rng.choice(["consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"])
        value = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}[key]
        self.alter(GROUP, f"g{self.rng.randrange(5)}", key, self.rng.choice([None, value]))

    def set_client_metrics(self) -> None:
        key, value = self.rng.choice([("interval.ms", "1000"), ("metrics", "org.apache"), ("match", "client_id=a")])
        self.alter(CLIENT_METRICS, f"m{self.rng.randrange(5)}", key, self.rng.choice([None, value]))

    def alter(self, kind: int, name: str, key: str, value: str | None) -> None:
        """One setting; KafkaError when it was refused."""
        item = AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[item])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        host, _, port = self.bootstrap.partition(":")
        connection = Connection.connect(host, int(port), client_id="storm")
        try:
            (answer,) = connection.request(api.INCREMENTAL_ALTER_CONFIGS, request).responses
        finally:
            connection.close()
        if answer.error_code:
            raise error_for(ErrorCode(answer.error_code), answer.error_message or "")

    def add_rule(self) -> None:
        rule = Acl(
            ResourceType.TOPIC,
            f"t{self.rng.randrange(5)}",
            self.rng.choice([PatternType.LITERAL, PatternType.PREFIXED]),
            f"User:u{self.rng.randrange(5)}",
            "*",
            self.rng.choice([AclOperation.READ, AclOperation.WRITE]),
            self.rng.choice([AclPermission.ALLOW, AclPermission.DENY]),
        )
        self.client.acls.create([rule])
        self.rules.append(rule)

    def remove_rule(self) -> None:
        if self.rules:
            rule = self.rules.pop(self.rng.randrange(len(self.rules)))
            self.client.acls.delete([AclFilter(*rule)])

    def set_user(self) -> None:
        mechanism = self.rng.choice(["SCRAM-SHA-256", "SCRAM-SHA-512"])
        self.client.users.set_password(f"u{self.rng.randrange(5)}", "secret", mechanism, 4096)

    def remove_user(self) -> None:
        self.client.users.delete(f"u{self.rng.randrange(5)}", self.rng.choice(["SCRAM-SHA-256", "SCRAM-SHA-512"]))

    def entity(self) -> tuple[tuple[str, str | None], ...]:
        user = ("user", self.rng.choice([None, "u1", "u2"]))
        client = ("client-id", self.rng.choice([None, "c1"]))
        return self.rng.choice([(user,), (client,), (client, user), (("ip", "10.0.0.1"),)])

    def key_of(self, entity: tuple[tuple[str, str | None], ...]) -> str:
        if entity[0][0] == "ip":
            return "connection_creation_rate"
        return self.rng.choice(["producer_byte_rate", "consumer_byte_rate", "request_percentage"])

    def set_quota(self) -> None:
        entity = self.entity()
        self.client.quotas.alter(entity, {self.key_of(entity): float(self.rng.randrange(10, 1000))})

    def clear_quota(self) -> None:
        entity = self.entity()
        self.client.quotas.alter(entity, {self.key_of(entity): None})
