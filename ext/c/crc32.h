/* CRC-32 (IEEE 802.3, as in zlib and gzip), the checksum of Kafka 0.7's messages.
 *
 * Polynomial 0x04C11DB7, reflected; initial value and final exclusive-or all ones. The CRC of "123456789" is
 * 0xCBF43926.
 *
 * Thread rule: kl_crc32_select runs once, at import. All other functions only read, and may run on any thread.
 */
#ifndef KL_CRC32_H
#define KL_CRC32_H

#include "crc.h"

enum { KL_CRC32_BACKENDS = 3 };

/* Fill the tables, detect what the processor supports, and choose the fastest way. */
void kl_crc32_select(void);

/* All ways, fastest first, the portable table last. Valid after kl_crc32_select. */
extern kl_crc_backend kl_crc32_backends[KL_CRC32_BACKENDS];

/* The chosen one. */
extern kl_crc_function kl_crc32;
extern const char *kl_crc32_name;

#endif
