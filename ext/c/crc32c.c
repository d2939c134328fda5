/* Compute CRC-32C by AVX-512 folding, by SSE4.2's or Armv8's CRC instruction, or by table look-ups.
 *
 * The SSE4.2 code computes three interleaved streams; the look-ups take eight bytes at a time. All constants are
 * computed from the polynomial at start, so none can be mistyped.
 *
 * Bits are reflected: in a 32-bit register, bit 0 is the coefficient of x^31. The code relies on two facts:
 *
 *   1. The state after n more zero bytes is state * x^(8n) mod P. So the CRCs of parts of a message can be computed
 *      separately and joined by multiplications.
 *   2. A carry-less multiplication of reflected operands gives the product times x. Multiplying two 32-bit
 *      values and feeding the 64-bit product to the crc32 instruction multiplies by x^32 more and reduces. Hence
 *      `state` shifted by n bytes = crc32(0, clmul(state, x^(8n-33))).
 */
#include "crc32c.h"

static const uint32_t polynomial = 0x82F63B78u; /* 0x1EDC6F41 reflected */

static kl_crc_tables tables;

static uint32_t sum_table(uint32_t value, const unsigned char *data, size_t size) {
    return sum_by_tables(tables, value, data, size);
}

kl_crc_function kl_crc32c = sum_table;
const char *kl_crc32c_name = "table";

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define KL_X86 1
#include <immintrin.h>

/* Words of eight bytes that one stream may take before the three are joined: 3 KiB a round, where joining costs 1 %. */
enum { STREAM_WORDS_MAX = 128, STREAMS = 3 };

/* shift_constants[n] moves a state over n words: x^(64n-33) mod P. Entry 0 is unused. */
static uint32_t shift_constants[2 * STREAM_WORDS_MAX + 1];

static uint64_t fold_2048[2], fold_1536[2], fold_1024[2], fold_512[2];

static void fill_constants(void) {
    shift_constants[1] = (uint32_t)(power_of_x(polynomial, 64 - 33) >> 32);
    for (unsigned n = 2; n <= 2 * STREAM_WORDS_MAX; n++)
        shift_constants[n] = times_power_of_x(polynomial, shift_constants[n - 1], 64);
    fill_fold(polynomial, fold_2048, 2048);
    fill_fold(polynomial, fold_1536, 1536);
    fill_fold(polynomial, fold_1024, 1024);
    fill_fold(polynomial, fold_512, 512);
}

/* The product, which crc32(0, product) would reduce to the shifted state; it may be joined to data first. */
__attribute__((target("sse4.2,pclmul"))) static inline uint64_t shift_product(uint64_t state, size_t words) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)state),
                                           _mm_cvtsi32_si128((int)shift_constants[words]), 0x00);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

/* State in, state out (not inverted). Any alignment: unaligned loads cost nothing here. */
__attribute__((target("sse4.2,pclmul"))) static uint32_t advance_sse42(uint32_t state, const unsigned char *data,
                                                                       size_t size) {
    uint64_t a = state;
    while (size >= 8 * STREAMS * 2) {
        size_t words = size / (8 * STREAMS);
        if (words > STREAM_WORDS_MAX)
            words = STREAM_WORDS_MAX;
        size_t stride = words * 8;
        uint64_t b = 0, c = 0;
        const unsigned char *end = data + stride - 8;
        for (; data < end; data += 8) {
            a = _mm_crc32_u64(a, load_le64(data));
            b = _mm_crc32_u64(b, load_le64(data + stride));
            c = _mm_crc32_u64(c, load_le64(data + 2 * stride));
        }
        /* The last word of the third stream carries the other two, shifted to their place. */
        a = _mm_crc32_u64(a, load_le64(data));
        b = _mm_crc32_u64(b, load_le64(data + stride));
        a = _mm_crc32_u64(c, load_le64(data + 2 * stride) ^ shift_product(a, 2 * words) ^ shift_product(b, words));
        data += 8 + 2 * stride;
        size -= STREAMS * stride;
    }
    for (; size >= 8; size -= 8, data += 8)
        a = _mm_crc32_u64(a, load_le64(data));
    state = (uint32_t)a;
    if (size & 4) {
        uint32_t w;
        memcpy(&w, data, 4);
        state = _mm_crc32_u32(state, w);
        data += 4;
    }
    if (size & 2) {
        uint16_t w;
        memcpy(&w, data, 2);
        state = _mm_crc32_u16(state, w);
        data += 2;
    }
    if (size & 1)
        state = _mm_crc32_u8(state, *data);
    return state;
}

static uint32_t sum_sse42(uint32_t value, const unsigned char *data, size_t size) {
    return ~advance_sse42(~value, data, size);
}

#define KL_AVX512 "avx512f,vpclmulqdq,sse4.2,pclmul"

/* One accumulator of four 128-bit lanes moved on by the distance of `k`, then joined with `next`. */
__attribute__((target(KL_AVX512))) static inline __m512i fold(__m512i accumulator, __m512i k, __m512i next) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(accumulator, k, 0x00),
                                     _mm512_clmulepi64_epi128(accumulator, k, 0x11), next, 0x96);
}

__attribute__((target(KL_AVX512))) static inline __m512i lanes(const uint64_t constants[2]) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)constants));
}

/* Below this the three streams are as fast. */
enum { FOLD_SIZE_MIN = 512, FOLD_BLOCK = 256 };

__attribute__((target(KL_AVX512))) static uint32_t sum_avx512(uint32_t value, const unsigned char *data, size_t size) {
    if (size < FOLD_SIZE_MIN)
        return ~advance_sse42(~value, data, size);
    __m512i k = lanes(fold_2048);
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~value)));
    __m512i b = _mm512_loadu_si512(data + 64);
    __m512i c = _mm512_loadu_si512(data + 128);
    __m512i d = _mm512_loadu_si512(data + 192);
    data += FOLD_BLOCK;
    size -= FOLD_BLOCK;
    for (; size >= FOLD_BLOCK; size -= FOLD_BLOCK, data += FOLD_BLOCK) {
        a = fold(a, k, _mm512_loadu_si512(data));
        b = fold(b, k, _mm512_loadu_si512(data + 64));
        c = fold(c, k, _mm512_loadu_si512(data + 128));
        d = fold(d, k, _mm512_loadu_si512(data + 192));
    }
    d = fold(a, lanes(fold_1536), d);
    d = fold(b, lanes(fold_1024), d);
    d = fold(c, lanes(fold_512), d);
    unsigned char rest[64]; /* a message of 64 bytes with the same sum as all before it */
    _mm512_storeu_si512(rest, d);
    _mm256_zeroupper(); /* gcc leaves it out here; without it the SSE code that follows ran 200 ns slower a call */
    return ~advance_sse42(advance_sse42(0, rest, sizeof rest), data, size);
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
        c = __crc32cd(c, load_le64(data));
    for (; size > 0; size--, data++)
        c = __crc32cb(c, *data);
    return ~c;
}
#endif

kl_crc_backend kl_crc32c_backends[KL_CRC32C_BACKENDS] = {
    {"avx512", NULL},
    {"sse42", NULL},
    {"armv8", NULL},
    {"table", sum_table},
};

void kl_crc32c_select(void) {
    fill_tables(polynomial, tables);
#ifdef KL_X86
    fill_constants();
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        kl_crc32c_backends[1].function = sum_sse42;
        if (__builtin_cpu_supports("avx512f") &&
            __builtin_cpu_supports("vpclmulqdq"))
            kl_crc32c_backends[0].function = sum_avx512;
    }
#endif
#ifdef KL_ARM
    if (getauxval(AT_HWCAP) & HWCAP_CRC32_BIT)
        kl_crc32c_backends[2].function = sum_armv8;
#endif
    const kl_crc_backend *chosen = first_available(kl_crc32c_backends);
    kl_crc32c = chosen->function;
    kl_crc32c_name = chosen->name;
}
