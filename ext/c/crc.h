/* Common parts of crc32.c and crc32c.c, which compute two 32-bit CRCs with different polynomials and instructions.
 *
 * Bits are reflected: in a 32-bit register, bit 0 is the coefficient of x^31. A kl_crc_function takes and returns
 * finished values, so f(f(0, a, n), b, m) is the CRC of a followed by b.
 *
 * Thread rule: the tables are filled once, at import. All other functions only read, and may run on any thread.
 */
#ifndef KL_CRC_H
#define KL_CRC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint32_t (*kl_crc_function)(uint32_t value, const unsigned char *data, size_t size);

/* One way to compute a CRC. `function` is NULL if this build or this processor does not support it. */
typedef struct {
    const char *name;
    kl_crc_function function;
} kl_crc_backend;

/* [0] is the classic byte table; [k][b] is the effect of byte b followed by k zero bytes. */
typedef uint32_t kl_crc_tables[8][256];

static inline uint64_t load_le64(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

/* c * x^n mod P, reflected. */
static inline uint32_t times_power_of_x(uint32_t polynomial, uint32_t c, unsigned n) {
    while (n-- > 0)
        c = (c >> 1) ^ ((c & 1) ? polynomial : 0);
    return c;
}

/* x^n mod P, reflected into the upper half of 64 bits. */
static inline uint64_t power_of_x(uint32_t polynomial, unsigned n) {
    return (uint64_t)times_power_of_x(polynomial, 0x80000000u, n) << 32;
}

/* Folding constants for a distance of d bits: x^(d+63) for the first quadword of a lane, x^(d-1) for the second. */
static inline void fill_fold(uint32_t polynomial, uint64_t constants[2], unsigned bits) {
    constants[0] = power_of_x(polynomial, bits + 63);
    constants[1] = power_of_x(polynomial, bits - 1);
}

static inline void fill_tables(uint32_t polynomial, kl_crc_tables tables) {
    for (uint32_t byte = 0; byte < 256; byte++)
        tables[0][byte] = times_power_of_x(polynomial, byte, 8);
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int k = 1; k < 8; k++)
            tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xFF];
}

static inline uint32_t sum_by_tables(kl_crc_tables tables, uint32_t value, const unsigned char *data, size_t size) {
    uint32_t c = ~value;
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t w = load_le64(data) ^ c;
        c = tables[7][w & 0xFF] ^ tables[6][(w >> 8) & 0xFF] ^ tables[5][(w >> 16) & 0xFF] ^ tables[4][(w >> 24) & 0xFF] ^
            tables[3][(w >> 32) & 0xFF] ^ tables[2][(w >> 40) & 0xFF] ^ tables[1][(w >> 48) & 0xFF] ^ tables[0][w >> 56];
    }
    for (; size > 0; size--, data++)
        c = (c >> 8) ^ tables[0][(c ^ *data) & 0xFF];
    return ~c;
}

/* The fastest available one: backends are listed fastest first, and the portable table at the end is always there. */
static inline const kl_crc_backend *first_available(const kl_crc_backend *backends) {
    while (backends->function == NULL)
        backends++;
    return backends;
}

#endif
