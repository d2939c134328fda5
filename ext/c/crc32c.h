/* CRC-32C (Castagnoli, RFC 3720 appendix B.4): the checksum of record batches, of the metadata journal and of index files.
 *
 * Polynomial 0x1EDC6F41, reflected, initial value and final exclusive-or all ones: the CRC of "123456789" is 0xE3069283.
 * A value passed in or out is always the finished one, so that kl_crc32c(kl_crc32c(0, a, n), b, m) is the CRC of a then b.
 *
 * Thread rule: kl_crc32c_select runs once, at import; everything else only reads and may run on any thread.
 */
#ifndef KL_CRC32C_H
#define KL_CRC32C_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t (*kl_crc32c_function)(uint32_t value, const unsigned char *data, size_t size);

/* One way to compute it; `function` is NULL where this build or this processor lacks it. */
typedef struct {
    const char *name;
    kl_crc32c_function function;
} kl_crc32c_backend;

enum { KL_CRC32C_BACKENDS = 4 };

/* Fills the tables, finds out what the processor can do, and chooses: the fastest available way comes first. */
void kl_crc32c_select(void);

/* All ways, fastest first, the portable table last; valid after kl_crc32c_select. */
extern kl_crc32c_backend kl_crc32c_backends[KL_CRC32C_BACKENDS];

/* The chosen one. */
extern kl_crc32c_function kl_crc32c;
extern const char *kl_crc32c_name;

#endif
