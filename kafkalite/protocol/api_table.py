"""Every API with generated messages: written by tools/generate_messages.py, do not edit.

Rows: key, name, module in kafkalite.protocol.messages, oldest version, newest version, first flexible
version (-1: never). What the broker serves is in kafkalite/handlers/table.py, not here.
"""

from __future__ import annotations

from typing import Final

ROWS: Final[tuple[tuple[int, str, str, int, int, int], ...]] = (
    (0, "Produce", "produce", 3, 13, 9),
    (1, "Fetch", "fetch", 4, 18, 12),
    (2, "ListOffsets", "list_offsets", 1, 11, 6),
    (3, "Metadata", "metadata", 0, 13, 9),
    (8, "OffsetCommit", "offset_commit", 2, 10, 8),
    (9, "OffsetFetch", "offset_fetch", 1, 10, 6),
    (10, "FindCoordinator", "find_coordinator", 0, 6, 3),
    (11, "JoinGroup", "join_group", 0, 9, 6),
    (12, "Heartbeat", "heartbeat", 0, 4, 4),
    (13, "LeaveGroup", "leave_group", 0, 5, 4),
    (14, "SyncGroup", "sync_group", 0, 5, 4),
    (15, "DescribeGroups", "describe_groups", 0, 6, 5),
    (16, "ListGroups", "list_groups", 0, 5, 3),
    (17, "SaslHandshake", "sasl_handshake", 0, 1, -1),
    (18, "ApiVersions", "api_versions", 0, 4, 3),
    (19, "CreateTopics", "create_topics", 2, 7, 5),
    (20, "DeleteTopics", "delete_topics", 1, 6, 4),
    (21, "DeleteRecords", "delete_records", 0, 2, 2),
    (22, "InitProducerId", "init_producer_id", 0, 6, 2),
    (23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4, 4),
    (24, "AddPartitionsToTxn", "add_partitions_to_txn", 0, 5, 3),
    (25, "AddOffsetsToTxn", "add_offsets_to_txn", 0, 4, 3),
    (26, "EndTxn", "end_txn", 0, 5, 3),
    (27, "WriteTxnMarkers", "write_txn_markers", 1, 2, 1),
    (28, "TxnOffsetCommit", "txn_offset_commit", 0, 5, 3),
    (29, "DescribeAcls", "describe_acls", 1, 3, 2),
    (30, "CreateAcls", "create_acls", 1, 3, 2),
    (31, "DeleteAcls", "delete_acls", 1, 3, 2),
    (32, "DescribeConfigs", "describe_configs", 1, 4, 4),
    (33, "AlterConfigs", "alter_configs", 0, 2, 2),
    (35, "DescribeLogDirs", "describe_log_dirs", 1, 5, 2),
    (36, "SaslAuthenticate", "sasl_authenticate", 0, 2, 2),
    (37, "CreatePartitions", "create_partitions", 0, 3, 2),
    (38, "CreateDelegationToken", "create_delegation_token", 1, 3, 2),
    (39, "RenewDelegationToken", "renew_delegation_token", 1, 2, 2),
    (40, "ExpireDelegationToken", "expire_delegation_token", 1, 2, 2),
    (41, "DescribeDelegationToken", "describe_delegation_token", 1, 3, 2),
    (42, "DeleteGroups", "delete_groups", 0, 2, 2),
    (44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1, 1),
    (46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0, 0),
    (47, "OffsetDelete", "offset_delete", 0, 0, -1),
    (48, "DescribeClientQuotas", "describe_client_quotas", 0, 1, 1),
    (50, "DescribeUserScramCredentials", "describe_user_scram_credentials", 0, 0, 0),
    (51, "AlterUserScramCredentials", "alter_user_scram_credentials", 0, 0, 0),
    (60, "DescribeCluster", "describe_cluster", 0, 2, 0),
    (61, "DescribeProducers", "describe_producers", 0, 0, 0),
    (65, "DescribeTransactions", "describe_transactions", 0, 0, 0),
    (66, "ListTransactions", "list_transactions", 0, 2, 0),
    (68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0, 1, 0),
    (69, "ConsumerGroupDescribe", "consumer_group_describe", 0, 1, 0),
    (74, "ListConfigResources", "list_config_resources", 0, 1, 0),
    (75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0, 0),
)
