"""Decide, when a broker starts, what happens to partition directories that the journal does not know.

    topic id of a deleted topic                           remove the directory: a crash prevented its removal
    no segment files                                      ignore it, with one log line
    topic name in the journal with another topic id       refuse to start: the data is another topic's
    damaged partition.metadata                            ignore it, with one log line
    no topic id, name of a deleted topic                  after an unclean stop: rename it to …-stray, and keep it
    `__cluster_metadata`, or no valid topic name          ignore it, with one log line
    topic in the journal with fewer partitions            add partitions up to this one
    any other directory                                   adopt the topic; id from partition.metadata, or a new one

The first row that applies decides. To *adopt* a directory is to add its topic and partition to the journal.

`sort_out` runs once, when a standalone broker starts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkalite.base.logging import fields
from kafkalite.broker.log import checkpoints, disk, files, index_file
from kafkalite.broker.log.journal import MetadataState, TopicState
from kafkalite.errors import StartupError
from kafkalite.model import new_uuid, topic_name_error, uuid_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

logger = logging.getLogger(__name__)

CLASSIC: Final = "classic"
KAFKA_METADATA_TOPIC: Final = "__cluster_metadata"
COMPACTED_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})


def sort_out(
    state: MetadataState,
    doubtful_names: AbstractSet[str],
    directories: Mapping[tuple[str, int], str],
    suffixes: Mapping[str, str],
    classic_partition_count: Callable[[str], int],
) -> tuple[list[TopicState], list[str], list[str]]:
    """Sort unknown partition directories into those to adopt, to remove, and to keep under another name.

    Return (new or changed topics for the journal; directories to remove; directories to keep under another name).

    `doubtful_names` are names of deleted topics: after a power cut, their directories may be back without
    partition.metadata. `suffixes` maps the suffix of segment files to the name of the format. A topic of Kafka 0.7 has
    directories only for partitions with messages; `classic_partition_count` returns its number of partitions.

    Raises StartupError for a directory of another topic with the same name, for mixed formats and for conflicting ids.
    """
    strangers: dict[str, dict[int, str]] = {}
    leftovers, strays = [], []
    for (topic, partition), path in sorted(directories.items()):
        known = state.topics.get(topic)
        topic_id, damaged = identity_of(path)
        if known is not None and topic_id in {known.topic_id, None} and partition < len(known.epoch_bases):
            if damaged:
                _write_anew(path, known)
            continue
        if topic_id is not None and topic_id in state.deleted_ids:
            leftovers.append(path)
        elif not any(has_segments(path, suffix) for suffix in suffixes):
            logger.warning("ignored a partition directory without a log", extra=fields(path=path))
        elif known is not None and topic_id is not None and topic_id != known.topic_id:
            raise StartupError(
                f"{path} belongs to topic id {uuid_text(topic_id)}, but topic {topic} has id "
                f"{uuid_text(known.topic_id)}; move the directory away, or write the right id into its "
                "partition.metadata"
            )
        elif damaged:
            logger.error(
                "ignored a partition directory with a damaged partition.metadata, because its topic is unknown; if you "
                "remove that file, the next start adopts the directory as a new topic",
                extra=fields(path=path),
            )
        elif known is None and topic_id is None and topic in doubtful_names:
            strays.append(path)
        elif topic == KAFKA_METADATA_TOPIC or topic_name_error(topic) is not None:
            logger.warning(
                "ignored a directory that does not belong to a topic of this broker", extra=fields(path=path)
            )
        else:
            strangers.setdefault(topic, {})[partition] = path
    owners = {known.topic_id: known.name for known in state.topics.values()}
    adopted = []
    for topic, paths in strangers.items():
        names = {
            name for suffix, name in suffixes.items() if any(has_segments(path, suffix) for path in paths.values())
        }
        if len(names) > 1:
            raise StartupError(
                f"the partition directories of topic {topic} hold segments of different formats: "
                f"{' and '.join(sorted(names))}"
            )
        adopted.append(_adopt(state, topic, paths, owners, names.pop() if names else "v2", classic_partition_count))
    return adopted, leftovers, strays


def identity_of(path: str) -> tuple[bytes | None, bool]:
    """Return (topic id of a partition directory or None, whether its partition.metadata is damaged).

    If the file is damaged, the topic id comes from the saved indexes. A damaged file does not count as missing. A power
    cut can damage it in the directory of a deleted topic; if the directory were adopted, the deleted topic would exist
    again.
    """
    try:
        return checkpoints.read_partition_topic_id(path), False
    except checkpoints.MetadataDamaged:
        return index_file.topic_id_in(path), True


def _write_anew(path: str, known: TopicState) -> None:
    """Rewrite the damaged partition.metadata of a topic in the journal.

    That is safe, because a topic is created only after all older directories with its name are durably gone.
    """
    logger.warning("partition.metadata is damaged; writing it again", extra=fields(path=path))
    try:
        checkpoints.write_partition_topic_id(path, known.topic_id, durable=True)
    except OSError as error:  # loading the partition reports it again
        logger.warning("could not write partition.metadata", extra=fields(path=path, reason=str(error)))


def has_segments(path: str, suffix: str) -> bool:
    """Return whether a directory holds at least one segment file."""
    try:
        return any(
            name.endswith(suffix) and files.SEGMENT_STEM.fullmatch(name[: -len(suffix)])
            for name in disk.list_names(path)
        )
    except OSError:
        return True  # an unreadable directory is not empty: its partition goes offline instead of being forgotten


def _adopt(
    state: MetadataState,
    topic: str,
    paths: Mapping[int, str],
    owners: dict[bytes, str],
    message_format: str,
    classic_partition_count: Callable[[str], int],
) -> TopicState:
    known = state.topics.get(topic)
    ids = {checkpoints.read_partition_topic_id(path) for path in paths.values()} - {None}
    if len(ids) > 1:
        raise StartupError(
            f"the partition directories of topic {topic} have different topic ids; move away those that do not "
            "belong to it"
        )
    topic_id = known.topic_id if known is not None else ids.pop() or new_uuid() if ids else new_uuid()
    owner = owners.setdefault(topic_id, topic)
    if owner != topic:
        raise StartupError(
            f"the partition directories of topic {topic} have topic id {uuid_text(topic_id)}, which belongs to "
            f"topic {owner}; remove partition.metadata from the copies to give them new ids"
        )
    bases = list(known.epoch_bases) if known is not None else []
    count = max(paths) + 1
    if known is None and message_format == CLASSIC:
        count = max(count, classic_partition_count(topic))
    bases += [state.unclean_count] * (count - len(bases))
    for partition, path in paths.items():
        bases[partition] = base_above(path, state.unclean_count)
        if checkpoints.read_partition_topic_id(path) is None:
            checkpoints.write_partition_topic_id(path, topic_id, durable=True)
    overrides = dict(known.overrides) if known is not None else {}
    if known is None and topic in COMPACTED_TOPICS:
        overrides["cleanup.policy"] = "compact"
    if known is None and message_format == CLASSIC:
        overrides["message.format"] = CLASSIC
    logger.info("adopted a topic from its directories", extra=fields(topic=topic, partitions=len(bases)))
    return TopicState(topic, topic_id, overrides, bases)


def base_above(path: str, unclean_count: int) -> int:
    """Return the epoch base that makes a partition's next leader epoch one higher than the last epoch in its
    directory.
    """
    entries = checkpoints.read_epochs(f"{path}/{files.EPOCHS_NAME}")
    return unclean_count - (entries[-1][0] + 1) if entries else unclean_count
