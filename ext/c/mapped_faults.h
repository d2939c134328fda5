/* Mapped files that fail under their readers: a page that lies after the end of a file which somebody cut, or that the
 * disk cannot give, raises SIGBUS in whoever touches it.
 *
 *   watch a map ─▶ touch a page that is not there ─▶ SIGBUS ─▶ flag raised, zeros from that page on ─▶ reader goes on
 *                                                                        └─▶ and looks at the flag before it answers
 *
 * Whoever reads a watched map asks kl_has_fault() after the last byte and before anything that was made from the bytes
 * is used: what stood there may have been zeros. A flag is never lowered. A SIGBUS at any other address goes to whoever
 * had the signal before, as if this module were not there.
 *
 * Why no longjmp out of the handler: that would need a sigsetjmp before every read, and would jump over locks and
 * references that its caller holds; zeros need nothing from a reader but what it does with bytes from a disk anyway.
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
