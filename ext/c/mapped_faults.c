#include "mapped_faults.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The table of watched ranges: chunks that are never given back, so that the handler may walk it at any time. */

enum {
    CHUNK_RANGES = 1024,
    CHUNKS_MAX = 4096
};

#define FREE_RANGE UINTPTR_MAX

typedef struct {
    uintptr_t start; /* FREE_RANGE: not in use */
    uintptr_t end;
    int *fault;
    int next_free;
} range;

static range *chunks[CHUNKS_MAX];
static int chunk_count;
static int first_free = -1;
static int64_t watch_count;
static int64_t fault_count;
static uintptr_t page_size;

static struct sigaction previous;
static int installed;

static range *range_at(int watch)
{
    return &chunks[watch / CHUNK_RANGES][watch % CHUNK_RANGES];
}

static int grow(void)
{
    range *chunk;
    if (chunk_count == CHUNKS_MAX)
        return -1;
    chunk = malloc(CHUNK_RANGES * sizeof(range));
    if (chunk == NULL)
        return -1;
    for (int i = 0; i < CHUNK_RANGES; i++) {
        chunk[i].start = FREE_RANGE;
        chunk[i].end = 0;
        chunk[i].fault = NULL;
        chunk[i].next_free = i + 1 < CHUNK_RANGES ? chunk_count * CHUNK_RANGES + i + 1 : first_free;
    }
    chunks[chunk_count] = chunk;
    first_free = chunk_count * CHUNK_RANGES;
    __atomic_store_n(&chunk_count, chunk_count + 1, __ATOMIC_RELEASE);
    return 0;
}

/* Only the handler calls this. The reader that faulted keeps its range watched, so this range cannot change. Other
 * ranges may change meanwhile, which the second look at `start` detects. */
static int take_fault(uintptr_t address)
{
    int count = __atomic_load_n(&chunk_count, __ATOMIC_ACQUIRE);
    uintptr_t page = address & ~(page_size - 1);
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < CHUNK_RANGES; j++) {
            range *each = &chunks[i][j];
            uintptr_t start = __atomic_load_n(&each->start, __ATOMIC_ACQUIRE);
            uintptr_t end = __atomic_load_n(&each->end, __ATOMIC_ACQUIRE);
            int *fault = __atomic_load_n(&each->fault, __ATOMIC_ACQUIRE);
            if (start == FREE_RANGE || address < start || address >= end
                    || __atomic_load_n(&each->start, __ATOMIC_ACQUIRE) != start)
                continue;
            /* The flag first: no reader may see the zeros and not the flag. All that is left of the range goes at once,
             * because a truncated file lacks all of it, and readers must not use these bytes any more. */
            __atomic_store_n(fault, 1, __ATOMIC_SEQ_CST);
            __atomic_fetch_add(&fault_count, 1, __ATOMIC_RELAXED);
            return mmap((void *)page, end - page, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                        -1, 0) != MAP_FAILED;
        }
    }
    return 0;
}

/* The handler does not longjmp: this would need a sigsetjmp before every read, and would skip the release of locks and
 * references. Readers do not trust bytes from a disk anyway, so zeros need no further code. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    (void)context;
    if (info->si_code > 0 && take_fault((uintptr_t)info->si_addr)) {
        errno = saved;
        return;
    }
    if (info->si_code <= 0 && previous.sa_handler == SIG_IGN)
        return;
    /* This SIGBUS is not ours, so the previous handler gets it. A fault repeats by itself after the return; a signal
     * that a process sent is sent again. If the previous handler returns it to us, as faulthandler does, the default
     * action ends the process. */
    if (__atomic_exchange_n(&installed, 0, __ATOMIC_SEQ_CST))
        sigaction(number, &previous, NULL);
    else
        signal(number, SIG_DFL);
    if (info->si_code <= 0)
        raise(number);
    errno = saved;
}

/* Install the handler, also again if another handler has replaced it meanwhile, as faulthandler may. */
static void install(void)
{
    struct sigaction action, present;
    if (sigaction(SIGBUS, NULL, &present) == 0 && (present.sa_flags & SA_SIGINFO) && present.sa_sigaction == on_bus_error)
        return;
    previous = present;
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&action.sa_mask);
    __atomic_store_n(&installed, 1, __ATOMIC_SEQ_CST);
    sigaction(SIGBUS, &action, NULL);
}

int kl_watch_map(void *address, size_t size, int *fault)
{
    range *each;
    int watch;
    if (page_size == 0)
        page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (first_free < 0 && grow() != 0)
        return -1;
    install();
    watch = first_free;
    each = range_at(watch);
    first_free = each->next_free;
    __atomic_store_n(&each->end, ((uintptr_t)address + size + page_size - 1) & ~(page_size - 1), __ATOMIC_RELEASE);
    __atomic_store_n(&each->fault, fault, __ATOMIC_RELEASE);
    __atomic_store_n(&each->start, (uintptr_t)address, __ATOMIC_RELEASE);
    watch_count++;
    return watch;
}

void kl_forget_map(int watch)
{
    range *each;
    if (watch < 0)
        return;
    each = range_at(watch);
    __atomic_store_n(&each->start, FREE_RANGE, __ATOMIC_SEQ_CST);
    each->next_free = first_free;
    first_free = watch;
    watch_count--;
}

int64_t kl_fault_count(void)
{
    return __atomic_load_n(&fault_count, __ATOMIC_RELAXED);
}

int64_t kl_watch_count(void)
{
    return watch_count;
}
