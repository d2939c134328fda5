"""A cluster's broker on a crash state: its logs compared with the others', and whether it rejoins the cluster.

Before it may follow a leader:
    records     records acknowledged with acks=all are at their offsets: the leader answers once they are on the disk
    history     a log with batches of a leader has exactly the leader's bytes up to them; the batches written here
                are those that were sent here
    cuts        what was in no history of a leader that the broker has asked since does not come back
    epochs      leader-epoch-checkpoint has each batch's epoch
    marks       log start and high watermark are inside the log, and no higher than any broker has known them
    clean       a broker that claims a clean shutdown (its last broker epoch) has everything that it ever acknowledged
    identity    the ids of node, cluster and directory are unchanged
After:
    copies      every replica has its leader's bytes, also of what is written now, and what it leads takes records
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from kafkalite.broker import Broker
from kafkalite.broker.log.replica_log import ReplicaLog
from kafkalite.errors import StartupError
from kafkalite.wire.protocol import api
from tests.kit.harness import wire
from tests.power.judge import QUIET, Lines, Verdict, where
from tests.power.look import Look
from tests.power.promises.base import Past
from tests.power.replicas.others import Others
from tests.power.replicas.recording import ReplicaRecording, first_served
from tests.power.replicas.state import OWN, PEER, Batch, Kept, Key, Line, State, split

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.power.recording import Recording

PATIENCE_S = 60.0
"""The time in which copies must become equal."""
PATIENCE_S_WITH_FINDINGS = 3.0
"""The same after other findings: a difference is only reported as one more."""
NOW = 1 << 60
"""In place of a moment of the trace: behind all of it."""
ALWAYS_QUIET = {key: text for key, text in QUIET.items() if not key.startswith("log.retention")}


def look_at_replicas(verdict: Verdict, data_directory: Path, recording: Recording, moment: int) -> Any:
    """Return a sentence for each fault of a broker started on a state."""
    assert isinstance(recording, ReplicaRecording)
    lines = Lines()
    logger = logging.getLogger("kafkalite")
    logger.addHandler(lines)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    past = Past(recording.history, moment)
    findings: list[str] = []
    with Others(0, lambda: NOW) as others:
        others.take_up(recording.others, moment)
        others.serves_replicas = False
        kept = Kept(recording.others, moment)
        settings = {**recording.broker_settings, **ALWAYS_QUIET, "log.dirs": str(data_directory)}
        settings |= {"listeners": "PLAINTEXT://127.0.0.1:0", "controller.quorum.bootstrap.servers": others.address}
        broker = Broker(settings)
        try:
            broker.start()
        except StartupError as error:
            verdict.refused = str(error)
            findings.append(f"the broker refuses to start: {error}")
            return findings
        try:
            others.come_back()
            logs = _logs(broker, others)
            findings += list(_static(past, kept, logs, recording, others))
            others.serves_replicas = True
            port = int(broker.bootstrap_servers.rsplit(":", 1)[1])
            others.follow(lambda: port)
            patience_s = PATIENCE_S_WITH_FINDINGS if findings else PATIENCE_S
            findings += list(_copies(logs, others, port, patience_s))
        except Exception as error:  # noqa: BLE001 - the broker's log has the reason
            findings.append(f"judging failed: {where(error)}")
        findings += [f"the broker's log has a traceback: {text}" for text in lines.tracebacks]
        if os.environ.get("POWER_SHOW_LOG"):
            print("\n".join(lines.lines))
    return findings


def _logs(broker: Broker, others: Others) -> dict[Key, ReplicaLog]:
    """The replicas that the broker should have."""
    found = {}
    for key, part in others.state.parts.items():
        if OWN in part.replicas:
            log = broker.logs.topics[part.topic].partitions[key[1]]
            assert isinstance(log, ReplicaLog), f"{others.state.name(key)} is not here"
            assert log.topic_id == key[0], f"{others.state.name(key)} has another topic's id"
            found[key] = log
    return found


def batches_of(log: ReplicaLog) -> list[Batch]:
    """All that its files hold."""
    found: list[Batch] = []
    for segment in log.segments:
        if segment.size:
            found += split(segment.read_bytes(0, segment.size))
    return found


# --- before it follows ------------------------------------------------------------------------------------------------


def _static(
    past: Past, kept: Kept, logs: dict[Key, ReplicaLog], recording: ReplicaRecording, others: Others
) -> Iterator[str]:
    before = kept.state
    sent: dict[tuple[str, int], dict[int, bool]] = {}
    for op in past.ops("records"):
        sent.setdefault((op.what["topic"], op.what["partition"]), {})[op.what["crc"]] = True
    registration = others.requests(api.BROKER_REGISTRATION)[0]
    clean = registration.previous_broker_epoch >= 0
    for key, log in logs.items():
        name = others.state.name(key)
        batches = batches_of(log)
        line = before.lines.get(key, Line())
        yield from (f"whole: {name}: {text}" for text in _whole(log, batches))
        yield from (f"records: {name}: {text}" for text in _records(past, key, log, batches, kept, clean=clean))
        known = sent.get((log.topic, log.partition), {})
        yield from (f"history: {name}: {text}" for text in _history(before, key, batches, known))
        yield from (f"cuts: {name}: {text}" for text in _cuts(before, key, line, batches))
        yield from (f"epochs: {name}: {text}" for text in _epochs(log, batches))
        yield from (f"marks: {name}: {text}" for text in _marks(log, line, alone=others.state.parts[key].topic))
        epoch, told = line.told
        part = before.parts.get(key)
        if clean and part is not None and epoch == part.epoch and log.log_end_offset < told:
            yield f"clean: {name} ends at {log.log_end_offset}, and its leader was told {told}"
    yield from (f"identity: {text}" for text in _identity(recording, past.moment, registration))


def _whole(log: ReplicaLog, batches: list[Batch]) -> Iterator[str]:
    """The log is batches, one behind the other."""
    behind = batches[0].base if batches else log.log_end_offset
    for batch in batches:
        if batch.base != behind:
            yield f"a hole from {behind} to {batch.base}"
        if crc32c(batch.data[21:]) != batch.crc:
            yield f"the checksum of the batch at {batch.base} is wrong"
        behind = batch.behind
    if behind != log.log_end_offset:
        yield f"the batches end at {behind}, and the log at {log.log_end_offset}"


def _records(past: Past, key: Key, log: ReplicaLog, batches: list[Batch], kept: Kept, *, clean: bool) -> Iterator[str]:
    """Check acknowledged records: with acks=all they are here while this broker was the only one in sync, else on both;
    with acks=1 where no other broker leads and the shutdown was clean.
    """
    here = {batch.base: batch.crc for batch in batches}
    line = kept.state.lines.get(key, Line())
    there = {batch.base: batch.crc for batch in line.batches}
    for op in past.ops("records"):
        if (op.what["topic"], op.what["partition"]) != (log.topic, key[1]) or not past.promised(op):
            continue
        base, crc = (op.result or {})["base"], op.what["crc"]
        if op.what["acks"] == 1 and not (clean and log.topic == "alone"):
            continue
        if here.get(base) == crc:
            continue
        last = kept.state.parts[key]
        if last.isr == (OWN,):
            yield f"acknowledged at {base}, which only the other replica has, and that does not count"
            continue
        both = {isr for isr in kept.in_sync(key, op.begun, op.answered) if PEER in isr}
        if not both or there.get(base) != crc:
            what = "another one" if base in here else "nothing"
            told = f"acknowledged (acks={op.what['acks']}) at {base}, where {what} is"
            yield f"{told}; the log ends at {log.log_end_offset}{', as the other replica' if both else ''}"


def _history(before: State, key: Key, batches: list[Batch], sent: dict[int, bool]) -> Iterator[str]:
    line = before.lines.get(key, Line())
    part = before.parts.get(key)
    led = {*line.histories, *((part.epoch,) if part is not None and part.leader == PEER else ())}
    newest = -1
    for number, batch in enumerate(batches):
        given = line.ever.get((batch.epoch, batch.base))
        if batch.epoch in led:
            newest = number
        if given is not None and given != batch.data:
            yield f"the batch at {batch.base} of epoch {batch.epoch} has other bytes than at the other replica"
        elif given is None and batch.epoch in led:
            yield f"the leader of epoch {batch.epoch} had no batch at {batch.base}"
        elif given is None and batch.crc not in sent:
            yield f"the batch at {batch.base} of epoch {batch.epoch} was never sent"
    if newest >= 0:
        first, last = batches[0], batches[newest]
        leaders = [each for each in before.history(key, last.epoch) if first.base <= each.base < last.behind]
        if leaders != batches[: newest + 1]:
            yield f"up to {last.behind} it is not the log of the leader of epoch {last.epoch}"


def _cuts(before: State, key: Key, line: Line, batches: list[Batch]) -> Iterator[str]:
    epoch = line.told[0]
    if epoch < 0:
        return
    leaders = set(before.history(key, epoch))
    for batch in batches:
        if batch.epoch <= epoch and batch not in leaders:
            yield f"the batch at {batch.base} of epoch {batch.epoch} was cut before its leader was asked in {epoch}"


def _epochs(log: ReplicaLog, batches: list[Batch]) -> Iterator[str]:
    start = log.log_start_offset
    for batch in batches:
        if batch.base >= start and log.epochs.epoch_at(batch.base) != batch.epoch:
            yield f"epoch {batch.epoch} at {batch.base} is {log.epochs.epoch_at(batch.base)} in {log.epochs.entries}"
            return
    begun = {(batch.epoch, batch.base) for batch in batches}
    for entry in log.epochs.entries:
        if start < entry[1] < log.log_end_offset and entry not in begun:
            yield f"no batch begins at {entry} of {log.epochs.entries}"


def _marks(log: ReplicaLog, line: Line, *, alone: str) -> Iterator[str]:
    start, high, end = log.log_start_offset, log.high_watermark, log.log_end_offset
    if not start <= high <= end:
        yield f"it starts at {start}, has its high watermark at {high}, and ends at {end}"
    if alone in {"followed", "renewed"}:
        if high > max(line.high_max, line.start):
            yield f"its high watermark is {high}, and never was above {line.high_max}"
        if start > line.start:
            yield f"it starts at {start}, and its leader at {line.start}"


def _identity(recording: ReplicaRecording, moment: int, registration: Any) -> Iterator[str]:
    known = [row for row in recording.others["registrations"] if row[0] <= moment]
    told = [each.hex() for each in registration.log_dirs]
    if moment > first_served(recording) and told != known[0][2]:
        yield f"its directory is {told}, and was {known[0][2]}"
    if registration.previous_broker_epoch >= 0 and registration.previous_broker_epoch != known[-1][1]:
        yield f"it claims to have had epoch {registration.previous_broker_epoch}, and had {known[-1][1]}"


# --- then -------------------------------------------------------------------------------------------------------------


def _copies(logs: dict[Key, ReplicaLog], others: Others, port: int, patience_s: float) -> Iterator[str]:
    others.write_everywhere()
    yield from _produces(others, port)
    deadline = time.monotonic() + patience_s
    while (late := [key for key, log in logs.items() if _differs(others, key, log)]) and time.monotonic() < deadline:
        time.sleep(0.003)
    for key in late:
        yield f"copies: {others.state.name(key)}: {_differs(others, key, logs[key])}"


def _produces(others: Others, port: int) -> Iterator[str]:
    look = Look(port)
    wanted = {(part.topic, key[1]) for key, part in others.state.parts.items() if part.leader == OWN}
    deadline = time.monotonic() + PATIENCE_S
    while wanted:
        answers = look.produce({key: wire.batch_of([wire.Record(b"after", b"after")]) for key in wanted})
        wanted = {key for key in wanted if answers[key][0]}
        if wanted and time.monotonic() > deadline:
            yield f"copies: {sorted(wanted)} take no records: {answers}"
            return
    look.close()


def _differs(others: Others, key: Key, log: ReplicaLog) -> str:
    """Return what a replica still lacks; empty: nothing."""
    with others.change():
        part, line = others.state.parts[key], others.state.lines[key]
        if part.leader == OWN and PEER not in part.replicas:
            return ""
        if log.log_end_offset != line.end:
            return f"it ends at {log.log_end_offset}, and its other replica at {line.end}"
        if part.leader == PEER and log.high_watermark != line.high:
            return f"its high watermark is {log.high_watermark}, and its leader's {line.high}"
        start = max(log.log_start_offset, line.start)
        own = [each for each in batches_of(log) if each.base >= start]
        same = own == [each for each in line.batches if each.base >= start]
        return "" if same else "its bytes are not its leader's"
