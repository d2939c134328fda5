"""THE table of calls of Apache Kafka's command line tools, made on both brokers in this order.

Each has its script's name (bin/NAME.sh), and arguments in which {bootstrap} and {dir} are the side's own: its address,
and a directory with the files of FILES. Later calls see the effects of earlier ones.
"""

from __future__ import annotations

import json
import shlex
from typing import Final, NamedTuple

_TOOLS = "org.apache.kafka.tools"
MAIN_CLASSES = {
    "kafka-acls": f"{_TOOLS}.AclCommand",
    "kafka-broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{_TOOLS}.ClientMetricsCommand",
    "kafka-cluster": f"{_TOOLS}.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{_TOOLS}.ConsoleProducer",
    "kafka-consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "kafka-delegation-tokens": f"{_TOOLS}.DelegationTokenCommand",
    "kafka-delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "kafka-e2e-latency": f"{_TOOLS}.EndToEndLatency",
    "kafka-features": f"{_TOOLS}.FeatureCommand",
    "kafka-get-offsets": f"{_TOOLS}.GetOffsetShell",
    "kafka-groups": f"{_TOOLS}.GroupsCommand",
    "kafka-leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{_TOOLS}.LogDirsCommand",
    "kafka-metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "kafka-producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "kafka-reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": f"{_TOOLS}.ReplicaVerificationTool",
    "kafka-streams-application-reset": f"{_TOOLS}.StreamsResetter",
    "kafka-topics": f"{_TOOLS}.TopicCommand",
    "kafka-transactions": f"{_TOOLS}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{_TOOLS}.VerifiableProducer",
}
"""Script → the class that it runs."""
EXITS_BY_ITSELF = {"kafka-verifiable-consumer", "kafka-verifiable-producer"}
"""Tools that end their JVM without Kafka's Exit: each needs a separate JVM."""
RUNS_UNTIL = {"kafka-replica-verification": "max lag is 0 "}
"""Those that run until they are stopped → what they have printed by then."""
NOT_CALLED = {
    "connect-distributed, connect-standalone, connect-mirror-maker": "servers; tests/compat/programs runs Connect",
    "connect-plugin-path": "reads Connect's files, not a broker",
    "kafka-dump-log": "reads segment files; the interchange tests run it on kafkalite's",
    "kafka-jmx": "reads a JVM's metrics; kafkalite has no JVM",
    "kafka-metadata-shell": "reads Kafka's metadata log; kafkalite has none",
    "kafka-run-class, kafka-server-start, kafka-server-stop, kafka-storage, trogdor": "start and prepare Kafka itself",
    "kafka-console-share-consumer, kafka-share-consumer-perf-test, kafka-share-groups, "
    "kafka-verifiable-share-consumer": "need share groups, which are not supported",
    "kafka-streams-groups": "needs streams groups, which are not supported",
}
"""Scripts of Kafka 4.1 that are left out → why."""

FILES = {
    "move.json": {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]},
    "stranger.json": {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2]}]},
    "topics.json": {"version": 1, "topics": [{"topic": "orders"}]},
    "delete.json": {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 2}]},
    "delete-far.json": {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 99}]},
    "delete-missing.json": {"version": 1, "partitions": [{"topic": "missing", "partition": 0, "offset": 2}]},
    "elect.json": {"partitions": [{"topic": "orders", "partition": 0}]},
}
"""Name → content, in {dir}."""


ON_PURPOSE = {
    ("kafka-get-offsets", "--topic orders --time max-timestamp"): "the producer chooses the timestamps",
    ("kafka-get-offsets", "--topic orders --time -3"): "the producer chooses the timestamps",
    ("kafka-features", "describe"): "share.version is not supported; kraft.version is 1 from the start",
}
"""Tool and arguments → why what it prints is not compared, but only its status."""


class Call(NamedTuple):
    """One call of a tool."""

    tool: str
    arguments: tuple[str, ...]
    text: str = ""
    on_purpose: str = ""
    """From ON_PURPOSE."""


def _calls(tool: str, lines: str, *, server: str = "--bootstrap-server {bootstrap}", text: str = "") -> list[Call]:
    """A call of a tool for each line."""
    made = []
    for line in lines.strip().splitlines():
        key = (tool, " ".join(line.split()))
        arguments = tuple(shlex.split(f"{server} {line}"))
        made.append(Call(tool, arguments, text, ON_PURPOSE.get(key, "")))
    return made


STORY: Final = (
    *_calls(
        "kafka-topics",
        """
        --create --topic orders --partitions 2 --config retention.ms=7000000
        --create --topic orders
        --create --topic orders --if-not-exists
        --create --topic three --replication-factor 3
        --create --topic 'a b'
        --create --topic odd --config no.such=1
        --create --topic assigned --replica-assignment 1,1,1
        --create --topic compacted --config cleanup.policy=compact
        --list
        --list --exclude-internal --topic 'o.*'
        --describe --topic orders
        --describe --topic missing
        --describe --topic missing --if-exists
        --describe --under-replicated-partitions
        --describe --under-min-isr-partitions
        --describe --at-min-isr-partitions
        --describe --unavailable-partitions
        --describe --topics-with-overrides
        --alter --topic orders --partitions 3
        --alter --topic orders --partitions 2
        --alter --topic missing --partitions 2
        --delete --topic assigned
        --delete --topic missing
        --delete --topic missing --if-exists
        --no-such-option
        """,
    ),
    Call("kafka-topics", ("--list",)),
    *_calls(
        "kafka-console-producer",
        "--topic orders --property parse.key=true --property key.separator=:",
        text="a:1\na:2\na:3\na:4\na:5\n",
    ),
    *_calls("kafka-console-producer", "--topic compacted", text="no key\n"),
    *_calls(
        "kafka-console-consumer",
        """
        --topic orders --from-beginning --max-messages 5 --group readers \
            --property print.key=true --property print.partition=true --property print.offset=true
        --topic orders --from-beginning --max-messages 5 --timeout-ms 50000 --group newer \
            --consumer-property group.protocol=consumer
        --topic orders --partition 0 --offset 1 --max-messages 1
        --topic missing --timeout-ms 2000 --from-beginning
        --include 'or.*' --from-beginning --max-messages 5 --isolation-level read_committed
        """,
    ),
    *_calls(
        "kafka-get-offsets",
        """
        --topic orders
        --topic orders --time earliest
        --topic orders --time max-timestamp
        --topic orders --time -3
        --topic orders --partitions 0,7
        --topic-partitions orders:0-1
        --topic missing
        --exclude-internal-topics
        """,
    ),
    *_calls(
        "kafka-consumer-groups",
        """
        --list
        --list --state
        --list --type consumer
        --describe --group readers
        --describe --group readers --state
        --describe --group readers --members --verbose
        --describe --group readers --offsets
        --describe --group newer
        --describe --group newer --state
        --describe --group nobody
        --describe --all-groups --state
        --reset-offsets --group readers --topic orders --to-earliest --dry-run
        --reset-offsets --group readers --topic orders --to-offset 1 --execute
        --reset-offsets --group readers --topic orders:0 --shift-by 1 --execute --export
        --reset-offsets --group readers --all-topics --to-latest --execute
        --reset-offsets --group readers --topic missing --to-latest --execute
        --reset-offsets --group fresh --topic orders --to-datetime 2020-01-01T00:00:00.000 --execute
        --delete-offsets --group readers --topic orders:0
        --delete-offsets --group readers --topic missing
        --delete --group newer
        --delete --group nobody
        --validate-regex a.*b
        """,
    ),
    *_calls("kafka-groups", "--list\n--list --consumer\n--list --group-type classic\n--list --protocol consumer"),
    *_calls(
        "kafka-configs",
        """
        --describe --entity-type topics --entity-name orders
        --alter --entity-type topics --entity-name orders \
            --add-config segment.ms=100000,cleanup.policy=[compact,delete]
        --describe --entity-type topics --entity-name orders
        --alter --entity-type topics --entity-name orders --delete-config segment.ms,cleanup.policy
        --alter --entity-type topics --entity-name orders --add-config no.such=1
        --alter --entity-type topics --entity-name orders --add-config retention.ms=soon
        --alter --entity-type topics --entity-name missing --add-config retention.ms=1
        --describe --entity-type topics --entity-name missing
        --describe --topic orders
        --describe --entity-type brokers --entity-name 1
        --describe --entity-type brokers --entity-default
        --alter --entity-type brokers --entity-name 1 --add-config num.io.threads=5
        --alter --entity-type brokers --entity-default --add-config log.cleaner.threads=2,background.threads=8
        --describe --entity-type brokers --entity-name 1
        --describe --entity-type brokers --entity-default
        --alter --entity-type brokers --entity-name 1 --add-config num.io.threads=100
        --alter --entity-type brokers --entity-name 1 --add-config num.partitions=3
        --alter --entity-type brokers --entity-name 1 --add-config log.retention.ms=x
        --alter --entity-type brokers --entity-name 1 --delete-config num.io.threads
        --alter --entity-type brokers --entity-name 1 --delete-config num.io.threads
        --alter --entity-type brokers --entity-default --delete-config log.cleaner.threads,background.threads
        --describe --entity-type brokers --entity-name 2
        --alter --entity-type groups --entity-name readers --add-config consumer.session.timeout.ms=50000
        --alter --entity-type groups --entity-name readers --add-config consumer.session.timeout.ms=1
        --describe --entity-type groups --entity-name readers
        --describe --entity-type groups
        --describe --group readers
        --describe --entity-type groups --entity-name readers --all
        --alter --entity-type groups --entity-name readers --delete-config consumer.session.timeout.ms
        --describe --entity-type groups --entity-name readers
        --alter --entity-type users --entity-name alice --add-config SCRAM-SHA-256=[iterations=4096,password=secret]
        --describe --entity-type users --entity-name alice
        --alter --entity-type users --entity-name alice --delete-config SCRAM-SHA-256
        --alter --entity-type users --entity-name alice --delete-config SCRAM-SHA-256
        --alter --entity-type broker-loggers --entity-name 1 --add-config no.such.logger=DEBUG
        """,
    ),
    Call(
        "kafka-broker-api-versions", ("--bootstrap-server", "{bootstrap}"), on_purpose="each broker lists its own APIs"
    ),
    Call("kafka-cluster", ("cluster-id", "--bootstrap-server", "{bootstrap}")),
    Call("kafka-cluster", ("list-endpoints", "--bootstrap-server", "{bootstrap}")),
    Call("kafka-cluster", ("list-endpoints", "--include-fenced-brokers", "--bootstrap-server", "{bootstrap}")),
    Call("kafka-cluster", ("unregister", "--bootstrap-server", "{bootstrap}", "--id", "99")),
    *_calls(
        "kafka-metadata-quorum",
        "describe --status\ndescribe --replication\ndescribe --replication --human-readable\ndescribe",
    ),
    *_calls(
        "kafka-metadata-quorum",
        "remove-controller --controller-id 1 --controller-directory-id gtiQ1Zh1Q4mv1F2aZ5KgpQ",
    ),
    *_calls(
        "kafka-features",
        """
        describe
        version-mapping
        version-mapping --release-version 4.0
        feature-dependencies --feature group.version=1
        upgrade --feature group.version=1
        upgrade --feature group.version=2
        upgrade --feature nonsense=1
        downgrade --feature transaction.version=1 --dry-run
        downgrade --feature transaction.version=1
        upgrade --feature transaction.version=2
        downgrade --feature metadata.version=20
        downgrade --release-version 3.9
        upgrade --release-version 4.1
        disable --feature nonsense
        """,
    ),
    *_calls(
        "kafka-leader-election",
        """
        --election-type preferred --all-topic-partitions
        --election-type unclean --all-topic-partitions
        --election-type preferred --topic orders --partition 0
        --election-type unclean --topic orders --partition 0
        --election-type preferred --topic missing --partition 0
        --election-type preferred --path-to-json-file {dir}/elect.json
        --election-type odd --all-topic-partitions
        """,
    ),
    *_calls(
        "kafka-reassign-partitions",
        """
        --list
        --reassignment-json-file {dir}/move.json --execute
        --reassignment-json-file {dir}/move.json --verify
        --reassignment-json-file {dir}/move.json --verify --preserve-throttles
        --reassignment-json-file {dir}/move.json --cancel
        --reassignment-json-file {dir}/stranger.json --execute
        --reassignment-json-file {dir}/move.json --execute --throttle 1000000
        --reassignment-json-file {dir}/move.json --verify
        --topics-to-move-json-file {dir}/topics.json --broker-list 1 --generate
        --topics-to-move-json-file {dir}/topics.json --broker-list 2 --generate
        """,
    ),
    *_calls(
        "kafka-log-dirs",
        "--describe\n--describe --topic-list orders\n--describe --broker-list 1\n--describe --broker-list 2",
    ),
    *_calls(
        "kafka-delete-records",
        "\n".join(f"--offset-json-file {{dir}}/{name}.json" for name in ("delete", "delete-far", "delete-missing")),
    ),
    *_calls(
        "kafka-client-metrics",
        """
        --list
        --describe
        --alter --name every --metrics org.apache.kafka.producer.,org.apache.kafka.consumer. --interval 60000
        --alter --name every --match client_software_name=apache-kafka-java,client_id=a.*
        --alter --name every --interval 1
        --alter --name every --match colour=red
        --describe --name every
        --describe
        --list
        --delete --name every
        --delete --name nobody
        --list
        """,
    ),
    *_calls(
        "kafka-delegation-tokens",
        """
        --create --max-life-time-period -1
        --describe
        --renew --renew-time-period -1 --hmac YQ==
        --expire --expiry-time-period -1 --hmac YQ==
        """,
        server="--bootstrap-server {bootstrap} --command-config {dir}/plain.properties",
    ),
    *_calls(
        "kafka-acls",
        "--list\n--add --allow-principal User:bob --operation read --topic orders\n--remove --force --topic orders",
    ),
    *_calls(
        "kafka-transactions",
        """
        list
        list --duration-filter 1
        describe --transactional-id nobody
        describe-producers --topic orders --partition 0
        describe-producers --topic missing --partition 0
        find-hanging --broker-id 1
        find-hanging --topic orders
        abort --topic orders --partition 0 --start-offset 0
        forceTerminateTransaction --transactionalId nobody
        """,
    ),
    *_calls(
        "kafka-producer-perf-test",
        """
        --topic perf --num-records 100 --record-size 10 --throughput -1
        --topic perf --num-records 100 --record-size 10 --throughput -1 \
            --transaction-duration-ms 100 --transactional-id perf
        """,
    ),
    *_calls(
        "kafka-consumer-perf-test",
        """
        --topic perf --messages 200 --timeout 10000 --group perf-readers
        --topic perf --messages 50 --timeout 10000 --show-detailed-stats --reporting-interval 100000
        """,
    ),
    *_calls("kafka-e2e-latency", "--topic latency --num-records 20 --producer-acks all --record-size 100"),
    *_calls(
        "kafka-replica-verification",
        "--topics-include orders|perf --time -2 --report-interval-ms 1000",
        server="--broker-list {bootstrap}",
    ),
    *_calls(
        "kafka-streams-application-reset",
        """
        --application-id app --input-topics orders --dry-run
        --application-id app --input-topics orders --to-earliest --force
        --application-id app --input-topics missing --dry-run
        """,
    ),
    *_calls("kafka-verifiable-producer", "--topic verified --max-messages 20"),
    *_calls("kafka-verifiable-consumer", "--topic verified --group-id verifiers --max-messages 20"),
    *_calls("kafka-topics", "--describe --topic orders\n--delete --topic orders"),
)
"""All of them."""


def write_files(directory: str) -> None:
    """What calls read."""
    from pathlib import Path

    for name, content in FILES.items():
        (Path(directory) / name).write_text(json.dumps(content))
    (Path(directory) / "plain.properties").write_text("")
