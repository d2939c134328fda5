"""Constants of the benchmark's messages."""

from typing import Final

TOPIC: Final = "day"
PARTITIONS: Final = 4
VALUE_SIZE: Final = 200
MIRROR: Final = "day"
CONSUMER: Final = "readers"
