/* vnum.h - the number formats and edge cases of the vector IR in plain C: the interpreter's ground. */
#ifndef TAPER_LOOP_VNUM_H
#define TAPER_LOOP_VNUM_H
#include "base/base.h"
#include <math.h>

static inline int32_t vnum_bits_f(float f)
{
    int32_t i;
    memcpy(&i, &f, 4);
    return i;
}
static inline float vnum_f_bits(int32_t i)
{
    float f;
    memcpy(&f, &i, 4);
    return f;
}

static inline float vnum_from_bf16(uint16_t h) { return vnum_f_bits((int32_t)((uint32_t)h << 16)); }
static inline uint16_t vnum_to_bf16(float f)
{
    uint32_t u = (uint32_t)vnum_bits_f(f);
    if (f != f)
        return 0x7fc0;
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

static inline float vnum_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 0x3ff;
    if (e == 31)
        return vnum_f_bits((int32_t)(sign | 0x7f800000 | (m ? 0x400000 : 0) | m << 13));
    if (e)
        return vnum_f_bits((int32_t)(sign | (e + 112) << 23 | m << 13));
    float f = (float)m * 0x1p-24f;
    return sign ? -f : f;
}
static inline uint16_t vnum_to_f16(float f)
{
    uint32_t u = (uint32_t)vnum_bits_f(f), a = u & 0x7fffffff;
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x47800000) /* 65536 and more */
        return sign | 0x7c00;
    if (a < 0x38800000) { /* below 2**-14: subnormal; adding 0.5 rounds at 2**-24 */
        float t = vnum_f_bits((int32_t)a) + 0.5f;
        return (uint16_t)(sign | (uint16_t)(vnum_bits_f(t) - 0x3f000000));
    }
    a += 0xfff + ((a >> 13) & 1);
    return (uint16_t)(sign | (uint16_t)((a - 0x38000000) >> 13));
}

/* x86's cut: anything that does not fit gives the smallest integer. */
static inline int32_t vnum_to_i32(double x)
{
    return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN;
}
static inline int64_t vnum_to_i64(double x) { return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN; }

static inline float vnum_abs_f(float a) { return vnum_f_bits(vnum_bits_f(a) & 0x7fffffff); }
static inline double vnum_abs_d(double a) { return fabs(a); }

/* NaN when either is NaN; of two equal values (the zeros) the second. */
static inline float vnum_min_f(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }
static inline float vnum_max_f(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }
static inline double vnum_min_d(double a, double b) { return a != a ? a : b != b ? b : a < b ? a : b; }
static inline double vnum_max_d(double a, double b) { return a != a ? a : b != b ? b : a > b ? a : b; }

static inline float vnum_fma_f(float a, float b, float c) { return fmaf(a, b, c); }
static inline double vnum_fma_d(double a, double b, double c) { return fma(a, b, c); }

/* Word `word` of a Philox4x32-10 block. */
static inline uint32_t vnum_philox(uint64_t seed, uint64_t at, int word)
{
    uint32_t c[4] = { (uint32_t)at, (uint32_t)(at >> 32), 0, 0 }, k0 = (uint32_t)seed,
             k1 = (uint32_t)(seed >> 32);
    for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint64_t p = (uint64_t)0xD2511F53u * c[0], q = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(q >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)q;
        c[3] = (uint32_t)p;
        c[0] = n0;
        c[2] = n2;
    }
    return c[word];
}
#endif
