/* Survive mapped files that fail while they are read. Reading a page after the end of a truncated file, or a page that
 * the disk cannot read, raises SIGBUS in the reading thread.
 *
 *   watch a map ─▶ touch a missing page ─▶ SIGBUS ─▶ flag set, zeros from that page on ─▶ the reader continues,
 *                                                                             and checks the flag before it answers
 *
 * A reader of a watched map calls kl_has_fault() after the last byte. Until then it must not use anything derived from
 * the bytes, which may have been zeros. A flag is never cleared. A SIGBUS at any other address goes to the handler that
 * was installed before.
 *
 * The handler does not longjmp: that would need a sigsetjmp before every read, and would skip the release of locks and
 * references. A reader already treats bytes from a disk as untrusted, so zeros need no new code.
 *
 * Thread rule: kl_watch_map and kl_forget_map need one lock around them (the GIL); the handler runs in any thread at
 * any time and takes none. kl_has_fault may be called by any thread.
 */
#ifndef KL_MAPPED_FAULTS_H
#define KL_MAPPED_FAULTS_H

#include <stddef.h>
#include <stdint.h>

/* Faults in [address, address + size) raise *fault, which outlives the watch. Returns the watch, -1 without memory. */
int kl_watch_map(void *address, size_t size, int *fault);

/* Ends a watch. To be called before the range is unmapped, and not while anybody reads it. */
void kl_forget_map(int watch);

/* How many pages could not be read so far; how many ranges are watched. */
int64_t kl_fault_count(void);
int64_t kl_watch_count(void);

/* Whether a read that ended may have met zeros in place of the file's bytes. */
static inline int kl_has_fault(const int *fault)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the reads before stay before: no instruction on x86 */
    return __atomic_load_n(fault, __ATOMIC_RELAXED);
}

#endif
