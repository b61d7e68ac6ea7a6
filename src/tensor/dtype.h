/* dtype.h - element types, their promotion, and narrow-float conversion. */
#ifndef TAPER_DTYPE_H
#define TAPER_DTYPE_H
#include "base/base.h"

typedef enum {
#define DT(id, ctype, size, cat, sname, pname, alias, gname) DT_##id,
#include "tensor/dtype.def"
    DT_COUNT,
    DT_none = -1
} dtype;

typedef struct dtype_row {
    uint8_t size;
    char cat;          /* of promotion: see dtype.def */
    const char *sname; /* f32: graph text */
    const char *pname; /* float32: Python */
    const char *alias; /* float, or "" */
    const char *gname; /* Float: guard messages and type() names */
} dtype_row;
extern const dtype_row dtype_rows[DT_COUNT];

static inline size_t dtype_size(dtype d) { return dtype_rows[d].size; }
static inline bool dtype_is_float(dtype d) { return d >= DT_f16 && d <= DT_f64; } /* with arithmetic */
static inline bool dtype_is_complex(dtype d) { return d == DT_c64 || d == DT_c128; }
static inline bool dtype_has_grad(dtype d) { return d >= DT_f16 && d <= DT_c128; }
static inline bool dtype_is_plain(dtype d) { return d <= DT_f64; } /* operators have loops for it */
/* Bool or integral: what becomes the default float where a float is wanted. */
static inline bool dtype_is_exact(dtype d) { return d < DT_f16 || (d >= DT_u16 && d <= DT_u64); }
/* The type of the parts of a complex number, and of the number whose parts have this type. */
static inline dtype dtype_real_of(dtype d) { return d == DT_c64 ? DT_f32 : d == DT_c128 ? DT_f64 : d; }
static inline dtype dtype_complex_of(dtype d) { return d == DT_f64 || d == DT_c128 ? DT_c128 : DT_c64; }
int dtype_category(int d); /* 0 bool, 1 integral, 2 floating, 3 complex; -1 of DT_none */
/* May a result of one type be stored in another: its category must not fall. */
static inline bool dtype_can_cast(dtype from, dtype to) { return dtype_category(from) <= dtype_category(to); }
static inline bool dtype_is_int(dtype d) { return d > DT_bool && d < DT_f16; } /* integral, not bool */
static inline const char *dtype_name(dtype d) { return dtype_rows[d].pname; }
dtype dtype_promote(dtype a, dtype b);           /* of two tensors of equal category standing */
dtype dtype_by_name(const char *name, size_t n); /* any of the three names, or DT_none */

/* Result type of an expression: fold every operand in, then ask. PyTorch's rule: dimensioned tensors win over
 * zero-dim tensors, which win over Python numbers, unless a lower group has a higher category. */
typedef struct dtype_join {
    int dim, zero, wrapped; /* dtype of each group so far, or DT_none */
} dtype_join;
#define DTYPE_JOIN_INIT           \
    {                             \
        DT_none, DT_none, DT_none \
    }
void dtype_join_add(dtype_join *j, dtype d, int ndim, bool wrapped_number);
dtype dtype_join_result(const dtype_join *j);

/* The eight-bit floats: e4m3 has no infinities, e5m2 is a short float16. */
float f8e4_to_f32(uint8_t h);
uint8_t f32_to_f8e4(float f);
float f8e5_to_f32(uint8_t h);
uint8_t f32_to_f8e5(float f);
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
static inline float bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint16_t f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
#endif
