"""Define Kafka's error codes, the exceptions for them, and the errors of starting a broker.

    KafkaError                      a failure with an error code of Kafka's protocol
        OffsetOutOfRange ...        a class for each code that is raised or caught by name
    StartupError                    the broker cannot start (exit status 2)
        ConfigError                 a setting is invalid
        ControllersAway             no controller accepts the broker at this time (exit status 1)
        StartGivenUp                the broker was stopped while it started (exit status 0)

A function that fails raises an exception. A response with errors of many partitions uses `ErrorCode` values.

`ErrorCode` is the table of codes. The script tools/generate_error_codes.py writes the numbers for native code
(ext/kafkalite/_native/wire/error_codes.pxd).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Self

RETRIABLE: Final = True
"""In a row: the same request may succeed later."""


class ErrorCode(IntEnum):
    """Kafka's error codes, numbered as in the protocol (int16).

    `text` is the default error text. `retriable` is True if the same request may succeed later.
    """

    text: str
    retriable: bool

    def __new__(cls, code: int, text: str = "", retriable: bool = False) -> Self:
        row = int.__new__(cls, code)
        row._value_ = code
        row.text = text
        row.retriable = retriable
        return row

    UNKNOWN_SERVER_ERROR = -1, "The broker failed unexpectedly; its log has the details."
    NONE = 0, "Success."
    OFFSET_OUT_OF_RANGE = 1, "The offset lies below the partition's start or beyond its end."
    CORRUPT_MESSAGE = 2, "A batch failed its checksum, or its length contradicts the bytes sent.", RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This broker hosts no such topic or partition.", RETRIABLE
    INVALID_FETCH_SIZE = 4, "The fetch size is invalid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at this moment.", RETRIABLE
    NOT_LEADER_OR_FOLLOWER = 6, "This broker neither leads nor follows the partition; refresh metadata.", RETRIABLE
    REQUEST_TIMED_OUT = 7, "The request timed out before the broker completed it.", RETRIABLE
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "No replica is available for the requested partition.", RETRIABLE
    MESSAGE_TOO_LARGE = 10, "The batch is larger than max.message.bytes allows."
    STALE_CONTROLLER_EPOCH = 11, "A newer controller has taken over."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata of the offset commit is too large."
    NETWORK_EXCEPTION = 13, "The connection closed before the response arrived.", RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still reading its log.", RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, "No coordinator can serve this group or transactional id now.", RETRIABLE
    NOT_COORDINATOR = 16, "Another broker coordinates this group or transactional id.", RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "The topic name is invalid, or the topic does not allow this operation."
    RECORD_LIST_TOO_LARGE = 18, "The batch does not fit into one log segment."
    NOT_ENOUGH_REPLICAS = 19, "Fewer replicas are in sync than min.insync.replicas requires.", RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "The batch was written, but too few replicas were in sync.", RETRIABLE
    INVALID_REQUIRED_ACKS = 21, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, "The generation id is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol with the other members of its group."
    INVALID_GROUP_ID = 24, "The group id is invalid."
    UNKNOWN_MEMBER_ID = 25, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside group.min and group.max.session.timeout.ms."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing; join it again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offset commit is too large to store."
    TOPIC_AUTHORIZATION_FAILED = 29, "The client is not authorized for this operation on the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "The client is not authorized for this operation on the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "The client is not authorized for this operation on the cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp differs from the broker's clock by more than the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not support this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request is not allowed at this point of the SASL exchange."
    UNSUPPORTED_VERSION = 35, "The broker does not support this version of the API."
    TOPIC_ALREADY_EXISTS = 36, "A topic with this name already exists."
    INVALID_PARTITIONS = 37, "The number of partitions is invalid."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The assignment of replicas to brokers is invalid."
    INVALID_CONFIG = 40, "A setting is unknown, or its value is invalid."
    NOT_CONTROLLER = 41, "Another broker is the controller.", RETRIABLE
    INVALID_REQUEST = 42, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The topic's message format does not support this."
    POLICY_VIOLATION = 44, "The request violates a policy of the broker."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The batch's sequence number does not follow the producer's last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The batch is a duplicate whose offset is no longer known."
    INVALID_PRODUCER_EPOCH = 47, "A newer instance of this producer has taken over."
    INVALID_TXN_STATE = 48, "The transaction's state does not allow this operation."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id is not the one assigned to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout exceeds transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, "Another operation of the same transaction is still in progress.", RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52, "The coordinator that sent this marker has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "The client is not authorized to use this transactional id."
    SECURITY_DISABLED = 54, "The broker has no authorizer."
    OPERATION_NOT_ATTEMPTED = 55, "Not attempted, because another part of the same request failed."
    KAFKA_STORAGE_ERROR = (
        56,
        "The log could not be written or read: disk full, I/O error or partition offline.",
        RETRIABLE,
    )
    LOG_DIR_NOT_FOUND = 57, "The broker has no such data directory."
    SASL_AUTHENTICATION_FAILED = 58, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The partition has no state for this producer any more."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are disabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The broker does not know this delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The delegation token belongs to another user."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation token requests are not allowed on this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "The client is not authorized for this operation on delegation tokens."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "This principal type is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The broker has no fetch session with this id.", RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session's epoch is not the expected one.", RETRIABLE
    LISTENER_NOT_FOUND = 72, "The leader has no listener with the name of the one that received the request.", RETRIABLE
    TOPIC_DELETION_DISABLED = 73, "The broker does not allow topics to be deleted."
    FENCED_LEADER_EPOCH = 74, "The request's leader epoch is older than the broker's.", RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, "The request's leader epoch is newer than the broker's.", RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The codec is not allowed in this version of the request."
    STALE_BROKER_EPOCH = 77, "The broker epoch is not the current one."
    OFFSET_NOT_AVAILABLE = 78, "The new leader does not know its end offset yet.", RETRIABLE
    MEMBER_ID_REQUIRED = 79, "Join again with the member id in this response."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "The group is full: it has group.max.size members."
    FENCED_INSTANCE_ID = 82, "Another member joined with the same group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that is eligible to lead is available.", RETRIABLE
    ELECTION_NOT_NEEDED = 84, "The partition already has the requested leader.", RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to this topic, so its offsets cannot be deleted."
    INVALID_RECORD = 87, "The batch or one of its records violates a rule of the format or the topic."
    UNSTABLE_OFFSET_COMMIT = 88, "A transaction that commits this offset is still open.", RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "The client's quota is exhausted.", RETRIABLE
    PRODUCER_FENCED = 90, "A newer producer uses the same transactional id."
    RESOURCE_NOT_FOUND = 91, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, "The resource already exists, or the request names it twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, "The two sides disagree about the set of voters."
    INVALID_UPDATE_VERSION = 95, "The update's version is not the expected one."
    FEATURE_UPDATE_FAILED = 96, "The feature could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal could not be parsed."
    SNAPSHOT_NOT_FOUND = 98, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This broker hosts no topic with this id.", RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "A broker with this id is already registered."
    BROKER_ID_NOT_REGISTERED = 102, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = 103, "The topic with this name now has another id.", RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "The request names another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "The transactional id does not exist."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic names and topic ids.", RETRIABLE
    INELIGIBLE_REPLICA = 107, "The replica is not eligible to be in sync or to lead."
    NEW_LEADER_ELECTED = 108, "The change of the in-sync replicas elected a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is only in tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member was fenced by a newer member epoch; join again."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds the group.instance.id."
    UNSUPPORTED_ASSIGNOR = 112, "The broker has no assignor with this name."
    STALE_MEMBER_EPOCH = 113, "The member epoch is stale; send a heartbeat and retry."
    MISMATCHED_ENDPOINT_TYPE = (
        114,
        "The request was sent to a broker instead of a controller, or to a controller instead of a broker.",
    )
    UNSUPPORTED_ENDPOINT_TYPE = 115, "The broker does not support this endpoint type."
    UNKNOWN_CONTROLLER_ID = 116, "No controller has this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is out of date."
    TELEMETRY_TOO_LARGE = 118, "The client's metrics exceed the broker's size limit."
    INVALID_REGISTRATION = 119, "The controller refused the registration."
    TRANSACTION_ABORTABLE = 120, "The transaction cannot continue; abort it and begin another."
    INVALID_RECORD_STATE = 121, "The share group's record is in a state that does not allow this."
    SHARE_SESSION_NOT_FOUND = 122, "The broker has no share session with this id.", RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session's epoch is not the expected one.", RETRIABLE
    FENCED_STATE_EPOCH = 124, "The share coordinator has a newer state epoch."
    INVALID_VOTER_KEY = 125, "The voter key is not that of the receiver."
    DUPLICATE_VOTER = 126, "The voter is already in the set."
    VOTER_NOT_FOUND = 127, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, "The subscription's regular expression is invalid."
    REBOOTSTRAP_REQUIRED = 129, "The client's metadata belongs to another cluster; bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, "The streams topology is invalid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The streams topology epoch is invalid."
    STREAMS_TOPOLOGY_FENCED = 132, "The streams topology epoch is stale."
    SHARE_SESSION_LIMIT_REACHED = 133, "The broker has reached its limit of share sessions.", RETRIABLE
    GROUP_DELETION_FAILED = 134, "The group was not deleted; the error message has the reason."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, "The description of the streams topology was not accepted."
    CONTROLLER_ID_NOT_REGISTERED = 136, "No controller is registered with this id."


class KafkaError(Exception):
    """A failure with an error code of Kafka's protocol.

    `message` is for people, and may name the topic, the limit or the file. The default is the text of the code.
    """

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str | None = None) -> None:
        self.message = message if message is not None else self.code.text
        super().__init__(self.message)

    def __init_subclass__(cls, *, code: ErrorCode) -> None:
        assert code not in _CLASSES, f"{cls.__name__} and {_CLASSES[code].__name__} both claim code {code}"
        cls.code = code
        cls.__doc__ = code.text
        _CLASSES[code] = cls

    @property
    def name(self) -> str:
        """The name of the code in the protocol, such as `OFFSET_OUT_OF_RANGE`."""
        return self.code.name

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code.retriable


_CLASSES: Final[dict[int, type[KafkaError]]] = {}


def error_for(code: int, message: str | None = None) -> KafkaError:
    """Return the exception for an error code. ValueError for code 0, which means success.

    The exception has the class for the code, or else is a plain KafkaError. An unknown code becomes
    UNKNOWN_SERVER_ERROR, with the number in the message.
    """
    if code == ErrorCode.NONE:
        raise ValueError("code 0 is success, not an error")
    try:
        known = ErrorCode(code)
    except ValueError:
        return KafkaError(message if message is not None else f"unknown error code {code}")
    own = _CLASSES.get(known)
    if own is not None:
        return own(message)
    error = KafkaError(message if message is not None else known.text)
    error.code = known
    return error


class MalformedRequest(ValueError):
    """A request that matches its schema but is invalid. Its connection is closed without a response."""


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file cannot be used, without its name: the text of the system error or of the ValueError."""
    return str((error.strerror or error) if isinstance(error, OSError) else error)


class StartupError(Exception):
    """An error that prevents the broker from starting. The exit status is 2.

    The message is one sentence with the problem.
    """


class ControllersAway(StartupError):
    """No controller accepts the broker at this time.

    A later start may succeed without changes. The exit status is 1.
    """


class StartGivenUp(StartupError):
    """The broker was stopped while it started."""


class ConfigError(StartupError):
    """An invalid setting. `key` is its name, and `reason` says why it is invalid."""

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"{key}: {reason}")


class OffsetOutOfRange(KafkaError, code=ErrorCode.OFFSET_OUT_OF_RANGE): ...


class CorruptMessage(KafkaError, code=ErrorCode.CORRUPT_MESSAGE):
    """A corrupt record batch. `partition` and `offset` locate it, if they are known."""

    partition: tuple[str, int] | None = None
    offset: int = -1


class UnknownTopicOrPartition(KafkaError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): ...


class MessageTooLarge(KafkaError, code=ErrorCode.MESSAGE_TOO_LARGE): ...


class InvalidTopic(KafkaError, code=ErrorCode.INVALID_TOPIC_EXCEPTION): ...


class InconsistentGroupProtocol(KafkaError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL): ...


class UnknownMemberId(KafkaError, code=ErrorCode.UNKNOWN_MEMBER_ID): ...


class TopicAuthorizationFailed(KafkaError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED): ...


class TopicAlreadyExists(KafkaError, code=ErrorCode.TOPIC_ALREADY_EXISTS): ...


class InvalidPartitions(KafkaError, code=ErrorCode.INVALID_PARTITIONS): ...


class InvalidReplicationFactor(KafkaError, code=ErrorCode.INVALID_REPLICATION_FACTOR): ...


class InvalidReplicaAssignment(KafkaError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT): ...


class InvalidConfig(KafkaError, code=ErrorCode.INVALID_CONFIG): ...


class InvalidRequest(KafkaError, code=ErrorCode.INVALID_REQUEST): ...


class PolicyViolation(KafkaError, code=ErrorCode.POLICY_VIOLATION): ...


class InvalidProducerEpoch(KafkaError, code=ErrorCode.INVALID_PRODUCER_EPOCH): ...


class InvalidTxnState(KafkaError, code=ErrorCode.INVALID_TXN_STATE): ...


class InvalidTransactionTimeout(KafkaError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT): ...


class TransactionCoordinatorFenced(KafkaError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED): ...


class TransactionalIdAuthorizationFailed(KafkaError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): ...


class StorageError(KafkaError, code=ErrorCode.KAFKA_STORAGE_ERROR): ...


class NonEmptyGroup(KafkaError, code=ErrorCode.NON_EMPTY_GROUP): ...


class GroupIdNotFound(KafkaError, code=ErrorCode.GROUP_ID_NOT_FOUND): ...


class TopicDeletionDisabled(KafkaError, code=ErrorCode.TOPIC_DELETION_DISABLED): ...


class GroupMaxSizeReached(KafkaError, code=ErrorCode.GROUP_MAX_SIZE_REACHED): ...


class NoReassignmentInProgress(KafkaError, code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS): ...


class FencedInstanceId(KafkaError, code=ErrorCode.FENCED_INSTANCE_ID): ...


class InvalidRecord(KafkaError, code=ErrorCode.INVALID_RECORD): ...


class UnstableOffsetCommit(KafkaError, code=ErrorCode.UNSTABLE_OFFSET_COMMIT): ...


class ProducerFenced(KafkaError, code=ErrorCode.PRODUCER_FENCED): ...


class UnknownTopicId(KafkaError, code=ErrorCode.UNKNOWN_TOPIC_ID): ...


class InconsistentTopicId(KafkaError, code=ErrorCode.INCONSISTENT_TOPIC_ID): ...


class TransactionalIdNotFound(KafkaError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND): ...


class FencedMemberEpoch(KafkaError, code=ErrorCode.FENCED_MEMBER_EPOCH): ...


class UnreleasedInstanceId(KafkaError, code=ErrorCode.UNRELEASED_INSTANCE_ID): ...


class InvalidRegularExpression(KafkaError, code=ErrorCode.INVALID_REGULAR_EXPRESSION): ...
