/* kl_assert(condition) checks an invariant in the debug build (KL_DEBUG), and compiles to nothing in other builds.
 *
 * A failure prints one line on stderr and aborts the process; faulthandler then prints the Python stack. An exception
 * is no alternative: most checks are in functions that cannot raise one, that run without the GIL, or that are in the
 * middle of a change. A broker that continued could write bad state to the disk.
 *
 * The condition must have no side effect.
 */
#ifndef KL_ASSERT_H
#define KL_ASSERT_H

#ifndef KL_DEBUG
#define KL_DEBUG 0
#endif

#if KL_DEBUG
#include <stdio.h>
#include <stdlib.h>

__attribute__((noreturn, cold, unused)) static void kl_assert_failed(const char* file, int line, const char* condition) {
    fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, condition);
    fflush(stderr);
    abort();
}

#define kl_assert(condition) ((condition) ? (void)0 : kl_assert_failed(__FILE__, __LINE__, #condition))
#else
#define kl_assert(condition) ((void)0)
#endif

#endif
