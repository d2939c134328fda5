"""Define the broker's settings for idempotent producers, transactions and `__transaction_state`."""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import BOOLEAN, DAY_MS, HOUR_MS, INT, MIB, MINUTE_MS, NONE, SHORT, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class TransactionRows:
    """Settings of idempotent producers and transactions."""

    __slots__ = ()

    # Producers
    producer_id_expiration_ms: int = setting(
        INT,
        DAY_MS,
        "Forget an idempotent producer that has been idle on a partition for this long.",
        unit="ms",
        low=1,
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        INT, 10 * MINUTE_MS, "Interval between checks for expired producers.", unit="ms", low=1
    )
    transaction_partition_verification_enable: bool = setting(
        BOOLEAN,
        True,
        "Verify that a partition was added to its transaction. Here this is always verified.",
        dynamic=True,
        effect=NONE,
    )
    partition_max_producer_ids: int = setting(
        INT,
        50_000,
        "Maximum number of idempotent producers per partition. Above it, the tenth that was idle longest is "
        "forgotten, except for producers with an open transaction.",
        low=1,
    )

    # Transactions
    transaction_max_timeout_ms: int = setting(
        INT, 15 * MINUTE_MS, "Maximum transaction timeout that a producer can request.", unit="ms", low=1
    )
    transaction_max_ids: int = setting(
        INT,
        100_000,
        "Maximum number of transactional ids, including idle ones; a further one is rejected with "
        "POLICY_VIOLATION. The last tenth is reserved for clients (principal and address) with at most 100.",
        low=1,
    )
    transaction_max_partitions: int = setting(
        INT, 10_000, "Maximum number of partitions in one transaction; a request for more is rejected.", low=1
    )
    transaction_completion_wait_max_ms: int = setting(
        INT,
        1000,
        "Maximum time that a producer's requests wait for the completion of its previous transaction before they "
        "fail with CONCURRENT_TRANSACTIONS.",
        unit="ms",
        low=0,
    )
    transactional_id_expiration_ms: int = setting(
        INT, 7 * DAY_MS, "Time after which a transactional id without a transaction expires.", unit="ms", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        INT, HOUR_MS, "Interval between checks for expired transactional ids.", unit="ms", low=1
    )
    transaction_state_log_num_partitions: int = setting(INT, 50, "Number of partitions of __transaction_state.", low=1)
    transaction_state_log_segment_bytes: int = setting(
        INT, 100 * MIB, "segment.bytes of __transaction_state at its creation.", unit="bytes", low=14
    )
    transaction_state_log_replication_factor: int = setting(
        SHORT,
        3,
        "Replication factor of __transaction_state at its creation in a cluster; a standalone broker keeps one "
        "replica.",
        low=1,
    )
    transaction_state_log_min_isr: int = setting(
        INT, 2, "min.insync.replicas of __transaction_state at its creation in a cluster.", low=1
    )
