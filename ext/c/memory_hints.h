/* Give the processor and the kernel hints about memory, which they may ignore. No hint changes a result.
 *
 * Thread rule: any thread.
 */
#ifndef KL_MEMORY_HINTS_H
#define KL_MEMORY_HINTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

enum {
    KL_CACHE_LINE = 64,
    KL_HUGE_PAGE = 2 * 1024 * 1024
};

/* Prefetch the cache lines of [start, start + size), which will be read soon. An unmapped address does no harm. */
static inline void kl_prefetch(const void *start, size_t size)
{
    const char *line = (const char *)((uintptr_t)start & ~(uintptr_t)(KL_CACHE_LINE - 1));
    const char *end = (const char *)start + size;
    for (; line < end; line += KL_CACHE_LINE)
        __builtin_prefetch(line, 0, 3);
}

/* Ask for huge pages in [start, start + size), which will be written soon: this makes 512 times fewer page faults. */
static inline void kl_prefer_huge_pages(void *start, size_t size)
{
    uintptr_t first = ((uintptr_t)start + KL_HUGE_PAGE - 1) & ~(uintptr_t)(KL_HUGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)start + size) & ~(uintptr_t)(KL_HUGE_PAGE - 1);
    if (end > first)
        (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
}

#endif
