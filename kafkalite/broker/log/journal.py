"""Read and write `metadata.journal`, the file with a data directory's topics, settings, users, ACLs, quotas and ids.

    <CRC-32C of the JSON, 8 hex digits> SPACE <JSON object> NEWLINE

Each change is one line, which is appended and synced before the response. Opening the journal replays the lines.

    {"op": "format", "version": 1, "cluster_id": ...}         always the first line
    {"op": "topic", "name", "id", "partitions": count, "overrides": {}, "epoch_bases": [[base, count], ...]}
    {"op": "partitions", "name", "total", "epoch_base"}       {"op": "delete", "name", "id"}
    {"op": "overrides", "name", "overrides"}                  settings of a topic
    {"op": "broker", "overrides"}                             settings of this broker
    {"op": "cluster", "overrides"}                            settings of all brokers
    {"op": "group", "id", "overrides"}                        settings of a group; empty: the entry is removed
    {"op": "client_metrics", "name", "overrides"}             a client metrics subscription; empty: it is removed
    {"op": "producer_ids", "next"}                            {"op": "unclean", "count"}
    {"op": "epoch_base", "name", "partition", "base"}
    {"op": "scram", "user", "mechanism", "salt", "stored_key", "server_key", "iterations"}      bytes as hex digits
    {"op": "scram_delete", "user", "mechanism"}               {"op": "secret", "value"}
    {"op": "scram_changes", "changes": [change, ...]}         several changes of users
    {"op": "features", "levels": {name: level}, "count"}      count: number of feature changes ever made
    {"op": "acls", "add": [acl, ...], "remove": [acl, ...]}   an ACL is the seven texts of kafkalite.base.acls.Acl
    {"op": "quota", "changes": [{"entity": {type: name or null}, "key", "value": number or null}, ...]}

A request's changes of users, ACLs or quotas are one line, so they apply as a whole or not at all.

Thread rule: the lock of `MetadataStore` orders writers. Everything here blocks.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalite._native.base import file_ops
from kafkalite._native.base.crc32c import crc32c
from kafkalite.base.acls import Acl
from kafkalite.base.dataclass import dataclass
from kafkalite.base.logging import fields
from kafkalite.base.quota_entities import Change, Entity
from kafkalite.broker.features import Features
from kafkalite.broker.log import disk, files
from kafkalite.errors import StartupError
from kafkalite.model import ScramCredential, uuid_bytes, uuid_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

logger = logging.getLogger(__name__)

T = TypeVar("T")

VERSION: Final = 1
ACLS_PER_LINE: Final = 1000
"""Number of ACLs or quotas per line of a rewritten journal."""
SLACK_LINES: Final = 64
"""Number of surplus lines (lines that the state does not need) above which a start rewrites the journal."""
RUNNING_SLACK_LINES: Final = 1000
"""Surplus lines above which a running broker rewrites the journal. It also waits until the file is twice as long as
needed, since a rewrite costs as much as the file is long."""


@dataclass(slots=True)
class TopicState:
    """A topic in the journal.

    A partition's leader epoch is the count of unclean starts minus the partition's base. So an unclean start adds one
    line for any number of partitions.
    """

    name: str
    topic_id: bytes
    overrides: dict[str, str]
    epoch_bases: list[int]  # one per partition


@dataclass(slots=True)
class MetadataState:
    """The state after all lines of the journal."""

    cluster_id: str
    topics: dict[str, TopicState] = field(default_factory=dict)
    broker_overrides: dict[str, str] = field(default_factory=dict)
    cluster_overrides: dict[str, str] = field(default_factory=dict)
    group_overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    client_metrics_overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    unclean_count: int = 0
    acls: dict[Acl, None] = field(default_factory=dict)  # in the order of their addition
    deleted_ids: set[bytes] = field(default_factory=set)  # of topics whose directories may still exist
    deleted_names: set[str] = field(default_factory=set)  # of the same topics
    credentials: dict[tuple[str, str], ScramCredential] = field(default_factory=dict)  # by mechanism and user
    features: Features = field(default_factory=Features)
    secret: bytes = b""  # random bytes of this data directory; empty until first used
    quotas: dict[Entity, dict[str, float]] = field(default_factory=dict)  # quota values by key; no empty entities


def encode_line(change: dict[str, Any]) -> bytes:
    """Return the journal's line for a change."""
    text = json.dumps(change, separators=(",", ":"), sort_keys=True).encode()
    return b"%08x %s\n" % (crc32c(text), text)


def decode_line(line: bytes) -> dict[str, Any] | None:
    """Return the change in a journal line, which is passed without its newline; None if the line is damaged."""
    if line[:9] != b"%08x " % crc32c(line[9:]):
        return None
    try:
        change = json.loads(line[9:])
    except ValueError:
        return None
    return change if isinstance(change, dict) and "op" in change else None


def _run_lengths(values: list[int]) -> list[list[int]]:
    """Return [[value, count], ...] with one entry per run of equal values. Most partitions of a topic have the same
    base.
    """
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return runs


def topic_change(topic: TopicState) -> dict[str, Any]:
    """Return the journal line that creates a topic."""
    return {
        "op": "topic",
        "name": topic.name,
        "id": uuid_text(topic.topic_id),
        "partitions": len(topic.epoch_bases),
        "overrides": topic.overrides,
        "epoch_bases": _run_lengths(topic.epoch_bases),
    }


def credential_change(mechanism: str, user: str, credential: ScramCredential) -> dict[str, Any]:
    """Return the journal line that sets a user's SCRAM credential."""
    return {
        "op": "scram",
        "user": user,
        "mechanism": mechanism,
        "salt": credential.salt.hex(),
        "stored_key": credential.stored_key.hex(),
        "server_key": credential.server_key.hex(),
        "iterations": credential.iterations,
    }


def credential_deletion(mechanism: str, user: str) -> dict[str, Any]:
    """Return the journal line that deletes a user's SCRAM credential."""
    return {"op": "scram_delete", "user": user, "mechanism": mechanism}


def credentials_change(changes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the journal line with all changes of users that a request makes."""
    return changes[0] if len(changes) == 1 else {"op": "scram_changes", "changes": list(changes)}


def group_change(group_id: str, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Return the journal line that sets a group's settings."""
    return {"op": "group", "id": group_id, "overrides": dict(overrides)}


def client_metrics_change(name: str, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Return the journal line that creates, changes or (without settings) deletes a client metrics subscription."""
    return {"op": "client_metrics", "name": name, "overrides": dict(overrides)}


def features_change(features: Features) -> dict[str, Any]:
    """Return the journal line that sets the feature levels."""
    return {"op": "features", "levels": dict(features.changed), "count": features.change_count}


def acls_change(added: Iterable[Acl], removed: Iterable[Acl]) -> dict[str, Any]:
    """Return the journal line that adds and removes ACLs."""
    return {"op": "acls", "add": [acl.texts() for acl in added], "remove": [acl.texts() for acl in removed]}


def quotas_change(changes: Iterable[Change]) -> dict[str, Any]:
    """Return the journal line that changes quotas."""
    return {"op": "quota", "changes": [change.fields() for change in changes]}


def _apply_quotas(state: MetadataState, change: dict[str, Any]) -> None:
    """Apply changes of quotas. ValueError if a removed quota does not exist."""
    for entity, key, value in map(Change.from_fields, change["changes"]):
        if value is not None:
            state.quotas.setdefault(entity, {})[key] = value
            continue
        if key not in state.quotas.get(entity, {}):
            raise ValueError(f"removal of a quota that does not exist: {entity!r:.200} {key!r:.64}")
        del state.quotas[entity][key]
        if not state.quotas[entity]:
            del state.quotas[entity]


def _apply_acls(state: MetadataState, change: dict[str, Any]) -> None:
    """Apply changes of ACLs. ValueError if an added ACL exists or a removed ACL does not: permissions are never
    guessed."""
    for acl in map(Acl.from_texts, change["remove"]):
        if acl not in state.acls:
            raise ValueError(f"removal of an ACL that does not exist: {acl.texts()!r:.200}")
        del state.acls[acl]
    for acl in map(Acl.from_texts, change["add"]):
        if acl in state.acls:
            raise ValueError(f"an ACL is added twice: {acl.texts()!r:.200}")
        state.acls[acl] = None


def _apply_credential(state: MetadataState, change: dict[str, Any]) -> None:
    key = (change["mechanism"], change["user"])
    if change["op"] == "scram_delete":
        del state.credentials[key]
    elif change["op"] == "scram":
        salt, stored_key, server_key = (bytes.fromhex(change[part]) for part in ("salt", "stored_key", "server_key"))
        state.credentials[key] = ScramCredential(salt, stored_key, server_key, int(change["iterations"]))
    else:
        raise ValueError(f"unknown user operation {change['op']!r:.100}")


def _set_or_drop(present: dict[str, dict[str, str]], name: str, overrides: Mapping[str, str]) -> None:
    present[name] = dict(overrides)
    if not overrides:
        del present[name]


def apply(state: MetadataState, change: dict[str, Any]) -> None:
    """Apply one line to the state; KeyError, ValueError or TypeError if this release cannot read the line."""
    op = change["op"]
    if op == "topic":
        bases = [int(base) for base, count in change["epoch_bases"] for _ in range(count)]
        if len(bases) != change["partitions"]:
            raise ValueError(f"topic {change['name']} needs {change['partitions']} leader epochs, not {len(bases)}")
        state.topics[change["name"]] = TopicState(
            change["name"], uuid_bytes(change["id"]), dict(change["overrides"]), bases
        )
    elif op == "partitions":
        bases = state.topics[change["name"]].epoch_bases
        bases += [int(change["epoch_base"])] * (int(change["total"]) - len(bases))
    elif op == "epoch_base":
        state.topics[change["name"]].epoch_bases[change["partition"]] = int(change["base"])
    elif op == "delete":
        state.topics.pop(change["name"], None)
        state.deleted_ids.add(uuid_bytes(change["id"]))
        state.deleted_names.add(change["name"])
    elif op == "overrides":
        state.topics[change["name"]].overrides = dict(change["overrides"])
    elif op == "broker":
        state.broker_overrides = dict(change["overrides"])
    elif op == "cluster":
        state.cluster_overrides = dict(change["overrides"])
    elif op == "group":
        _set_or_drop(state.group_overrides, change["id"], change["overrides"])
    elif op == "client_metrics":
        _set_or_drop(state.client_metrics_overrides, change["name"], change["overrides"])
    elif op == "producer_ids":
        state.next_producer_id = int(change["next"])
    elif op == "acls":
        _apply_acls(state, change)
    elif op == "quota":
        _apply_quotas(state, change)
    elif op == "unclean":
        state.unclean_count = int(change["count"])
    elif op in {"scram", "scram_delete"}:
        _apply_credential(state, change)
    elif op == "scram_changes":
        for each in change["changes"]:
            _apply_credential(state, each)
    elif op == "features":
        levels = sorted((str(name), int(level)) for name, level in change["levels"].items())
        state.features = Features(tuple(levels), int(change["count"]))
    elif op == "secret":
        state.secret = bytes.fromhex(change["value"])
    else:
        raise ValueError(f"unknown operation {op!r}")


def _snapshot(state: MetadataState) -> list[dict[str, Any]]:
    """Return the shortest list of changes that leads to this state."""
    changes = _without_lists(state) + [acls_change(acls, ()) for acls in batched(state.acls, ACLS_PER_LINE)]
    return changes + [quotas_change(quotas) for quotas in batched(_all_quotas(state), ACLS_PER_LINE)]


def _snapshot_size(state: MetadataState) -> int:
    """Return the length of the list that _snapshot() returns, without building it."""
    counts = (len(state.acls), sum(map(len, state.quotas.values())))
    return len(_without_lists(state)) + sum(-(-count // ACLS_PER_LINE) for count in counts)


def _all_quotas(state: MetadataState) -> Iterator[Change]:
    return (Change(entity, *item) for entity, values in state.quotas.items() for item in values.items())


def _without_lists(state: MetadataState) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = [{"op": "format", "version": VERSION, "cluster_id": state.cluster_id}]
    if state.unclean_count:
        changes.append({"op": "unclean", "count": state.unclean_count})
    if state.next_producer_id:
        changes.append({"op": "producer_ids", "next": state.next_producer_id})
    if state.broker_overrides:
        changes.append({"op": "broker", "overrides": state.broker_overrides})
    if state.cluster_overrides:
        changes.append({"op": "cluster", "overrides": state.cluster_overrides})
    if state.features.change_count:
        changes.append(features_change(state.features))
    if state.secret:
        changes.append({"op": "secret", "value": state.secret.hex()})
    changes += [group_change(group_id, overrides) for group_id, overrides in state.group_overrides.items()]
    changes += [client_metrics_change(*item) for item in state.client_metrics_overrides.items()]
    changes += [credential_change(*key, credential) for key, credential in state.credentials.items()]
    changes += [topic_change(topic) for topic in state.topics.values()]
    return changes


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items; the last list may be shorter."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


class Journal:
    """The open journal of a data directory, and the state after its lines."""

    def __init__(self, path: str, state: MetadataState, fd: int, size: int, line_count: int) -> None:
        self.path = path
        self.state = state
        self.size = size
        """Size of the valid lines, in bytes."""
        self.failure: str | None = None
        """The reason why the journal accepts no more changes; None if it accepts changes."""
        self._fd = fd
        self.line_count = line_count  # lines in the file
        self.change_count = line_count
        """Number of lines at opening plus number of changes since then; unlike `line_count`, it never decreases."""

    @classmethod
    def open(cls, directory: str) -> Journal | None:
        """Replay the journal; return None if the file does not exist. StartupError if it is damaged or of a newer
        release."""
        path = f"{directory}/{files.JOURNAL_NAME}"
        data = files.read_bytes(path)
        if data is None:
            return None
        state, good_size, line_count = replay(path, data)
        fd = file_ops.open_file(path, os.O_RDWR)
        if good_size < len(data):
            logger.warning(
                "dropped the incomplete last line of the journal",
                extra=fields(path=path, size=len(data) - good_size),
            )
            file_ops.truncate_file(fd, good_size)
            file_ops.sync_file(fd)
        return cls(path, state, fd, good_size, line_count)

    @classmethod
    def create(cls, directory: str, cluster_id: str) -> Journal:
        """Create a journal, durably, and return it."""
        journal = cls(f"{directory}/{files.JOURNAL_NAME}", MetadataState(cluster_id), -1, 0, 0)
        journal.rewrite()
        return journal

    def rewrite(self) -> None:
        """Replace the file by the shortest file with the same state: temporary file, sync, rename, sync of the
        directory.

        After an OSError the old file stays in use. If another file may have its name now, `failure` is set.
        """
        changes = _snapshot(self.state)
        data = b"".join(encode_line(change) for change in changes)
        present = disk.stat(self.path).st_ino if self._fd >= 0 else None
        try:
            files.write_atomically(self.path, data, durable=True)
            fd = file_ops.open_file(self.path, os.O_RDWR)
        except OSError as error:
            if present is not None and not self._is_in_place(present):
                self.failure = str(error)  # the open file was replaced: later writes to it would be lost
            raise
        self.close()
        self._fd = fd
        self.size = len(data)
        self.line_count = len(changes)
        self.change_count = max(self.change_count, self.line_count)

    def compact(self) -> None:
        """Rewrite the file if it has many more lines than its state needs.

        Call this only when no deleted topic has directories left: the new file does not contain the ids of deleted
        topics.
        """
        if self.line_count > _snapshot_size(self.state) + SLACK_LINES:
            self._rewrite_without_deleted()

    def compact_running(self) -> bool:
        """Rewrite a running broker's file if it is far longer than its state needs; return whether it was rewritten.
        OSError.

        Call this only when all directories of deleted topics are durably renamed: the new file does not contain the ids
        of these topics.
        """
        surplus = self.line_count - RUNNING_SLACK_LINES
        if self.failure is not None or surplus <= len(self.state.topics) or surplus <= 2 * _snapshot_size(self.state):
            return False
        self._rewrite_without_deleted()
        return True

    def _rewrite_without_deleted(self) -> None:
        self.rewrite()
        self.state.deleted_ids.clear()
        self.state.deleted_names.clear()

    def _is_in_place(self, inode: int) -> bool:
        """Return whether the path still leads to the open file, by inode number."""
        try:
            return disk.stat(self.path).st_ino == inode
        except OSError:
            return False

    def record(self, *changes: dict[str, Any]) -> None:
        """Write changes, and apply them to the state when they are durable. After an OSError, the state is unchanged.

        After a failed sync the file's content is unknown. So no changes are accepted until the next start reads the
        file.
        """
        if self.failure is not None:
            raise OSError(f"an earlier write to the journal failed ({self.failure}); restart the broker")
        data = b"".join(encode_line(change) for change in changes)
        try:
            file_ops.write_all(self._fd, data, self.size)
        except OSError:
            self._cut_back()
            raise
        try:
            file_ops.sync_file(self._fd)
        except OSError as error:
            self.failure = str(error)
            self._cut_back()
            raise
        self.size += len(data)
        self.line_count += len(changes)
        self.change_count += len(changes)
        for change in changes:
            apply(self.state, change)

    def _cut_back(self) -> None:
        """Remove the incomplete line that a failed write left. Otherwise the next line would follow it directly."""
        try:
            file_ops.truncate_file(self._fd, self.size)
        except OSError as error:
            self.failure = self.failure or str(error)

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            disk.close(self._fd)
            self._fd = -1


def replay(path: str, data: bytes) -> tuple[MetadataState, int, int]:
    """Return (state, size of the valid lines, number of lines) of a journal's content.

    Damaged lines at the end are ignored: they were never acknowledged. StartupError if a valid line follows a damaged
    line: then another program changed the file.
    """
    *lines, rest = data.split(b"\n")
    changes = []
    good_size = 0
    for number, line in enumerate(lines, start=1):
        change = decode_line(line)
        if change is None:
            if number == len(lines) and not rest:
                break
            if not any(decode_line(later) for later in lines[number:]):
                break  # no valid line follows: a power cut left an incomplete last write
            raise StartupError(
                f"{path} is damaged in line {number} of {len(lines)}; restore it from a copy (the logs are intact)"
            )
        changes.append(change)
        good_size += len(line) + 1
    if not changes or changes[0]["op"] != "format":
        raise StartupError(f"{path} does not begin with its format line; restore it from a copy (the logs are intact)")
    if changes[0].get("version") != VERSION:
        raise StartupError(f"{path} has format {changes[0].get('version')}, but this release supports only {VERSION}")
    state = MetadataState(str(changes[0]["cluster_id"]))
    for number, change in enumerate(changes[1:], start=2):
        try:
            apply(state, change)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise StartupError(f"{path} has a malformed line {number}: {error}") from None
    return state, good_size, len(changes)
