"""Status codes of C functions that run without the GIL. Their Python wrappers turn each code into an exception."""

cdef enum Status:
    OK = 0
    TRUNCATED = 1        # fewer bytes than the field needs
    OVERLONG = 2         # a varint with too many bytes, or a value outside its type
    NEGATIVE = 3         # a length below the smallest legal one
    TOO_MANY = 4         # a count that the remaining bytes cannot hold
    BAD_MAGIC = 5
    BAD_CRC = 6
    BAD_COUNT = 7        # a record count or delta that contradicts the header
    BAD_UTF8 = 8
    LIMIT = 9            # a named limit would be passed
    TRAILING = 10        # bytes left over after the last field
    BAD_VALUE = 11       # a field value the format forbids
