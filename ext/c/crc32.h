/* CRC-32 (IEEE 802.3, the one of zlib and gzip): the checksum of Kafka 0.7's messages.
 *
 * Polynomial 0x04C11DB7, reflected, initial value and final exclusive-or all ones: the CRC of "123456789" is 0xCBF43926.
 * A value passed in or out is always the finished one, so that kl_crc32(kl_crc32(0, a, n), b, m) is the CRC of a then b.
 *
 * Thread rule: kl_crc32_select runs once, at import; everything else only reads and may run on any thread.
 */
#ifndef KL_CRC32_H
#define KL_CRC32_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t (*kl_crc32_function)(uint32_t value, const unsigned char *data, size_t size);

/* One way to compute it; `function` is NULL where this build or this processor lacks it. */
typedef struct {
    const char *name;
    kl_crc32_function function;
} kl_crc32_backend;

enum { KL_CRC32_BACKENDS = 3 };

/* Fills the tables, finds out what the processor can do, and chooses: the fastest available way comes first. */
void kl_crc32_select(void);

/* All ways, fastest first, the portable table last; valid after kl_crc32_select. */
extern kl_crc32_backend kl_crc32_backends[KL_CRC32_BACKENDS];

/* The chosen one. */
extern kl_crc32_function kl_crc32;
extern const char *kl_crc32_name;

#endif
