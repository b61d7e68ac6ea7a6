/* pw.h - pointwise inner loops: their list, their form, and the runner that feeds them. */
#ifndef TAPER_PW_H
#define TAPER_PW_H
#include "ops/op.h"

typedef struct pw_par {
    double f[4];
    int64_t i[4];
} pw_par;

/* Sixteen bytes that move as one. */
typedef struct wide_elem {
    uint64_t a, b;
} wide_elem;

/* n elements, all operands packed in the compute type; o may be a. */
typedef void pw_loop(int64_t n, void *o, const void *a, const void *b, const void *c, const pw_par *par);

/* Compute types. Everything else is converted to one of them, a block at a time. */
typedef enum { CT_f32, CT_f64, CT_i32, CT_i64, CT_b8, CT_COUNT } ctype;
extern const uint8_t ctype_of[DT_COUNT];    /* dtype -> ctype */
extern const uint8_t ctype_dtype[CT_COUNT]; /* ctype -> the dtype that is it */

typedef enum {
#define PW(name, nin, res, types, f, i, b) PW_##name,
#include "ops/pw.def"
#define PW(name, nin, res, types, f, i, b) PW_##name,
#include "ops/pw_slow.def"
    PW_where,
    PW_COUNT
} pw_id;

typedef struct pw_row {
    uint8_t nin;
    bool to_bool;
    pw_loop *loop[CT_COUNT]; /* NULL: not for this type */
} pw_row;

/* The instruction sets the simd/ files are compiled for. */
typedef enum { ISA_base, ISA_avx2, ISA_avx512, ISA_COUNT } isa_kind;
isa_kind isa_current(void); /* best of this machine; TAPER_ISA=base|avx2|avx512 overrides downwards */
#if defined(__x86_64__)
#define ISA_PICK(name) \
    ((__typeof__(&name##_base)[]){ name##_base, name##_avx2, name##_avx512 }[isa_current()])
#define ISA_DECL(ret, name, args) \
    ret name##_base args;         \
    ret name##_avx2 args;         \
    ret name##_avx512 args
#else
#define ISA_PICK(name)            (name##_base)
#define ISA_DECL(ret, name, args) ret name##_base args
#endif
#define ISA_PASTE_(a, b) a##_##b
#define ISA_PASTE(a, b)  ISA_PASTE_(a, b)
#define ISA_NAME(name)   ISA_PASTE(name, TP_ISA)

/* Short ways in simd/pw_quick.c. x and y: the first, the second input is one float. */
typedef struct pw_quick_row {
    pw_loop *f16, *bf16, *x, *y;
} pw_quick_row;
ISA_DECL(const pw_quick_row *, pw_quick, (pw_id id)); /* NULL: none */

const pw_row *pw_row_of(pw_id id); /* for this machine */
const pw_row *pw_row_for(isa_kind isa, pw_id id);

/* Packed conversion between element types. */
typedef void conv_fn(int64_t n, void *dst, const void *src);
conv_fn *conv_of(dtype dst, dtype src);
/* Packed <-> strided, by element size. */
void gather_packed(int64_t n, void *dst, const char *src, int64_t st, size_t es);
void scatter_packed(int64_t n, char *dst, int64_t st, const void *src, size_t es);

/* One input of a loop: a tensor, or a number. */
typedef struct pw_in {
    tp_tensor *t; /* NULL: number */
    const tp_val *num;
    bool is_mask; /* read as bool whatever the compute type (where) */
} pw_in;
/* Runs loop id in type dt over `out`, converting as needed. */
bool pw_apply(op_call *c, pw_id id, dtype dt, tp_tensor *out, const pw_in *in, int nin, const pw_par *par);
/* The same with inputs from the call's Tensor parameters in order, into its first result. */
bool pw_run(op_call *c, pw_id id, const pw_par *par);
/* All number arguments of the call in order (None: 0). */
void pw_numbers(const op_call *c, pw_par *par);
dtype pw_join(const op_call *c); /* promoted type of the Tensor parameters */
bool int_has_zero(const tp_tensor *t);
bool no_kernel(op_call *c, dtype dt); /* NotImplementedError: no loop for this type */
op_shape_fn shape_alias;
#endif
