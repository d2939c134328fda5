/* Compute CRC-32 (IEEE) by carry-less multiplication, by Armv8's crc32 instruction, or by table look-ups.
 *
 * The look-ups take eight bytes at a time. The code is made for payloads of a few hundred bytes, for which zlib's setup
 * takes longer than its loop. All constants are computed from the polynomial at start, so none can be mistyped.
 *
 * Bits are reflected: in an n-bit register, bit 0 is the coefficient of x^(n-1). Folding by carry-less multiplication
 * relies on three facts:
 *
 *   1. The state after a message M is M * x^32 mod P, with the previous state added to M's first four bytes.
 *   2. Zeros in front of a message do not change this. So the code treats a message as if zeros in front of it made
 *      its length a multiple of 64. The first block may then be partial; the last block never is.
 *   3. A carry-less multiplication of reflected 64-bit operands gives the product times x. So shifting a 128-bit
 *      register by d bits multiplies its first quadword by x^(d+63) and its second by x^(d-1).
 */
#include "crc32.h"

static const uint32_t polynomial = 0xEDB88320u; /* 0x04C11DB7 reflected */

static kl_crc_tables tables;

__attribute__((noinline)) static uint32_t sum_table(uint32_t value, const unsigned char *data, size_t size) {
    return sum_by_tables(tables, value, data, size);
}

kl_crc_function kl_crc32 = sum_table;
const char *kl_crc32_name = "table";

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define KL_X86 1
#include <immintrin.h>

#define KL_PCLMUL __attribute__((target("sse4.1,ssse3,pclmul")))

enum { LANE = 16, GROUP = 4 * LANE };

static uint64_t fold_512[2], fold_384[2], fold_256[2], fold_128[2];

/* The end: x^95 takes the first quadword out, x^63 the next 32 bits; then the quotient and the polynomial itself. */
static uint64_t end_constants[2], barrett[2];

/* Bytes 16-r to 31-r make pshufb move a lane r bytes towards its end; bytes 16+r to 31+r towards its start. */
static unsigned char shuffles[48];

/* x^64 divided by P without the remainder: 33 bits, reflected. */
static uint64_t quotient_of_x64(void) {
    uint64_t found = 1; /* the coefficient of x^32 */
    uint32_t rest = polynomial; /* x^32 mod P */
    for (unsigned n = 1; n <= 32; n++) {
        uint32_t carry = rest & 1;
        rest = (rest >> 1) ^ (carry ? polynomial : 0);
        found |= (uint64_t)carry << n;
    }
    return found;
}

static void fill_constants(void) {
    fill_fold(polynomial, fold_512, 512);
    fill_fold(polynomial, fold_384, 384);
    fill_fold(polynomial, fold_256, 256);
    fill_fold(polynomial, fold_128, 128);
    end_constants[0] = power_of_x(polynomial, 95);
    end_constants[1] = power_of_x(polynomial, 63);
    barrett[0] = quotient_of_x64();
    barrett[1] = ((uint64_t)polynomial << 1) | 1;
    memset(shuffles, 0x80, sizeof shuffles);
    for (int i = 0; i < LANE; i++)
        shuffles[LANE + i] = (unsigned char)i;
}

KL_PCLMUL static inline __m128i load(const void *p) { return _mm_loadu_si128((const __m128i *)p); }

KL_PCLMUL static inline __m128i fold(__m128i lane, __m128i k, __m128i next) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(lane, k, 0x00), _mm_clmulepi64_si128(lane, k, 0x11)), next);
}

/* The state that a last lane leaves: 128 bits times x^32, to 96, to 64, and by Barrett's way to 32. */
KL_PCLMUL static inline uint32_t reduce(__m128i lane) {
    __m128i k = load(end_constants);
    __m128i b = load(barrett);
    __m128i low_32 = _mm_set_epi32(0, 0, 0, -1);
    __m128i w = _mm_xor_si128(_mm_clmulepi64_si128(lane, k, 0x00), _mm_slli_si128(_mm_srli_si128(lane, 8), 4));
    __m128i z = _mm_srli_si128(_mm_xor_si128(_mm_clmulepi64_si128(w, k, 0x10), w), 8);
    __m128i q = _mm_clmulepi64_si128(_mm_and_si128(z, low_32), b, 0x00);
    q = _mm_clmulepi64_si128(_mm_and_si128(q, low_32), b, 0x10);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(q, z), 1);
}

KL_PCLMUL static uint32_t sum_pclmul(uint32_t value, const unsigned char *data, size_t size) {
    if (size < LANE)
        return sum_table(value, data, size);
    __m128i state = _mm_cvtsi32_si128((int)~value);
    __m128i head[4] = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
    size_t rest = size % LANE;
    size_t lanes = size / LANE + (rest != 0);
    unsigned at = (unsigned)(0 - lanes) % 4; /* zero lanes thought before the first one */
    size_t groups = (lanes + at) / 4 - 1;
    if (rest != 0) {
        head[at++] = _mm_shuffle_epi8(_mm_xor_si128(load(data), state), load(shuffles + rest));
        state = _mm_shuffle_epi8(state, load(shuffles + LANE + rest));
        data += rest;
    }
    if (at == 4) { /* the cut lane was the last of its group: the next one is whole, and carries the rest of the state */
        __m128i k = load(fold_512);
        head[0] = fold(head[0], k, _mm_xor_si128(load(data), state));
        head[1] = fold(head[1], k, load(data + LANE));
        head[2] = fold(head[2], k, load(data + 2 * LANE));
        head[3] = fold(head[3], k, load(data + 3 * LANE));
        data += GROUP;
        groups--;
    } else {
        head[at++] = _mm_xor_si128(load(data), state);
        for (data += LANE; at < 4; data += LANE)
            head[at++] = load(data);
    }
    __m128i k = load(fold_512);
    __m128i a = head[0], b = head[1], c = head[2], d = head[3];
    for (; groups > 0; groups--, data += GROUP) {
        a = fold(a, k, load(data));
        b = fold(b, k, load(data + LANE));
        c = fold(c, k, load(data + 2 * LANE));
        d = fold(d, k, load(data + 3 * LANE));
    }
    d = fold(a, load(fold_384), d);
    d = fold(b, load(fold_256), d);
    d = fold(c, load(fold_128), d);
    return ~reduce(d);
}
#endif

#if defined(__aarch64__) && defined(__linux__) && (defined(__GNUC__) || defined(__clang__))
#define KL_ARM 1
#include <arm_acle.h>
#include <sys/auxv.h>

#ifdef __clang__
#define KL_ARM_TARGET __attribute__((target("crc")))
#else
#define KL_ARM_TARGET __attribute__((target("+crc")))
#endif

enum { HWCAP_CRC32_BIT = 1 << 7 };

KL_ARM_TARGET static uint32_t sum_armv8(uint32_t value, const unsigned char *data, size_t size) {
    uint32_t c = ~value;
    for (; size >= 8; size -= 8, data += 8)
        c = __crc32d(c, load_le64(data));
    for (; size > 0; size--, data++)
        c = __crc32b(c, *data);
    return ~c;
}
#endif

kl_crc_backend kl_crc32_backends[KL_CRC32_BACKENDS] = {
    {"pclmul", NULL},
    {"armv8", NULL},
    {"table", sum_table},
};

void kl_crc32_select(void) {
    fill_tables(polynomial, tables);
#ifdef KL_X86
    fill_constants();
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("pclmul"))
        kl_crc32_backends[0].function = sum_pclmul;
#endif
#ifdef KL_ARM
    if (getauxval(AT_HWCAP) & HWCAP_CRC32_BIT)
        kl_crc32_backends[1].function = sum_armv8;
#endif
    const kl_crc_backend *chosen = first_available(kl_crc32_backends);
    kl_crc32 = chosen->function;
    kl_crc32_name = chosen->name;
}
