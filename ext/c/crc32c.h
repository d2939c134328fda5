/* CRC-32C (Castagnoli, RFC 3720 appendix B.4): the checksum of record batches, of the metadata journal and of index files.
 *
 * Polynomial 0x1EDC6F41, reflected, initial value and final exclusive-or all ones: the CRC of "123456789" is 0xE3069283.
 *
 * Thread rule: kl_crc32c_select runs once, at import; everything else only reads and may run on any thread.
 */
#ifndef KL_CRC32C_H
#define KL_CRC32C_H

#include "crc.h"

enum { KL_CRC32C_BACKENDS = 4 };

/* Fills the tables, finds out what the processor can do, and chooses: the fastest available way comes first. */
void kl_crc32c_select(void);

/* All ways, fastest first, the portable table last; valid after kl_crc32c_select. */
extern kl_crc_backend kl_crc32c_backends[KL_CRC32C_BACKENDS];

/* The chosen one. */
extern kl_crc_function kl_crc32c;
extern const char *kl_crc32c_name;

#endif
