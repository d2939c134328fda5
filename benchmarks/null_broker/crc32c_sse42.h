/* Compute CRC-32C with the processor's instruction, in three streams at a time, for the benchmark programs.
 *
 * The instruction has a latency of three cycles and a throughput of one. So three independent blocks are processed
 * together and joined: the CRC of A followed by B is (CRC of A moved over length(B) zero bytes) xor CRC of B. Moving
 * over a fixed length is linear in the 32 bits, so four tables of 256 words do it.
 *
 * x86-64 with SSE 4.2 only. The broker has its own implementation.
 */
#ifndef CRC32C_SSE42_H
#define CRC32C_SSE42_H

#include <nmmintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CRC_LARGE = 4096, CRC_SMALL = 256 };

static uint32_t crc_shift_large[4][256], crc_shift_small[4][256];

static uint32_t crc_over_zeros(uint32_t crc, size_t size) {
    for (; size >= 8; size -= 8) crc = (uint32_t)_mm_crc32_u64(crc, 0);
    return crc;
}

static void crc_fill(uint32_t table[4][256], size_t size) {
    for (uint32_t lane = 0; lane < 4; lane++)
        for (uint32_t value = 0; value < 256; value++)
            table[lane][value] = crc_over_zeros(value << (8 * lane), size);
}

/* Once, before the first crc32c(). */
static void crc32c_prepare(void) {
    crc_fill(crc_shift_large, CRC_LARGE);
    crc_fill(crc_shift_small, CRC_SMALL);
}

static inline uint32_t crc_shift(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 255] ^ table[1][(crc >> 8) & 255] ^ table[2][(crc >> 16) & 255] ^ table[3][crc >> 24];
}

static inline uint64_t crc_word(const unsigned char *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static inline uint32_t crc_three(uint32_t crc, const unsigned char *p, size_t block, uint32_t table[4][256]) {
    uint64_t a = crc, b = 0, c = 0;
    for (const unsigned char *end = p + block; p < end; p += 8) {
        a = _mm_crc32_u64(a, crc_word(p));
        b = _mm_crc32_u64(b, crc_word(p + block));
        c = _mm_crc32_u64(c, crc_word(p + 2 * block));
    }
    uint32_t joined = crc_shift(table, (uint32_t)a) ^ (uint32_t)b;
    return crc_shift(table, joined) ^ (uint32_t)c;
}

static uint32_t crc32c(const unsigned char *p, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 3 * CRC_LARGE; p += 3 * CRC_LARGE, size -= 3 * CRC_LARGE)
        crc = crc_three(crc, p, CRC_LARGE, crc_shift_large);
    for (; size >= 3 * CRC_SMALL; p += 3 * CRC_SMALL, size -= 3 * CRC_SMALL)
        crc = crc_three(crc, p, CRC_SMALL, crc_shift_small);
    uint64_t wide = crc;
    for (; size >= 8; p += 8, size -= 8) wide = _mm_crc32_u64(wide, crc_word(p));
    crc = (uint32_t)wide;
    for (; size; p++, size--) crc = _mm_crc32_u8(crc, *p);
    return ~crc;
}

#endif
