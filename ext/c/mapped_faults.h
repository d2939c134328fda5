/* Survive a memory-mapped file that is truncated or unreadable. Reading such a page raises SIGBUS in the reading
 * thread.
 *
 *   1  a map is watched, and a thread reads a page of it that is missing, which raises SIGBUS
 *   2  the handler sets a flag, and maps zeros from that page on
 *   3  the reader continues with zeros, and checks the flag before it answers
 *
 * After its last byte, a reader of a watched map calls kl_has_fault(). Until then it must not use anything that it
 * derived from the bytes, because they may have been zeros. A flag is never cleared. A SIGBUS at an address outside of
 * watched maps goes to the handler that was installed before.
 *
 * Thread rule: the GIL (or another lock) guards kl_watch_map and kl_forget_map. The handler runs in any thread at any
 * time, and takes no lock. Any thread may call kl_has_fault().
 */
#ifndef KL_MAPPED_FAULTS_H
#define KL_MAPPED_FAULTS_H

#include <stddef.h>
#include <stdint.h>

/* Watch [address, address + size): a fault there sets *fault, which must outlive the watch. Returns the watch, or -1
 * without memory. */
int kl_watch_map(void *address, size_t size, int *fault);

/* End a watch. Call this before the range is unmapped, when no thread reads it any more. */
void kl_forget_map(int watch);

/* The number of pages that could not be read so far, and the number of watched ranges. */
int64_t kl_fault_count(void);
int64_t kl_watch_count(void);

/* Return whether a finished read may have met zeros in place of the file's bytes. */
static inline int kl_has_fault(const int *fault)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the reads before stay before: no instruction on x86 */
    return __atomic_load_n(fault, __ATOMIC_RELAXED);
}

#endif
