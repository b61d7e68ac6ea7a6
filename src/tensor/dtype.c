#include "tensor/dtype.h"

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

static int category(int d) { return d < 0 ? -1 : d == DT_bool ? 0 : d < DT_f16 ? 1 : 2; }

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

/* A lower group only matters when its category is higher. */
static int combine(int higher, int lower)
{
    return category(higher) >= category(lower) ? higher : join(higher, lower);
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
