"""Rows of the broker's settings table: idempotent producers, transactions and `__transaction_state`."""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import BOOLEAN, DAY_MS, HOUR_MS, INT, MIB, MINUTE_MS, NONE, SHORT, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class TransactionRows:
    """Idempotent producers and transactions."""

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
        INT, 10 * MINUTE_MS, "How often partitions look for producers to forget.", unit="ms", low=1
    )
    transaction_partition_verification_enable: bool = setting(
        BOOLEAN,
        True,
        "Whether a partition is verified to be in its transaction; here it always is.",
        dynamic=True,
        effect=NONE,
    )
    partition_max_producer_ids: int = setting(
        INT,
        50_000,
        "Idempotent producers one partition remembers; above it the tenth that was silent longest is forgotten, except"
        " for those with an open transaction.",
        low=1,
    )

    # Transactions
    transaction_max_timeout_ms: int = setting(
        INT, 15 * MINUTE_MS, "The longest transaction a producer may ask for.", unit="ms", low=1
    )
    transaction_max_ids: int = setting(
        INT,
        100_000,
        "Transactional ids kept, idle ones included; beyond it a new one is refused with POLICY_VIOLATION. The last"
        " tenth is for clients (principal and address) with at most 100.",
        low=1,
    )
    transaction_max_partitions: int = setting(
        INT, 10_000, "Partitions of one transaction; more of them are refused.", low=1
    )
    transaction_completion_wait_max_ms: int = setting(
        INT,
        1000,
        "How long a producer's requests wait until its last transaction is complete, before they are answered "
        "CONCURRENT_TRANSACTIONS.",
        unit="ms",
        low=0,
    )
    transactional_id_expiration_ms: int = setting(
        INT, 7 * DAY_MS, "How long a transactional id without a transaction is remembered.", unit="ms", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        INT, HOUR_MS, "How often expired transactional ids are looked for.", unit="ms", low=1
    )
    transaction_state_log_num_partitions: int = setting(INT, 50, "Partitions of __transaction_state.", low=1)
    transaction_state_log_segment_bytes: int = setting(
        INT, 100 * MIB, "segment.bytes of __transaction_state when it is made.", unit="bytes", low=14
    )
    transaction_state_log_replication_factor: int = setting(
        SHORT,
        3,
        "Replicas of __transaction_state when a cluster makes it; a broker alone keeps one.",
        low=1,
    )
    transaction_state_log_min_isr: int = setting(
        INT, 2, "min.insync.replicas of __transaction_state when a cluster makes it.", low=1
    )
