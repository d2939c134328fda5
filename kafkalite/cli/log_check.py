"""Run `kafkalite log check` and `kafkalite log repair` on the files of a stopped broker."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from kafkalite.cli import EXIT_FAILURE, UsageError
from kafkalite.cli.common import quantity
from kafkalite.cli.output import note, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from kafkalite.broker.log.checking import Finding, Partition


def run(arguments: argparse.Namespace) -> int:
    """Return status 0 if there is no damage or all damage was repaired, and 1 if damage is left."""
    left = 0
    for path in arguments.paths:
        directory = os.path.abspath(path)
        if not os.path.isdir(directory):
            raise UsageError(f"{path} is not a directory")
        with owned(directory), quiet():
            left += look_at(
                directory, repairs=arguments.action == "repair", dry_run=getattr(arguments, "dry_run", False)
            )
    return EXIT_FAILURE if left else 0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the log's warnings about damage, since the command prints the same findings."""
    logger = logging.getLogger("kafkalite")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def owned(directory: str) -> Iterator[None]:
    """Lock a data directory during a `with` block: `directory`, or its parent if `directory` is a partition's.

    Nothing is locked if neither has a lock file. UsageError if the lock is held or cannot be opened.
    """
    from kafkalite.broker.log import files
    from kafkalite.broker.log.directory import DirectoryLock
    from kafkalite.errors import StartupError

    roots = (directory, os.path.dirname(directory))
    root = next((each for each in roots if os.path.exists(f"{each}/{files.LOCK_NAME}")), None)
    if root is None:
        yield
        return
    try:
        lock = DirectoryLock(root)
    except (StartupError, OSError):
        raise UsageError(f"cannot lock {root}: stop the broker that uses it, or check the permissions") from None
    try:
        yield
    finally:
        lock.release()


def look_at(directory: str, *, repairs: bool, dry_run: bool) -> int:
    """Check a directory, and repair it if `repairs`. Return the number of problems that are left."""
    from kafkalite.broker.log import checking

    partitions = checking.partitions_of(directory)
    whole_directory = not (len(partitions) == 1 and partitions[0].directory == directory)
    root = list(checking.check_root(directory)) if whole_directory else []
    if not partitions and not root:
        raise UsageError(f"{directory} contains no partition; give a data directory or the directory of a partition")
    found = len(root)
    left = settle(None, root, repairs=repairs, dry_run=dry_run)
    for partition in partitions:
        findings = list(checking.check_partition(partition))
        found += len(findings)
        left += settle(partition, findings, repairs=repairs, dry_run=dry_run)
        for remark in partition.notes:
            say(f"{partition.directory}: {remark}")
    size = quantity(sum(partition.size for partition in partitions), "B")
    segments = sum(partition.segment_count for partition in partitions)
    outcome = f"{found} problems" if found else "no problems"
    if repairs and not dry_run and found:
        outcome += f", {found - left} repaired, {left} left"
    say(f"{directory}: {len(partitions)} partitions, {segments} segments, {size} read: {outcome}")
    return left


def settle(partition: Partition | None, findings: list[Finding], *, repairs: bool, dry_run: bool) -> int:
    """Print a partition's problems, and repair them if `repairs`. Return the number that is left."""
    from kafkalite.broker.log import repair
    from kafkalite.broker.log.checking import Remedy

    if not repairs or dry_run:
        for finding in findings:
            would = "would be " if dry_run and finding.remedy is not Remedy.NONE else ""
            say(f"{finding.path}: {finding.what} ({would}{finding.remedy.value})")
        return len(findings)
    try:
        done = repair.repair_findings(partition, findings)
    except OSError as error:
        note(f"{error.filename or 'a file'}: repair failed: {error.strerror}")
        return len(findings)
    for finding, outcome in done:
        lost = ""
        if outcome and finding.next_offset > finding.first >= 0:
            lost = f"; offsets {finding.first}-{finding.next_offset - 1} are lost"
        say(f"{finding.path}: {finding.what}: {outcome or finding.remedy.value}{lost}")
    return sum(1 for _, outcome in done if not outcome)
