"""Copy topics from one cluster to another, exactly once, continuing where the last run of the same name ended.

  kafkalite mirror --from live:9092 --to offline:9092 --name nightly -e
  kafkalite mirror --from live:9092 --to offline:9092 --name all --topics 'logs[.].*' --exclude '.*[.]debug'
  kafkalite mirror status --to offline:9092 --name nightly
  kafkalite mirror --from old:9092 --to new:9092 --name move --sync-topic-configs --sync-group-offsets --sync-acls

Copies keep the partition, key, value, headers and timestamp of each record, but not its offset. The mirror creates
topics and partitions that the target lacks, with the topics' settings. If the source is a kafkalite broker, its topics
of Kafka 0.7 are copied too, as ordinary topics.

Each transaction in the target contains records and the mirror's progress. So if a mirror is killed at any time and
started again under its name, consumers with read_committed see every record once. A second mirror of the same name
stops the first. Without -e the mirror runs until Ctrl-C or SIGTERM. --metrics HOST:PORT serves its lag, throughput and
health.

The --sync flags also copy changed topic settings, ACLs, quotas and committed offsets, every --sync-interval and at the
end. Committed offsets are translated to the target's offsets, and copied only for groups that have no members there.
The mirror reports what it could not copy. With --list-users it also lists the users that need a password in the target,
since passwords cannot be copied.

If two mirrors copied a topic in opposite directions, each would copy the other's copies forever. So the second mirror
stops with an error. To run both, give each a --prefix. The prefix is put before the names of the topics in the target.
Topics that were copied from the target under a prefix are not copied back.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.ending import on_ending
from kafkalite.cli import EXIT_USAGE, CommandError, UsageError
from kafkalite.cli.common import Progress, add_config_argument, count, open_client, quantity, say_isolation, seconds
from kafkalite.cli.metrics_page import add_metrics_arguments, metrics_page
from kafkalite.cli.output import note, print_json, print_table, say
from kafkalite.client.errors import UNREACHED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from kafkalite.client import Client
    from kafkalite.mirror import Mirror, SyncOptions, TopicFilter

CLIENT_ID: Final = "kafkalite-mirror"
AWAIT_PAUSE_S: Final = 0.2
AWAIT_PAUSE_S_MAX: Final = 5.0
GROUPS_EXCLUDE: Final = "console-consumer-.*|connect-.*|__.*"
"""Kafka's default of groups.exclude."""
WORDS: Final = {
    "created": "topics created",
    "settings": "topic settings changed",
    "groups": "committed offsets copied",
    "acls": "ACLs copied",
    "quotas": "quotas copied",
    "users_missing": "passwords of users missing in the target",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=["status"],
        metavar="status",
        help="print the state of each mirrored topic instead of copying",
    )
    parser.add_argument("--from", dest="source", metavar="HOST:PORT", help="brokers to copy from")
    parser.add_argument("--to", dest="target", metavar="HOST:PORT", required=True, help="brokers to copy to")
    add_config_argument(parser, "--from-config", " for the source")
    add_config_argument(parser, "--to-config", " for the target")
    parser.add_argument(
        "--name", help="name of this mirror; its progress is stored under this name in the target cluster"
    )
    parser.add_argument(
        "--topics", metavar="REGEX", default=".*", help="topics to copy; REGEX must match the whole name (default: all)"
    )
    parser.add_argument("--exclude", metavar="REGEX", help="topics to leave out; REGEX must match the whole name")
    parser.add_argument(
        "--prefix",
        default="",
        help="prefix of the topic names in the target (default: none)",
    )
    parser.add_argument("-e", "--exit", action="store_true", help="stop after the records that exist at the start")
    parser.add_argument(
        "--commit-interval",
        metavar="S",
        type=seconds,
        default=1.0,
        help="maximum age of a transaction in seconds (default: 1)",
    )
    parser.add_argument(
        "--commit-size",
        metavar="BYTES",
        type=count,
        default=64 * 1024 * 1024,
        help="maximum size of a transaction in bytes (default: 64 MiB)",
    )
    parser.add_argument(
        "--refresh",
        metavar="S",
        type=seconds,
        default=30.0,
        help="seconds between two searches for new topics (default: 30)",
    )
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, default=30.0, help="response timeout in seconds (default: 30)"
    )
    parser.add_argument(
        "--on-data-loss",
        choices=["stop", "rewind", "restart"],
        default="stop",
        help=(
            "what to do if a partition of the source was restored or truncated: end the mirror (stop), copy again "
            "from the offset where the logs diverge (rewind), or copy again from the beginning (restart) "
            "(default: stop)"
        ),
    )
    add_sync_arguments(parser)
    add_metrics_arguments(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def add_sync_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for data to copy in addition to records: settings, group offsets, ACLs, quotas, users."""
    parser.add_argument("--sync-topic-configs", action="store_true", help="also copy changes of topic settings")
    parser.add_argument(
        "--config-properties-exclude",
        metavar="REGEX",
        action="append",
        help="topic settings to leave out, instead of the default list; can be repeated",
    )
    parser.add_argument("--sync-group-offsets", action="store_true", help="also copy committed offsets of groups")
    parser.add_argument(
        "--groups",
        metavar="REGEX",
        default=".*",
        help="groups whose offsets are copied; REGEX must match the whole name (default: all)",
    )
    parser.add_argument(
        "--groups-exclude",
        metavar="REGEX",
        default=GROUPS_EXCLUDE,
        help="groups to leave out; REGEX must match the whole name (default: "
        + GROUPS_EXCLUDE.replace("%", "%%")
        + ")",
    )
    parser.add_argument("--sync-acls", action="store_true", help="also copy ACLs")
    parser.add_argument("--sync-quotas", action="store_true", help="also copy quotas")
    parser.add_argument("--list-users", action="store_true", help="list the users that the target lacks")
    parser.add_argument(
        "--sync-interval",
        metavar="S",
        type=seconds,
        default=60.0,
        help="seconds between two runs of what the --sync options copy (default: 60)",
    )


def sync_options(arguments: argparse.Namespace) -> SyncOptions:
    """Return the selection of the --sync flags. ValueError if a flag is invalid."""
    from kafkalite.mirror import GroupFilter, SyncOptions

    return SyncOptions(
        topic_configs=arguments.sync_topic_configs,
        group_offsets=arguments.sync_group_offsets,
        acls=arguments.sync_acls,
        quotas=arguments.sync_quotas,
        users=arguments.list_users,
        groups=GroupFilter(arguments.groups, arguments.groups_exclude),
        interval_s=arguments.sync_interval,
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "status":
        from kafkalite.cli import mirror_status

        return mirror_status.run(arguments)
    missing = [flag for flag, value in (("--from", arguments.source), ("--name", arguments.name)) if value is None]
    if missing:
        required = ", ".join(missing)
        raise UsageError(f"the following arguments are required: {required} (see kafkalite mirror --help)")
    return copy(arguments)


def copy(arguments: argparse.Namespace) -> int:
    """Copy until the end offsets are reached (with -e) or a signal stops the mirror."""
    from kafkalite.mirror import MirrorLoop, MirrorStatus, TopicFilter

    try:
        topics = TopicFilter(arguments.topics, arguments.exclude)
        sync = sync_options(arguments)
    except ValueError as error:
        raise UsageError(str(error)) from error
    stop = threading.Event()
    progress = Progress("copied", shown=False if arguments.quiet else None)
    status = MirrorStatus(arguments.name, arguments.source)
    with (
        metrics_page(arguments, [status.families], ready=status.not_ready),
        open_client(arguments, "--from", arguments.source, config=arguments.from_config, client_id=CLIENT_ID) as source,
        open_client(arguments, "--to", arguments.target, config=arguments.to_config, client_id=CLIENT_ID) as target,
    ):
        make = mirror_maker(arguments, source, target, topics=topics, sync=sync, progress=progress)
        with on_ending(stop.set):
            try:
                mirror = make() if arguments.exit else awaited(make, stop)
            except ValueError as error:
                raise UsageError(str(error)) from error
            if mirror is None:
                return 0
        status.follows(mirror)
        try:
            with on_ending(stop.set):
                mirror.run(stop, to_end=arguments.exit)
        except MirrorLoop as error:
            raise UsageError(str(error)) from error
        finally:
            progress.finish(mirror.copied.record_count, mirror.copied.size)
            report(mirror, sync, as_json=arguments.json)
            if mirror.copied.topics:
                say_isolation("read_committed")
            mirror.close()
    if behind := mirror.states.rows:
        sentence = f"these topics could not be copied and were left behind: {', '.join(sorted(behind))}"
        if arguments.exit:
            raise CommandError(sentence)
        warn(sentence)
    if not mirror.copied.topics and not mirror.copied.skipped:
        # Without -e, matching topics may be created later, so an empty result is not an error.
        none = f"no topic matches {arguments.topics}" + (f" outside {arguments.exclude}" if arguments.exclude else "")
        if arguments.exit:
            raise CommandError(f"{none}: nothing was copied", status=EXIT_USAGE)
        note(f"kafkalite: {none}: nothing was copied")
    return 0


def mirror_maker(
    arguments: argparse.Namespace,
    source: Client,
    target: Client,
    *,
    topics: TopicFilter,
    sync: SyncOptions,
    progress: Progress,
) -> Callable[[], Mirror]:
    """Return a function that builds the mirror from the flags."""
    from kafkalite.mirror import CONFIG_EXCLUDE, Mirror

    return lambda: Mirror(
        source,
        target,
        name=arguments.name,
        topics=topics,
        prefix=arguments.prefix,
        commit_interval_s=arguments.commit_interval,
        commit_size=arguments.commit_size,
        refresh_s=arguments.refresh,
        sync=sync,
        config_exclude=arguments.config_properties_exclude or CONFIG_EXCLUDE,
        on_data_loss=arguments.on_data_loss,
        on_note=warn,
        on_commit=lambda copied: progress.update(copied.record_count, copied.size),
    )


def awaited(make: Callable[[], Mirror], stop: threading.Event) -> Mirror | None:
    """Build the mirror, and try again until both clusters can be reached. Return None if `stop` is set first.

    CommandError with the last error after GIVE_UP_S.
    """
    from kafkalite.mirror.mirror import GIVE_UP_S

    began, pause_s = time.monotonic(), AWAIT_PAUSE_S
    while not stop.is_set():
        try:
            return make()
        except UNREACHED as error:
            if time.monotonic() - began > GIVE_UP_S:
                raise CommandError(f"{error}, for {GIVE_UP_S:.0f} s") from error
            if pause_s == AWAIT_PAUSE_S:
                warn(f"waiting for the brokers: {error}")
        stop.wait(pause_s)
        pause_s = min(2 * pause_s, AWAIT_PAUSE_S_MAX)
    return None


def warn(text: str) -> None:
    """Write one warning to stderr."""
    note(f"kafkalite: {text}")


def report(mirror: Mirror, sync: SyncOptions, *, as_json: bool) -> None:
    """Print what this run copied and synchronized. Failures to synchronize were reported when they occurred."""
    copied, carried = mirror.copied, carried_of(mirror, sync)
    if as_json:
        rows = [
            {"topic": topic, "records": records, "bytes": copied.sizes[topic]}
            for topic, records in sorted(copied.records.items())
        ]
        summary = {"records": copied.record_count, "transactions": copied.transactions, "topics": rows}
        print_json({**summary, **carried, "notes": copied.notes} if carried else summary)
        return
    print_table(
        ("TOPIC", "RECORDS", "SIZE"),
        [(topic, records, quantity(copied.sizes[topic], "B")) for topic, records in sorted(copied.records.items())],
    )
    say(f"{copied.record_count} records in {copied.transactions} transactions")
    for what, rows in carried.items():
        say(f"{WORDS[what]}: {sum(map(len, rows.values())) if isinstance(rows, dict) else len(rows)}")


def carried_of(mirror: Mirror, sync: SyncOptions) -> dict[str, Any]:
    """Return what the --sync flags copied, for the report."""
    from kafkalite.cli.acls import FIELDS

    parts, found = mirror.carried, dict[str, Any]()
    if sync.topic_configs:
        found["settings"] = mirror.changed_settings
    if parts.groups is not None:
        found["groups"] = {
            group: {f"{key.topic}-{key.partition}": offset for key, offset in sorted(positions.items())}
            for group, positions in sorted(parts.groups.carried.items())
        }
    if parts.rules is not None:
        found["acls"] = [dict(zip(FIELDS, acl.texts(), strict=True)) for acl in sorted(parts.rules.carried)]
    if parts.quotas is not None:
        found["quotas"] = [
            {"entity": dict(entity), "key": key} for entity, key in sorted(parts.quotas.carried, key=str)
        ]
    if parts.users is not None:
        found["users_missing"] = parts.users.missing
    return {"created": mirror.created_topics, **found} if found else {}
