from typing_extensions import Buffer

BASE_OFFSET_AT: int
BATCH_LENGTH_AT: int
LEADER_EPOCH_AT: int
MAGIC_AT: int
CRC_AT: int
ATTRIBUTES_AT: int
ATTRIBUTES_LOW_AT: int
LAST_OFFSET_DELTA_AT: int
BASE_TIMESTAMP_AT: int
MAX_TIMESTAMP_AT: int
PRODUCER_ID_AT: int
PRODUCER_EPOCH_AT: int
BASE_SEQUENCE_AT: int
RECORD_COUNT_AT: int
HEADER_SIZE: int
LENGTH_OVERHEAD: int
BATCH_LENGTH_MIN: int
CRC_FROM: int
RECORD_SIZE_MIN: int
MAGIC_V2: int
CODEC_MASK: int
LOG_APPEND_TIME: int
TRANSACTIONAL: int
CONTROL: int
DELETE_HORIZON: int
CODEC_NONE: int
CODEC_GZIP: int
CODEC_SNAPPY: int
CODEC_LZ4: int
CODEC_ZSTD: int
CODEC_MAX: int
MARKER_KEY_SIZE: int
MARKER_ABORT: int
MARKER_COMMIT: int

STATUS_TEXT: dict[int, str]

class BatchError(ValueError):
    TRUNCATED: int
    OVERLONG: int
    NEGATIVE: int
    TOO_MANY: int
    BAD_MAGIC: int
    BAD_CRC: int
    BAD_COUNT: int
    TRAILING: int
    BAD_VALUE: int
    status: int
    index: int
    def __init__(self, status: int, index: int = -1) -> None: ...

class RecordFaults:
    @property
    def named_count(self) -> int: ...
    @property
    def fault_count(self) -> int: ...
    @property
    def keyless_count(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def has_timestamps(self) -> bool: ...
    def items(self) -> list[tuple[int, int]]: ...

class BatchInfo:
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def is_log_append_time(self) -> bool: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...

def read_info(buffer: Buffer, position: int = 0) -> BatchInfo: ...
def check(buffer: Buffer) -> BatchInfo: ...
def crc_matches(buffer: Buffer, position: int = 0) -> bool: ...
def check_records(
    info: BatchInfo,
    records: Buffer,
    *,
    dense: bool = True,
    key_required: bool = False,
    timestamp_min: int = ...,
    timestamp_max: int = ...,
) -> tuple[int, int, int]: ...
def find_faults(
    info: BatchInfo,
    records: Buffer,
    *,
    key_required: bool = False,
    timestamp_min: int = ...,
    timestamp_max: int = ...,
) -> RecordFaults: ...
def first_at(info: BatchInfo, records: Buffer, target_ms: int, first_offset: int = 0) -> tuple[int, int] | None: ...
def newest(info: BatchInfo, records: Buffer, first_offset: int = 0) -> tuple[int, int] | None: ...
def stamp(buffer: Buffer, base_offset: int, leader_epoch: int) -> None: ...
def stamp_append_time(buffer: Buffer, now_ms: int) -> None: ...
