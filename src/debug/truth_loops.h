/* truth_loops.h - loops over indices, as the formulas of columns_truth_nn.c and columns_truth_index.c use them. */
#ifndef TAPER_TRUTH_LOOPS_H
#define TAPER_TRUTH_LOOPS_H
#include "ops/op.h"
#include <math.h>

static inline tp_tensor *tensor_arg(const tp_val *v) { return v->kind == VAL_tensor ? v->t : NULL; }
static inline double number(const tp_val *v, double none)
{
    return val_is_number(v) || v->kind == VAL_bool ? val_as_f(v) : none;
}
static inline double get(const tp_tensor *t, int64_t k)
{
    return elem_get_f((dtype)t->dt, tensor_elem(t, k));
}
static inline void put(tp_tensor *t, int64_t k, double v) { *(double *)tensor_elem(t, k) = v; }

/* The index of element k, and the element at an index. */
static inline void index_of(const tp_tensor *t, int64_t k, int64_t *at)
{
    for (int d = t->ndim - 1; d >= 0; d--) {
        at[d] = k % t->size[d];
        k /= t->size[d];
    }
}
static inline int64_t element(const tp_tensor *t, const int64_t *at)
{
    int64_t k = 0;
    for (int d = 0; d < t->ndim; d++)
        k = k * t->size[d] + at[d];
    return k;
}
/* A dimension as outer, n and inner: element (o, j, i) is (o * n + j) * inner + i. */
typedef struct lines {
    int64_t outer, n, inner;
} lines;
static inline bool lines_of(const tp_tensor *t, const tp_val *dim, lines *l)
{
    int d;
    if (!t || !t->ndim || dim->kind != VAL_int || !dim_wrap(dim->i, t->ndim, &d, NULL))
        return false;
    *l = (lines){ 1, t->size[d], 1 };
    for (int k = 0; k < t->ndim; k++)
        *(k < d ? &l->outer : &l->inner) *= k == d ? 1 : t->size[k];
    return true;
}

static inline int rising(const void *p, const void *q) /* NaN last */
{
    double x = *(const double *)p, y = *(const double *)q;
    return isnan(x) || isnan(y) ? isnan(x) - isnan(y) : (x > y) - (x < y);
}
#endif
