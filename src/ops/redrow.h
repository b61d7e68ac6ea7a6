/* redrow.h - combine a row of elements into places given by a table or a stride, for every dtype. */
#ifndef TAPER_REDROW_H
#define TAPER_REDROW_H
#include "ops/pw.h"

typedef enum { RED_set, RED_add, RED_mul, RED_max, RED_min, RED_COUNT } red_op;

/* dst[m ? m[i] : i * ds] op= src[i * ss], in elements. Max and min let NaN win, as PyTorch's do. */
typedef void redrow_fn(int64_t n, char *dst, const int64_t *m, int64_t ds, const char *src, int64_t ss);
ISA_DECL(redrow_fn *, redrow_of, (red_op op, dtype dt));
static inline redrow_fn *redrow(red_op op, dtype dt) { return ISA_PICK(redrow_of)(op, dt); }
#endif
