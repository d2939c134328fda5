"""Map each key to its newest offset, in a fixed amount of memory. Compaction compares every record with this map.

A key is represented by a hash of 128 bits, as in Kafka (which uses MD5). If two keys had the same hash, compaction
would lose the older record. The hash is SipHash-2-4-128 with a random secret for each map. So among 2^32 keys a
collision has a probability of about 2^-65, and a client that chooses its keys cannot cause one.

    slot, 24 bytes:  hash low u64 | hash high u64 | offset + 1 (0: free)         capacity = slots × load factor

Open addressing: a key is in the first free slot from `low × slots / 2^64` on. Keys are never removed.

A look-up in a large map waits for memory. So a caller with many keys hashes several of them, prefetches their slots
(table_prefetch), and then looks them up; the waits then overlap.

The functions are inline, so that the compiler puts them into compaction's loops. They neither lock nor allocate.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #define kl_multiply_high(a, b) ((uint64_t)(((unsigned __int128)(a) * (b)) >> 64))
    #define kl_prefetch(address) __builtin_prefetch(address)
    """
    uint64_t kl_multiply_high(uint64_t, uint64_t) noexcept nogil
    void kl_prefetch(const void*) noexcept nogil

cdef enum:
    SLOT_SIZE = 24

cdef struct KeySlot:
    uint64_t low
    uint64_t high
    int64_t offset_after        # the key's newest offset + 1; 0 while the slot is free

cdef struct KeyTable:
    KeySlot* slots
    uint64_t secret[2]
    int64_t slot_count
    int64_t count
    int64_t count_max           # load factor × slot_count

cdef struct KeyHash:
    uint64_t low
    uint64_t high


cdef inline uint64_t sip_rotate(uint64_t word, int bits) noexcept nogil:
    return (word << bits) | (word >> (64 - bits))


cdef inline void sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[1] = sip_rotate(v[1], 13) ^ v[0]
    v[0] = sip_rotate(v[0], 32)
    v[2] += v[3]
    v[3] = sip_rotate(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = sip_rotate(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = sip_rotate(v[1], 17) ^ v[2]
    v[2] = sip_rotate(v[2], 32)


cdef inline void sip_word(uint64_t* v, uint64_t word) noexcept nogil:
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word


cdef inline void sip_finish(uint64_t* v) noexcept nogil:
    sip_round(v)
    sip_round(v)
    sip_round(v)
    sip_round(v)


cdef inline KeyHash key_hash(const uint64_t* secret, const unsigned char* key, int64_t size) noexcept nogil:
    """Return the SipHash-2-4-128 of a key. Words are little-endian, as on all supported machines."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef uint64_t last = <uint64_t>size << 56
    cdef KeyHash result
    cdef int64_t left = size
    v[0] = secret[0] ^ <uint64_t>0x736F6D6570736575
    v[1] = secret[1] ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = secret[0] ^ <uint64_t>0x6C7967656E657261
    v[3] = secret[1] ^ <uint64_t>0x7465646279746573
    while left >= 8:
        memcpy(&word, key, 8)
        sip_word(v, word)
        key += 8
        left -= 8
    while left > 0:
        left -= 1
        last |= <uint64_t>key[left] << (8 * left)
    sip_word(v, last)
    v[2] ^= 0xEE
    sip_finish(v)
    result.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    sip_finish(v)
    result.high = v[0] ^ v[1] ^ v[2] ^ v[3]
    return result


cdef inline KeySlot* table_home(const KeyTable* table, const KeyHash* hash) noexcept nogil:
    """Return the slot at which the search for a key begins."""
    return table.slots + kl_multiply_high(hash.low, <uint64_t>table.slot_count)


cdef inline void table_prefetch(const KeyTable* table, const KeyHash* hash) noexcept nogil:
    """Prefetch a key's first slot, which may be in two cache lines."""
    cdef KeySlot* slot = table_home(table, hash)
    kl_prefetch(slot)
    kl_prefetch(<const unsigned char*>slot + SLOT_SIZE - 1)


cdef inline KeySlot* table_slot(const KeyTable* table, const KeyHash* hash) noexcept nogil:
    """Return a key's slot, or the free slot for it. A free slot always exists, because count_max < slot_count."""
    cdef KeySlot* slot = table_home(table, hash)
    cdef KeySlot* end = table.slots + table.slot_count
    while slot.offset_after != 0 and (slot.low != hash.low or slot.high != hash.high):
        slot += 1
        if slot == end:
            slot = table.slots
    return slot


cdef inline bint table_put(KeyTable* table, const KeyHash* hash, int64_t offset) noexcept nogil:
    """Record the offset of a key, unless the map has a larger one. Return False if the key is new and the map is
    full."""
    cdef KeySlot* slot = table_slot(table, hash)
    if slot.offset_after == 0:
        if table.count >= table.count_max:
            return False
        table.count += 1
        slot.low = hash.low
        slot.high = hash.high
    if slot.offset_after <= offset:
        slot.offset_after = offset + 1
    return True


cdef inline int64_t table_get(const KeyTable* table, const KeyHash* hash) noexcept nogil:
    """Return the newest recorded offset of a key, or -1."""
    return table_slot(table, hash).offset_after - 1


cdef class KeyMap:
    cdef KeyTable table
    cdef readonly int64_t size          # bytes taken, at most what was allowed

    cdef KeyHash _hash(self, const unsigned char[::1] key) noexcept
