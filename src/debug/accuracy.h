/* accuracy.h - are two results the same, for the purposes of numerics? */
#ifndef TAPER_ACCURACY_H
#define TAPER_ACCURACY_H
#include "ir/graph.h"

typedef struct acc_opts {
    double tol; /* 1e-4 unless told */
    bool equal_nan, ignore_non_fp, any_dtype /* exact_dtype off */;
    bool larger_multiplier, max_multiplier;
    bool cosine;
    bool ledger; /* also what is close to eager must not be much farther from float64 than eager is */
    double iou;  /* bool tensors: |and| / |or| that suffices; 0: they must be equal */
} acc_opts;
#define ACC_DEFAULT ((acc_opts){ .tol = 1e-4 })

/* fp64 may be NULL. why (may be NULL) gets the reason of a mismatch. */
bool acc_same(const tp_tensor *ref, const tp_tensor *res, const tp_tensor *fp64, const acc_opts *o,
              strbuf *why);
/* Do they lie in their memory alike: strides, offset? Sizes are equal. */
bool acc_form(const tp_tensor *ref, const tp_tensor *res, strbuf *why);
/* Largest deviation: position (flat, row-major), both values; at is -1 when there is none to name. */
typedef struct acc_worst {
    int64_t at;
    double ref, res, fp64, diff;
} acc_worst;
acc_worst acc_largest(const tp_tensor *ref, const tp_tensor *res, const tp_tensor *fp64);
/* "element [0, 3] is 1.5, eager 0.5, float64 0.5" */
void acc_worst_print(strbuf *b, const tp_tensor *ref, const acc_worst *w);
#endif
