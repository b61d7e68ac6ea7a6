#include "tensor/dtype.h"
#include <math.h>

const dtype_row dtype_rows[DT_COUNT] = {
#define DT(id, ctype, size, cat, sname, pname, alias, gname) { size, #cat[0], sname, pname, alias, gname },
#include "tensor/dtype.def"
};

/* Promotion is the least upper bound in the lattice bool < ints < floats; u8 with a signed type needs the
 * next wider signed one, f16 with bf16 needs f32. */
dtype dtype_promote(dtype a, dtype b)
{
    if (a == b)
        return a;
    dtype lo = MIN(a, b), hi = MAX(a, b);
    if (hi > DT_c128) /* stored only: whoever meets them decides */
        return dtype_category((int)lo) >= dtype_category((int)hi) ? lo : hi;
    if (dtype_is_complex(hi))
        return lo == DT_f64 ? DT_c128 : hi;
    if (lo == DT_u8 && hi == DT_i8)
        return DT_i16;
    if (lo == DT_f16 && hi == DT_bf16)
        return DT_f32;
    return hi;
}

dtype dtype_by_name(const char *s, size_t n)
{
    for (int d = 0; d < DT_COUNT; d++) {
        const dtype_row *r = &dtype_rows[d];
        const char *names[] = { r->sname, r->pname, r->alias };
        for (size_t i = 0; i < COUNT(names); i++)
            if (strlen(names[i]) == n && n && !memcmp(names[i], s, n))
                return (dtype)d;
    }
    return DT_none;
}

int dtype_category(int d)
{
    if (d < 0)
        return -1;
    switch (dtype_rows[d].cat) {
    case 'b': return 0;
    case 'i':
    case 'u': return 1;
    case 'c': return 3;
    default: return 2;
    }
}

static int join(int a, int b)
{
    if (a < 0 || b < 0)
        return MAX(a, b);
    return dtype_promote((dtype)a, (dtype)b);
}

void dtype_join_add(dtype_join *j, dtype d, int ndim, bool wrapped)
{
    int *g = wrapped ? &j->wrapped : ndim == 0 ? &j->zero : &j->dim;
    *g = join(*g, d);
}

/* A lower group only matters when its category is higher. A float beside a complex number gives its own width to both parts. */
static int combine(int higher, int lower)
{
    if (higher < 0 || lower < 0)
        return MAX(higher, lower);
    int h = dtype_category(higher), l = dtype_category(lower);
    if (h == 2 && l == 3)
        return dtype_complex_of((dtype)higher);
    return h >= l ? higher : join(higher, lower);
}

dtype dtype_join_result(const dtype_join *j) { return (dtype)combine(j->dim, combine(j->zero, j->wrapped)); }

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 1023, u;
    if (exp == 31)
        u = sign | 0x7f800000u | man << 13;
    else if (exp)
        u = sign | (exp + 112) << 23 | man << 13;
    else if (!man)
        u = sign;
    else { /* subnormal: normalise */
        int e = 113;
        while (!(man & 1024))
            man <<= 1, e--;
        u = sign | (uint32_t)e << 23 | (man & 1023) << 13;
    }
    float f;
    memcpy(&f, &u, 4);
    return f;
}

uint16_t f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00);
    if (a >= 0x477ff000u) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000u) { /* subnormal or zero: add the magic number that aligns the mantissa */
        float m;
        uint32_t half = 0x3f000000u;
        memcpy(&m, &a, 4);
        float h;
        memcpy(&h, &half, 4);
        m += h;
        memcpy(&a, &m, 4);
        return (uint16_t)(sign | (a - half));
    }
    a += 0xc8000fffu + ((a >> 13) & 1);
    return (uint16_t)(sign | a >> 13);
}

/* ---- eight bits ---- */
/* Sign, exponent bits, mantissa bits; bias 2^(e-1) - 1. */
static float f8_up(uint8_t h, int man, int bias)
{
    int e = (h & 0x7f) >> man, m = h & ((1 << man) - 1);
    double v = e ? ldexp(1 + (double)m / (1 << man), e - bias) : ldexp((double)m / (1 << man), 1 - bias);
    return (float)(h & 0x80 ? -v : v);
}

/* Rounds to nearest even; `most` is the largest finite code, what is beyond becomes `over`. */
static uint8_t f8_down(float f, int man, int bias, uint8_t most, uint8_t over, uint8_t nan)
{
    uint8_t sign = signbit(f) ? 0x80 : 0;
    if (isnan(f))
        return sign | nan;
    double a = fabs((double)f);
    int e;
    if (isinf(f))
        return sign | over;
    (void)frexp(a, &e); /* a = m 2^e, m in [0.5, 1) */
    e = MAX(e - 1, 1 - bias);
    double unit = ldexp(1, e - man), n = nearbyint(a / unit);
    if (a == 0 || n == 0)
        return sign;
    if (n >= 2 << man)
        n /= 2, e++;
    int code = n < 1 << man ? (int)n : ((e + bias) << man) + ((int)n - (1 << man));
    return sign | (uint8_t)(code > most ? over : code);
}

float f8e4_to_f32(uint8_t h) { return (h & 0x7f) == 0x7f ? (h & 0x80 ? -NAN : NAN) : f8_up(h, 3, 7); }
uint8_t f32_to_f8e4(float f)
{
    return f8_down(f, 3, 7, 0x7e, 0x7e, 0x7f);
} /* what is beyond is the largest */
float f8e5_to_f32(uint8_t h) { return f16_to_f32((uint16_t)(h << 8)); }
uint8_t f32_to_f8e5(float f) { return f8_down(f, 2, 15, 0x7b, 0x7c, 0x7f); }
