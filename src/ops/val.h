/* val.h - one argument or result of an operator.
 * Arguments borrow what they point at; results own it (val_clear). */
#ifndef TAPER_VAL_H
#define TAPER_VAL_H
#include "tensor/tensor.h"

typedef struct tp_gen tp_gen; /* random number generator: ops/random.h */
struct ir_node;
struct ir_graph;

typedef enum {
    VAL_none,
    VAL_tensor,  /* t */
    VAL_int,     /* i, perhaps symbolic */
    VAL_float,   /* f */
    VAL_bool,    /* b */
    VAL_str,     /* s */
    VAL_dtype,   /* i: dtype */
    VAL_device,  /* dev */
    VAL_layout,  /* i: 0 is strided, the only one */
    VAL_memfmt,  /* i: memfmt */
    VAL_gen,     /* gen */
    VAL_ints,    /* ints, n */
    VAL_floats,  /* floats, n */
    VAL_bools,   /* bools, n */
    VAL_complex, /* floats, n = 2: a complex number */
    VAL_tensors, /* ts, n; entries may be NULL where the schema says Tensor?[] */
    VAL_node,    /* node: only in graphs */
    VAL_nodes,   /* nodes, n; entries may be NULL: only in graphs */
    VAL_graph,   /* graph: only in graphs (branches of cond) */
} val_kind;

typedef struct tp_val {
    uint8_t kind;
    int32_t n;
    union {
        tp_tensor *t;
        int64_t i;
        double f;
        bool b;
        const char *s;
        tp_device dev;
        tp_gen *gen;
        const symint *ints;
        const double *floats;
        const bool *bools;
        tp_tensor **ts;
        struct ir_node *node;
        struct ir_node **nodes;
        struct ir_graph *graph;
    };
} tp_val;

#define vNone      ((tp_val){ .kind = VAL_none })
#define vT(x)      val_tensor(x)
#define vI(x)      ((tp_val){ .kind = VAL_int, .i = (x) })
#define vF(x)      ((tp_val){ .kind = VAL_float, .f = (x) })
#define vB(x)      ((tp_val){ .kind = VAL_bool, .b = (x) })
#define vS(x)      ((tp_val){ .kind = VAL_str, .s = (x) })
#define vDT(x)     ((tp_val){ .kind = VAL_dtype, .i = (x) })
#define vDev(x)    ((tp_val){ .kind = VAL_device, .dev = (x) })
#define vMF(x)     ((tp_val){ .kind = VAL_memfmt, .i = (x) })
#define vIs(p, n_) ((tp_val){ .kind = VAL_ints, .n = (n_), .ints = (p) })
#define vFs(p, n_) ((tp_val){ .kind = VAL_floats, .n = (n_), .floats = (p) })
#define vC(p)      ((tp_val){ .kind = VAL_complex, .n = 2, .floats = (p) }) /* double[2] */
#define vTs(p, n_) ((tp_val){ .kind = VAL_tensors, .n = (n_), .ts = (p) })

static inline tp_val val_tensor(tp_tensor *t) /* NULL becomes none */
{
    return t ? (tp_val){ .kind = VAL_tensor, .t = t } : (tp_val){ .kind = VAL_none };
}
static inline bool val_is_number(const tp_val *v)
{
    return v->kind == VAL_int || v->kind == VAL_float || v->kind == VAL_bool || v->kind == VAL_complex;
}
double val_as_f(const tp_val *v); /* of a number; of a complex one its real part */
void val_as_c(const tp_val *v, double c[2]);
static inline bool val_is(const tp_val *v, double x) /* exactly this real number */
{
    return val_as_f(v) == x && (v->kind != VAL_complex || v->floats[1] == 0);
}
int64_t val_as_i(const tp_val *v);                            /* of a number; floats truncate */
dtype val_number_dtype(const tp_val *v, dtype default_float); /* bool, i64 or the default float */
void val_clear(tp_val *v);                                    /* results only: drops tensors and lists */
#endif
