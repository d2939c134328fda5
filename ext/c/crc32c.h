/* CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of record batches, the metadata journal and index files.
 *
 * Polynomial 0x1EDC6F41, reflected; initial value and final exclusive-or all ones. The CRC of "123456789" is
 * 0xE3069283.
 *
 * Thread rule: kl_crc32c_select runs once, at import. All other functions only read, and may run on any thread.
 */
#ifndef KL_CRC32C_H
#define KL_CRC32C_H

#include "crc.h"

enum { KL_CRC32C_BACKENDS = 4 };

/* Fill the tables, detect what the processor supports, and choose the fastest way. */
void kl_crc32c_select(void);

/* All ways, fastest first, the portable table last. Valid after kl_crc32c_select. */
extern kl_crc_backend kl_crc32c_backends[KL_CRC32C_BACKENDS];

/* The chosen one. */
extern kl_crc_function kl_crc32c;
extern const char *kl_crc32c_name;

#endif
