"""Keep the groups of this broker in memory: find them, create them up to max.groups, and forget them.

Thread rule: any thread. `lock` guards the table, and state of other modules that must be consistent with the table. It
is a leaf: it may be taken under a group's lock, never the other way round.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.broker.coordinator.shard_epoch import NO_EPOCH, ShardEpoch
from kafkalite.broker.limits.shares import Shares, note_refusal
from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.coordinator.base import Environment, GroupBase
    from kafkalite.broker.coordinator.shards import Shards
    from kafkalite.broker.limits.holder import Holder


class GroupTable:
    """The groups of this broker by their ids."""

    def __init__(self, shards: Shards, environment: Environment, groups_max: int) -> None:
        self.lock = threading.Lock()
        self.groups: dict[str, GroupBase] = {}
        """Guarded by `lock`; a single lookup does not need it."""
        self._shards = shards
        self._environment = environment
        self._groups_max = groups_max
        self._shares = Shares()  # guarded by lock

    def error_of(self, group_id: str, *, may_be_empty: bool = False) -> int:
        """Return the error code if a group cannot be served now, else 0."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        return self._shards.error_of(group_id)

    def get(self, group_id: str) -> GroupBase | None:
        """Return a group, or None."""
        return self.groups.get(group_id)

    def all(self) -> list[GroupBase]:
        """Return every group, in no particular order."""
        with self.lock:
            return list(self.groups.values())

    def lookup(self, group_id: str, *, may_be_empty: bool = False) -> tuple[GroupBase | None, int]:
        """Return (the group or None, the error code if the group cannot be served now, else 0)."""

        def ask() -> tuple[GroupBase | None, int]:
            code = int(self.error_of(group_id, may_be_empty=may_be_empty))
            return None if code else self.groups.get(group_id), code

        return self._shards.log.lookup(group_id, ask)

    def lookup_or_new(
        self, group_id: str, holder: Holder | None, make: Callable[[str, Environment], GroupBase]
    ) -> tuple[GroupBase | None, int]:
        """Return (the group, 0), creating the group if it does not exist; or (None, error code).

        An error means that the group is not served, or that max.groups leaves no room for another group of this holder.
        The code for the latter is GROUP_MAX_SIZE_REACHED, which ends consumers of both protocols at once, with a
        message.
        """
        with self.lock:
            group = self.groups.get(group_id)
            if group is not None:
                return group, 0
            home = self._shards.home_of(group_id)
            if home is not None and home.epoch == NO_EPOCH:  # it would hide what is about to be read
                return None, int(self.error_of(group_id, may_be_empty=True) or ErrorCode.NOT_COORDINATOR)
            if self._shares.admits(holder, len(self.groups), self._groups_max):
                group = self.groups[group_id] = make(group_id, self.environment_in(home))
                group.holder = holder
                self._shares.add(holder)
                return group, 0
            held = self._shares.of(holder)
        note_refusal(holder, "max.groups", self._groups_max, held)
        return None, int(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def environment_in(self, home: ShardEpoch | None) -> Environment:
        """Return the environment of the groups in one shard epoch (a partition in one leader epoch)."""
        if home is None:
            return self._environment
        return replace(self._environment, write=partial(self._shards.log.write, home=home), home=home)

    def put(self, group: GroupBase) -> GroupBase | None:
        """Add a group that was read from the log; return the group that had this id before, or None."""
        with self.lock:
            early = self.groups.get(group.group_id)
            if early is not None:
                self.remove_locked(early)
            self.groups[group.group_id] = group
        return early

    def forget(self, group: GroupBase) -> None:
        """Remove a group, unless another group has replaced it."""
        with self.lock:
            if self.groups.get(group.group_id) is group:
                self.remove_locked(group)

    def remove_locked(self, group: GroupBase) -> None:
        """Remove a group that is in the table."""
        del self.groups[group.group_id]
        self._shares.remove(group.holder)

    def of_partition_locked(self, number: int) -> list[GroupBase]:
        """Return the groups in a partition of `__consumer_offsets`. In a cluster only."""
        homes = ((group, group.environment.home) for group in self.groups.values())
        return [group for group, home in homes if home is not None and home.partition == number]
