"""Every error code of the Kafka protocol, one exception class each, and the errors of starting up.

A class is a row of the table: its code, whether a client may retry, and its docstring's first line as the text that
goes out when nothing better is known. Classes register themselves by code; a second one for a code fails on import.

    KafkaError                      anything that has a code on the wire
        OffsetOutOfRange ...        one class a code, named after it
    StartupError                    the broker cannot start; the message is one sentence for a person (exit status 2)
        ConfigError                 the same, naming the setting

Raising is for the places that stop; where many partitions answer one request, code passes the bare `ErrorCode`.
"""

from enum import IntEnum
from typing import ClassVar


class ErrorCode(IntEnum):
    """The numbers as they stand on the wire (int16)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


class KafkaError(Exception):
    """A failure with a code on the wire.

    `message` is for people; it may name the topic, the limit or the file. Without one, the class's own text is used.
    """

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    retriable: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        self.message = message if message is not None else self.text()
        super().__init__(self.message)

    def __init_subclass__(cls, *, code: ErrorCode, retriable: bool = False) -> None:
        assert code not in _CLASSES, f"{cls.__name__} and {_CLASSES[code].__name__} both claim code {code}"
        cls.code = code
        cls.retriable = retriable
        _CLASSES[code] = cls

    @property
    def name(self) -> str:
        """The code's name in the protocol, `OFFSET_OUT_OF_RANGE` for example."""
        return self.code.name

    @classmethod
    def text(cls) -> str:
        """What the class says when nobody says more."""
        return (cls.__doc__ or cls.code.name).partition("\n")[0]


_CLASSES: dict[int, type[KafkaError]] = {}


def error_class(code: int) -> type[KafkaError]:
    """The class for a code; `UnknownServerError` for one this release does not know. 0 has none: ValueError."""
    if code == ErrorCode.NONE:
        raise ValueError("code 0 is success, not an error")
    return _CLASSES.get(code, UnknownServerError)


def error_for(code: int, message: str | None = None) -> KafkaError:
    """An exception to raise for a code received or computed; 0 has none: ValueError."""
    known = error_class(code)
    if message is None and code not in _CLASSES:
        message = f"unknown error code {code}"
    return known(message)


class StartupError(Exception):
    """The broker cannot start. The message is one sentence that tells a person what to change; exit status 2."""


class ConfigError(StartupError):
    """A setting that cannot be used: `key` names it and `reason` says what is wrong with it."""

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"{key}: {reason}")


class UnknownServerError(KafkaError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    """The broker met a failure it has no code for; its log says more."""


class OffsetOutOfRange(KafkaError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """The offset lies below the partition's start or beyond its end."""


class CorruptMessage(KafkaError, code=ErrorCode.CORRUPT_MESSAGE, retriable=True):
    """A batch failed its checksum, or its length contradicts the bytes sent."""


class UnknownTopicOrPartition(KafkaError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, retriable=True):
    """This broker hosts no such topic or partition."""


class InvalidFetchSize(KafkaError, code=ErrorCode.INVALID_FETCH_SIZE):
    """The fetch asks for a size that makes no sense."""


class LeaderNotAvailable(KafkaError, code=ErrorCode.LEADER_NOT_AVAILABLE, retriable=True):
    """The partition has no leader at this moment."""


class NotLeaderOrFollower(KafkaError, code=ErrorCode.NOT_LEADER_OR_FOLLOWER, retriable=True):
    """This broker neither leads nor follows the partition; ask for metadata again."""


class RequestTimedOut(KafkaError, code=ErrorCode.REQUEST_TIMED_OUT, retriable=True):
    """The request's own time limit passed first."""


class BrokerNotAvailable(KafkaError, code=ErrorCode.BROKER_NOT_AVAILABLE):
    """The broker is not there."""


class ReplicaNotAvailable(KafkaError, code=ErrorCode.REPLICA_NOT_AVAILABLE, retriable=True):
    """The replica is not there for the partition asked about."""


class MessageTooLarge(KafkaError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """The batch is larger than max.message.bytes allows."""


class StaleControllerEpoch(KafkaError, code=ErrorCode.STALE_CONTROLLER_EPOCH):
    """A newer controller has taken over."""


class OffsetMetadataTooLarge(KafkaError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    """The text sent with an offset commit is too long."""


class NetworkError(KafkaError, code=ErrorCode.NETWORK_EXCEPTION, retriable=True):
    """The connection ended before the answer arrived."""


class CoordinatorLoadInProgress(KafkaError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, retriable=True):
    """The coordinator is still reading its log."""


class CoordinatorNotAvailable(KafkaError, code=ErrorCode.COORDINATOR_NOT_AVAILABLE, retriable=True):
    """No coordinator can serve this group or transactional id now."""


class NotCoordinator(KafkaError, code=ErrorCode.NOT_COORDINATOR, retriable=True):
    """Another broker coordinates this group or transactional id."""


class InvalidTopic(KafkaError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """The topic name is not legal, or the topic may not be used like this."""


class RecordListTooLarge(KafkaError, code=ErrorCode.RECORD_LIST_TOO_LARGE):
    """The batch does not fit into one log segment."""


class NotEnoughReplicas(KafkaError, code=ErrorCode.NOT_ENOUGH_REPLICAS, retriable=True):
    """Fewer replicas are in sync than min.insync.replicas asks for."""


class NotEnoughReplicasAfterAppend(KafkaError, code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, retriable=True):
    """The batch was written, but to too few replicas in sync."""


class InvalidRequiredAcks(KafkaError, code=ErrorCode.INVALID_REQUIRED_ACKS):
    """acks is none of -1, 0 and 1."""


class IllegalGeneration(KafkaError, code=ErrorCode.ILLEGAL_GENERATION):
    """The generation is not the group's present one."""


class InconsistentGroupProtocol(KafkaError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    """The member shares no protocol with the rest of its group."""


class InvalidGroupId(KafkaError, code=ErrorCode.INVALID_GROUP_ID):
    """The group id is not legal."""


class UnknownMemberId(KafkaError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The group has no such member."""


class InvalidSessionTimeout(KafkaError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    """The session timeout is outside group.min and group.max.session.timeout.ms."""


class RebalanceInProgress(KafkaError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """The group rebalances; join it again."""


class InvalidCommitOffsetSize(KafkaError, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
    """The offset commit is too large to be stored."""


class TopicAuthorizationFailed(KafkaError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """The client may not do this to the topic."""


class GroupAuthorizationFailed(KafkaError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """The client may not do this to the group."""


class ClusterAuthorizationFailed(KafkaError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """The client may not do this to the cluster."""


class InvalidTimestamp(KafkaError, code=ErrorCode.INVALID_TIMESTAMP):
    """A record's timestamp is further from the broker's clock than the topic allows."""


class UnsupportedSaslMechanism(KafkaError, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM):
    """The broker does not offer this SASL mechanism."""


class IllegalSaslState(KafkaError, code=ErrorCode.ILLEGAL_SASL_STATE):
    """The request may not be sent at this point of the SASL exchange."""


class UnsupportedVersion(KafkaError, code=ErrorCode.UNSUPPORTED_VERSION):
    """The broker does not serve this version of the API."""


class TopicAlreadyExists(KafkaError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic of this name exists."""


class InvalidPartitions(KafkaError, code=ErrorCode.INVALID_PARTITIONS):
    """The number of partitions is not legal."""


class InvalidReplicationFactor(KafkaError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """The replication factor is below 1 or above the number of brokers."""


class InvalidReplicaAssignment(KafkaError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT):
    """The assignment of replicas to brokers is not legal."""


class InvalidConfig(KafkaError, code=ErrorCode.INVALID_CONFIG):
    """A setting is unknown, or its value is not legal."""


class NotController(KafkaError, code=ErrorCode.NOT_CONTROLLER, retriable=True):
    """Another broker is the controller."""


class InvalidRequest(KafkaError, code=ErrorCode.INVALID_REQUEST):
    """The request contradicts itself or the protocol."""


class UnsupportedForMessageFormat(KafkaError, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
    """The topic's message format cannot do this."""


class PolicyViolation(KafkaError, code=ErrorCode.POLICY_VIOLATION):
    """The request breaks a policy the broker was given."""


class OutOfOrderSequenceNumber(KafkaError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """The batch's sequence number does not follow the producer's last one."""


class DuplicateSequenceNumber(KafkaError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
    """The batch was written before, too long ago for its offset to be known."""


class InvalidProducerEpoch(KafkaError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """A newer instance of this producer has taken over."""


class InvalidTxnState(KafkaError, code=ErrorCode.INVALID_TXN_STATE):
    """The transaction's state does not allow this."""


class InvalidProducerIdMapping(KafkaError, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING):
    """The producer id is not the one given to this transactional id."""


class InvalidTransactionTimeout(KafkaError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT):
    """The transaction timeout is above transaction.max.timeout.ms."""


class ConcurrentTransactions(KafkaError, code=ErrorCode.CONCURRENT_TRANSACTIONS, retriable=True):
    """Another step of the same transaction is still under way."""


class TransactionCoordinatorFenced(KafkaError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED):
    """The coordinator that sent this marker has been replaced."""


class TransactionalIdAuthorizationFailed(KafkaError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
    """The client may not use this transactional id."""


class SecurityDisabled(KafkaError, code=ErrorCode.SECURITY_DISABLED):
    """The broker runs without an authoriser."""


class OperationNotAttempted(KafkaError, code=ErrorCode.OPERATION_NOT_ATTEMPTED):
    """Not tried, since another part of the same request failed."""


class StorageError(KafkaError, code=ErrorCode.KAFKA_STORAGE_ERROR, retriable=True):
    """The log could not be written or read: disk full, I/O error, or partition offline."""


class LogDirNotFound(KafkaError, code=ErrorCode.LOG_DIR_NOT_FOUND):
    """The broker has no such data directory."""


class SaslAuthenticationFailed(KafkaError, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    """The credentials were refused."""


class UnknownProducerId(KafkaError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """The partition holds no state of this producer any more."""


class ReassignmentInProgress(KafkaError, code=ErrorCode.REASSIGNMENT_IN_PROGRESS):
    """The partition is being moved."""


class DelegationTokenAuthDisabled(KafkaError, code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
    """Delegation tokens are switched off."""


class DelegationTokenNotFound(KafkaError, code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
    """The broker knows no such delegation token."""


class DelegationTokenOwnerMismatch(KafkaError, code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
    """The delegation token belongs to somebody else."""


class DelegationTokenRequestNotAllowed(KafkaError, code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED):
    """Delegation tokens may not be asked for on this connection."""


class DelegationTokenAuthorizationFailed(KafkaError, code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED):
    """The client may not do this with delegation tokens."""


class DelegationTokenExpired(KafkaError, code=ErrorCode.DELEGATION_TOKEN_EXPIRED):
    """The delegation token's time is over."""


class InvalidPrincipalType(KafkaError, code=ErrorCode.INVALID_PRINCIPAL_TYPE):
    """This kind of principal is not supported."""


class NonEmptyGroup(KafkaError, code=ErrorCode.NON_EMPTY_GROUP):
    """The group still has members."""


class GroupIdNotFound(KafkaError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """There is no such group."""


class FetchSessionIdNotFound(KafkaError, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, retriable=True):
    """The broker keeps no such fetch session."""


class InvalidFetchSessionEpoch(KafkaError, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, retriable=True):
    """The fetch session's epoch is not the next one."""


class ListenerNotFound(KafkaError, code=ErrorCode.LISTENER_NOT_FOUND, retriable=True):
    """The leader has no listener of the name the request came in by."""


class TopicDeletionDisabled(KafkaError, code=ErrorCode.TOPIC_DELETION_DISABLED):
    """Topics cannot be deleted on this broker."""


class FencedLeaderEpoch(KafkaError, code=ErrorCode.FENCED_LEADER_EPOCH, retriable=True):
    """The request's leader epoch is older than the broker's."""


class UnknownLeaderEpoch(KafkaError, code=ErrorCode.UNKNOWN_LEADER_EPOCH, retriable=True):
    """The request's leader epoch is newer than the broker's."""


class UnsupportedCompressionType(KafkaError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
    """The codec cannot be used with this version of the request."""


class StaleBrokerEpoch(KafkaError, code=ErrorCode.STALE_BROKER_EPOCH):
    """The broker epoch is not the present one."""


class OffsetNotAvailable(KafkaError, code=ErrorCode.OFFSET_NOT_AVAILABLE, retriable=True):
    """The new leader does not know its end offset yet."""


class MemberIdRequired(KafkaError, code=ErrorCode.MEMBER_ID_REQUIRED):
    """Join again with the member id in this answer."""


class PreferredLeaderNotAvailable(KafkaError, code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, retriable=True):
    """The preferred leader cannot lead now."""


class GroupMaxSizeReached(KafkaError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    """The group has group.max.size members."""


class FencedInstanceId(KafkaError, code=ErrorCode.FENCED_INSTANCE_ID):
    """Another member joined with the same group.instance.id."""


class EligibleLeadersNotAvailable(KafkaError, code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, retriable=True):
    """No replica that may lead is there."""


class ElectionNotNeeded(KafkaError, code=ErrorCode.ELECTION_NOT_NEEDED, retriable=True):
    """The partition has the leader that was asked for."""


class NoReassignmentInProgress(KafkaError, code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
    """The partition is not being moved."""


class GroupSubscribedToTopic(KafkaError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
    """The group reads this topic, so its offsets stay."""


class InvalidRecord(KafkaError, code=ErrorCode.INVALID_RECORD):
    """The batch or one of its records breaks a rule of the format or the topic."""


class UnstableOffsetCommit(KafkaError, code=ErrorCode.UNSTABLE_OFFSET_COMMIT, retriable=True):
    """A transaction that commits this offset is still open."""


class ThrottlingQuotaExceeded(KafkaError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, retriable=True):
    """The client's quota is used up."""


class ProducerFenced(KafkaError, code=ErrorCode.PRODUCER_FENCED):
    """A newer producer uses the same transactional id."""


class ResourceNotFound(KafkaError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """There is no such resource."""


class DuplicateResource(KafkaError, code=ErrorCode.DUPLICATE_RESOURCE):
    """The resource is named twice, or exists."""


class UnacceptableCredential(KafkaError, code=ErrorCode.UNACCEPTABLE_CREDENTIAL):
    """The credential breaks the rules for credentials."""


class InconsistentVoterSet(KafkaError, code=ErrorCode.INCONSISTENT_VOTER_SET):
    """The two sides disagree on who votes."""


class InvalidUpdateVersion(KafkaError, code=ErrorCode.INVALID_UPDATE_VERSION):
    """The update's version is not the one expected."""


class FeatureUpdateFailed(KafkaError, code=ErrorCode.FEATURE_UPDATE_FAILED):
    """The feature could not be changed."""


class PrincipalDeserializationFailure(KafkaError, code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE):
    """The forwarded principal cannot be read."""


class SnapshotNotFound(KafkaError, code=ErrorCode.SNAPSHOT_NOT_FOUND):
    """There is no such snapshot."""


class PositionOutOfRange(KafkaError, code=ErrorCode.POSITION_OUT_OF_RANGE):
    """The position is outside the snapshot."""


class UnknownTopicId(KafkaError, code=ErrorCode.UNKNOWN_TOPIC_ID, retriable=True):
    """This broker hosts no topic of this id."""


class DuplicateBrokerRegistration(KafkaError, code=ErrorCode.DUPLICATE_BROKER_REGISTRATION):
    """A broker of this id is registered."""


class BrokerIdNotRegistered(KafkaError, code=ErrorCode.BROKER_ID_NOT_REGISTERED):
    """No broker of this id is registered."""


class InconsistentTopicId(KafkaError, code=ErrorCode.INCONSISTENT_TOPIC_ID, retriable=True):
    """The topic of this name has another id by now."""


class InconsistentClusterId(KafkaError, code=ErrorCode.INCONSISTENT_CLUSTER_ID):
    """The request names another cluster."""


class TransactionalIdNotFound(KafkaError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
    """There is no such transactional id."""


class FetchSessionTopicIdError(KafkaError, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, retriable=True):
    """The fetch session mixes topic names and topic ids."""


class IneligibleReplica(KafkaError, code=ErrorCode.INELIGIBLE_REPLICA):
    """The replica may not be in sync or lead."""


class NewLeaderElected(KafkaError, code=ErrorCode.NEW_LEADER_ELECTED):
    """The change of replicas elected a new leader."""


class OffsetMovedToTieredStorage(KafkaError, code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
    """The offset is in tiered storage only."""


class FencedMemberEpoch(KafkaError, code=ErrorCode.FENCED_MEMBER_EPOCH):
    """The member's epoch shows that it was replaced; join again."""


class UnreleasedInstanceId(KafkaError, code=ErrorCode.UNRELEASED_INSTANCE_ID):
    """The group.instance.id is still held by another member."""


class UnsupportedAssignor(KafkaError, code=ErrorCode.UNSUPPORTED_ASSIGNOR):
    """The broker has no assignor of this name."""


class StaleMemberEpoch(KafkaError, code=ErrorCode.STALE_MEMBER_EPOCH):
    """The member epoch is behind; beat once more and retry."""


class MismatchedEndpointType(KafkaError, code=ErrorCode.MISMATCHED_ENDPOINT_TYPE):
    """The request was sent to a broker in place of a controller, or the other way round."""


class UnsupportedEndpointType(KafkaError, code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE):
    """The broker does not know this kind of endpoint."""


class UnknownControllerId(KafkaError, code=ErrorCode.UNKNOWN_CONTROLLER_ID):
    """There is no controller of this id."""


class UnknownSubscriptionId(KafkaError, code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
    """The telemetry subscription is out of date."""


class TelemetryTooLarge(KafkaError, code=ErrorCode.TELEMETRY_TOO_LARGE):
    """The client's metrics are larger than the broker takes."""


class InvalidRegistration(KafkaError, code=ErrorCode.INVALID_REGISTRATION):
    """The controller refused the registration."""


class TransactionAbortable(KafkaError, code=ErrorCode.TRANSACTION_ABORTABLE):
    """The transaction cannot go on; abort it and begin another."""


class InvalidRecordState(KafkaError, code=ErrorCode.INVALID_RECORD_STATE):
    """The share group's record is not in a state that allows this."""


class ShareSessionNotFound(KafkaError, code=ErrorCode.SHARE_SESSION_NOT_FOUND, retriable=True):
    """The broker keeps no such share session."""


class InvalidShareSessionEpoch(KafkaError, code=ErrorCode.INVALID_SHARE_SESSION_EPOCH, retriable=True):
    """The share session's epoch is not the next one."""


class FencedStateEpoch(KafkaError, code=ErrorCode.FENCED_STATE_EPOCH):
    """The share coordinator's state epoch is newer."""


class InvalidVoterKey(KafkaError, code=ErrorCode.INVALID_VOTER_KEY):
    """The voter key is not the receiver's."""


class DuplicateVoter(KafkaError, code=ErrorCode.DUPLICATE_VOTER):
    """The voter is in the set."""


class VoterNotFound(KafkaError, code=ErrorCode.VOTER_NOT_FOUND):
    """The voter is not in the set."""


class InvalidRegularExpression(KafkaError, code=ErrorCode.INVALID_REGULAR_EXPRESSION):
    """The subscription's regular expression is not legal."""


class RebootstrapRequired(KafkaError, code=ErrorCode.REBOOTSTRAP_REQUIRED):
    """The client talks to another cluster than it thinks; bootstrap again."""


class StreamsInvalidTopology(KafkaError, code=ErrorCode.STREAMS_INVALID_TOPOLOGY):
    """The streams topology is not legal."""


class StreamsInvalidTopologyEpoch(KafkaError, code=ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH):
    """The streams topology epoch is not legal."""


class StreamsTopologyFenced(KafkaError, code=ErrorCode.STREAMS_TOPOLOGY_FENCED):
    """The streams topology epoch is out of date."""


class ShareSessionLimitReached(KafkaError, code=ErrorCode.SHARE_SESSION_LIMIT_REACHED, retriable=True):
    """The broker keeps as many share sessions as it may."""
