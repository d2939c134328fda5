"""Build the parts that a broker has only in a cluster: membership, replication, connections to other brokers.

    join     build membership, fetchers, directories, in-sync replicas and connections to brokers ─▶ register ─▶ wait
             until the metadata has caught up
    enter    report that all parts of the broker run ─▶ wait until the broker is unfenced
    leave    move leadership to other brokers ─▶ end the membership ─▶ stop the fetchers
    stop     stop all other parts, after groups and transactions and before the network workers

Thread rule: the thread that starts or stops the broker. Any thread may call `give_up` and read `member.progress`.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kafkalite._native.serve.leaders import Leaders
from kafkalite.broker.cluster.membership_setup import (
    assign_directories,
    brokers_of,
    cluster_id_of,
    follow_replicas,
    join,
    lead_replicas,
    producer_ids,
    tell_of,
    use_quotas,
    use_rules,
    use_users,
    ways_of,
)
from kafkalite.broker.cluster.partitions import Partitions
from kafkalite.broker.cluster.peers import Peers
from kafkalite.broker.cluster.racks import ReplicaRacks
from kafkalite.broker.cluster.settings import ClusterSettings
from kafkalite.broker.coordinator.remote import Remote
from kafkalite.broker.log.assigned import AssignedTopics
from kafkalite.broker.log.directory import is_used

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.base.clock import Clock
    from kafkalite.base.metric_families import Family
    from kafkalite.broker.cluster.alter_partition import InSyncReplicas
    from kafkalite.broker.cluster.directories import DirectoryAssignments
    from kafkalite.broker.cluster.fetchers import Fetchers
    from kafkalite.broker.cluster.member import Member
    from kafkalite.broker.coordinator.groups import GroupCoordinator
    from kafkalite.broker.coordinator.transaction_coordinator import TransactionCoordinator
    from kafkalite.broker.handlers.sign_in import SignIns
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.net.listener import BoundListener
    from kafkalite.broker.quotas.quotas import Quotas
    from kafkalite.broker.security.authorizer import Authorizer
    from kafkalite.model import Endpoint
    from kafkalite.settings.broker import BrokerConfig


class ClusterParts:
    """The parts that a broker has only in a cluster. The constructor raises ConfigError for invalid cluster
    settings."""

    in_sync: InSyncReplicas
    directories: DirectoryAssignments
    fetchers: Fetchers

    def __init__(
        self, config: BrokerConfig, clock: Clock, given_up: threading.Event, on_fatal: Callable[[BaseException], None]
    ) -> None:
        """`given_up` is set when the start should end early. `on_fatal` is called when the broker cannot continue."""
        self._config = config
        self._clock = clock
        self._given_up = given_up
        self._on_fatal = on_fatal
        self._ways = ways_of(config)
        self._leaving = ExitStack()
        self._stopping = ExitStack()
        self.member: Member | None = None

    def find_cluster_id(self) -> str:
        """Return the cluster's id for a new data directory, or "" for a directory that is already used. Raises
        StartupError."""
        if is_used(str(self._config.data_directory)):
            return ""
        return cluster_id_of(self._ways, self._config, self._clock, self._given_up)

    def join(
        self,
        logs: LogManager,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        quotas: Quotas,
        sign_ins: Iterable[SignIns],
        authorizer: Authorizer | None,
        endpoints: Mapping[str, Endpoint],
        use_config: Callable[[], None],
    ) -> Member:
        """Join the cluster. Return the membership once the broker is registered and its metadata has caught up.

        `use_config` is called when the cluster changes settings.
        """
        topics = logs.source
        assert isinstance(topics, AssignedTopics), "opened for a cluster"
        config, clock = self._config, self._clock
        listeners = {
            listener.name: (endpoints[listener.name], listener.protocol) for listener in config.bound_listeners
        }
        self.member = member = join(self._ways, config, logs, listeners, clock, on_fatal=self._on_fatal)
        if self._given_up.is_set():
            member.give_up()
        brokers = brokers_of(member, self._ways, config)
        peers = Peers(brokers, config.node_id)
        self.fetchers = fetchers = follow_replicas(member, brokers, logs.config, topics, clock)
        self._leaving.callback(fetchers.stop)
        self.directories = assign_directories(member, config, topics, fetchers, clock)
        self._stopping.callback(self.directories.stop)
        groups.hashes.racks = ReplicaRacks(lambda: member.image)
        groups.shards.coordinate_led(topics)
        transactions.coordinate_led(topics, Remote(logs, transactions.log, peers))
        partitions = Partitions(topics, config.node_id, member.incarnation)
        self.in_sync = in_sync = lead_replicas(member, config, topics, clock)
        self._stopping.callback(in_sync.stop)
        self._stopping.callback(peers.stop)
        member.listeners += [
            in_sync.use_brokers,
            partitions.use,
            functools.partial(use_quotas, quotas),
            functools.partial(use_users, logs),
            ClusterSettings(logs, use_config).use,
            functools.partial(use_rules, authorizer),
        ]
        for each in sign_ins:
            each.use_cluster(member)
        transactions.producer_ids = ids = producer_ids(member, config, clock)
        member.start()
        member.wait_caught_up()
        ids.prefetch()
        return member

    def new_leaders(self) -> Leaders:
        """Return an object with which one network worker finds the leaders of partitions that other brokers lead."""
        member = self.member
        assert member is not None, "joined before workers are made"

        def address_of(listener: BoundListener, node_id: int) -> tuple[bytes, int, bytes | None] | None:
            broker = member.image.brokers.get(node_id)
            address = None if broker is None or broker.fenced else broker.addresses.get(listener.name)
            if broker is None or address is None:
                return None
            return address.host.encode(), address.port, None if broker.rack is None else broker.rack.encode()

        return Leaders(address_of, by_rack=bool(self._config.replica_selector_class))

    def sources(self) -> list[Callable[[], Iterable[Family]]]:
        """Return the sources of metrics. Call this after `join`."""
        assert self.member is not None, "joined before metrics are served"
        return [self.in_sync.families, self.directories.families, self.fetchers.families, tell_of(self.member)]

    def reload_certificates(self) -> None:
        """Load the certificates for connections to other nodes again."""
        self._ways.reload_certificates()

    def give_up(self) -> None:
        """End a `join` or `enter` that waits for the cluster. It then raises StartGivenUp."""
        if self.member is not None:
            self.member.give_up()

    def enter(self) -> None:
        """Report that all parts of the broker run, and wait until the broker is unfenced."""
        assert self.member is not None, "joined before"
        self.member.enter()

    def leave(self, logs: LogManager | None, *, controlled: bool) -> None:
        """Leave the cluster. If `controlled`, move leaderships to other brokers first. Idempotent."""
        if self.member is not None:
            self.member.stop(controlled=controlled)
            if logs is not None:
                logs.broker_epoch = self.member.epoch  # also if the start failed after that
        self.member = None
        self._leaving.close()  # not before: until leadership has moved, the broker leads and follows

    def stop(self) -> None:
        """Stop the parts that clients' requests needed until now. Idempotent."""
        self._stopping.close()
