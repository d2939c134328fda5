"""Run a handler for each record of some topics. A policy defines retries and dead letters.

kafkalite failures run shop.billing:bill
kafkalite failures run --policy billing.toml shop.billing:handle
kafkalite failures ledger billing
kafkalite failures status billing

The handler is a function of an importable module, or of a module in this directory: handle(record) or handle(record,
transaction), also async. What the handler writes in the transaction becomes visible only if the record is processed.

The policy determines what happens after an exception. It comes from the decorator @failures.handler, or from the file
of --policy, which takes precedence. The ledger is a topic with the state of each record that failed.

With --restarts the member runs in a child process, which is restarted if a signal kills it. A record that kills the
process repeatedly becomes a dead letter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.base.ending import on_ending
from kafkalite.cli import CommandError, Parser, UsageError
from kafkalite.cli.common import add_client_arguments, count, natural, open_client, say_isolation, security_from
from kafkalite.cli.output import note, print_json, print_table, say

if TYPE_CHECKING:
    import argparse

    from kafkalite.client import Client
    from kafkalite.failures.alarms import AlarmSender
    from kafkalite.failures.policy import Policy

RESTART_PAUSE_S: Final = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)

    run = actions.add_parser("run", help="handle records until Ctrl-C")
    run.add_argument("handler", metavar="MODULE:FUNCTION", help="function that handles a record")
    run.add_argument(
        "--policy",
        metavar="FILE",
        type=Path,
        help="TOML file with the policy (default: the policy in @failures.handler)",
    )
    run.add_argument(
        "--member", metavar="NAME", help="member name; must be unique in the group and stay the same after a restart"
    )
    run.add_argument(
        "--workers",
        metavar="N",
        type=count,
        default=1,
        help="number of records handled at a time, in threads or, for an async handler, in tasks (default: 1)",
    )
    run.add_argument("--alarm-url", metavar="URL", help="URL to which alarms are posted as JSON")
    run.add_argument(
        "--restarts",
        metavar="N",
        type=natural,
        default=0,
        help="maximum number of restarts after a crash of the member (default: 0)",
    )
    run.add_argument("--no-create", action="store_true", help="create no topics; fail if one is missing")
    status = actions.add_parser("status", help="count a group's failed records by state")
    ledger = actions.add_parser("ledger", help="print every row of a group's ledger")
    for action in (status, ledger):
        action.add_argument("group", metavar="GROUP")
    for action in (run, status, ledger):
        add_client_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "run":
        supervised = arguments.restarts and "KAFKALITE_CHILD" not in os.environ
        return supervise(arguments.restarts) if supervised else run_member(arguments)
    with open_client(arguments) as client:
        {"status": status_action, "ledger": ledger_action}[arguments.action](client, arguments)
    say_isolation("read_committed")
    return 0


def supervise(left: int) -> int:
    """Run the same command as a child process, and restart the child up to `left` times if a signal kills it.

    Return the child's exit status once it exits by itself. CommandError when no restarts are left.
    """
    words = sys.argv[1:]
    stop = threading.Event()
    environment = {**os.environ, "KAFKALITE_CHILD": "1"}
    while True:
        child = subprocess.Popen([sys.executable, "-m", "kafkalite", *words], env=environment)

        def end(child: subprocess.Popen[bytes] = child) -> None:
            stop.set()
            child.terminate()

        with on_ending(end):
            status = child.wait()
        if status >= 0 or stop.is_set():
            return 0 if stop.is_set() else status
        if not left:
            raise CommandError(f"the member was killed by signal {-status}; no restarts are left")
        left -= 1
        note(f"kafkalite: the member was killed by signal {-status} and is restarted")
        stop.wait(RESTART_PAUSE_S)


def run_member(arguments: argparse.Namespace) -> int:
    from kafkalite.failures import Handler
    from kafkalite.failures import run as run_policy
    from kafkalite.failures.policy_file import load_policy, named

    sys.path.insert(0, str(Path.cwd()))
    policy = None if arguments.policy is None else load_policy(arguments.policy)
    stop = threading.Event()
    dead = None
    try:
        handler = named(arguments.handler)
        if isinstance(handler, Handler):
            policy = policy or handler.policy
            dead = handler.dead_function
            handler = handler.function
        if policy is None:
            raise UsageError(f"{arguments.handler} has no @failures.handler: name its policy with --policy FILE")
        sender = sender_of(arguments, policy)
    except ValueError as error:
        raise UsageError(str(error)) from error
    with on_ending(stop.set):
        try:
            why = run_policy(
                policy,
                handler,
                arguments.bootstrap_server,
                stop=stop,
                member=arguments.member,
                workers=arguments.workers,
                dead=dead,
                security=security_from(arguments.command_config),
                on_alarm=None if sender is None else sender.send,
                create_topics=not arguments.no_create,
            )
        finally:
            if sender is not None:
                sender.close()
    if why:
        raise CommandError(why)
    say_isolation("read_committed")
    return 0


def sender_of(arguments: argparse.Namespace, policy: Policy) -> AlarmSender | None:
    """Return the sender of alarms for --alarm-url; None without the flag. ValueError for an invalid URL."""
    if arguments.alarm_url is None:
        return None
    from kafkalite.failures.alarms import AlarmSender

    return AlarmSender(arguments.alarm_url, policy.group)


def status_action(client: Client, arguments: argparse.Namespace) -> None:
    from kafkalite.failures import Ledger

    ledger = Ledger(client, arguments.group)
    ledger.refresh()
    if not ledger.exists:
        raise CommandError(f"group {arguments.group} has no ledger")
    counts = Counter(row.state.value for _, row in ledger.records())
    held = [where for where, row in ledger.records() if row.held]
    if arguments.json:
        states = dict(sorted(counts.items()))
        open_since = {member: row.first for member, row in sorted(ledger.breakers.items())}
        print_json(
            {
                "group": arguments.group,
                "states": states,
                "held_by": held,
                "breakers_open_since": open_since,
                "doubted": [
                    {
                        "partition": str(place),
                        "first": row.position,
                        "until": row.until,
                        "since": row.last,
                        "member": row.member,
                    }
                    for place, row in ledger.doubted.items()
                ],
                "policy": ledger.policy,
            }
        )
        return
    print_table(("STATE", "RECORDS"), sorted(counts.items()))
    for where in held:
        say(f"records with the key of {where} wait until it is redriven and processed, or resolved")
    for place, row in ledger.doubted.items():
        say(
            f"{place}, offsets {row.position} to {row.until - 1}: the previous member did not shut down cleanly, and "
            f"one of these records may be the cause; {row.member} handles them in small batches, each noted in the "
            "ledger first"
        )
    for member, row in sorted(ledger.breakers.items()):
        ago_s = max(time.time() - row.last / 1000, 0)
        say(f"member {member} reported {ago_s:.0f} s ago: {row.reason}")


def ledger_action(client: Client, arguments: argparse.Namespace) -> None:
    from kafkalite.failures import Ledger

    ledger = Ledger(client, arguments.group)
    ledger.refresh()
    rows = list(ledger.records())
    if arguments.json:
        for where, row in rows:
            print_json({"record": where, **row._asdict()})
        return
    print_table(
        ("RECORD", "STATE", "FAILURES", "EXCEPTION", "LETTER"),
        [(where, row.state.value, row.attempt, row.exception, row.id) for where, row in rows],
    )
