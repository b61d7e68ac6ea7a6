/* red.h - the reduction engine: folds a tensor over some of its dimensions into accumulators. */
#ifndef TAPER_RED_H
#define TAPER_RED_H
#include "ops/pw.h"

typedef enum {
#define RED(name, types, lane, start, combine, f, i) RED_##name,
#include "ops/red.def"
    RED_COUNT
} red_id;

typedef struct red_par {
    double k;             /* the number parameter */
    const double *centre; /* per result, or NULL */
} red_par;

/* Folds n packed elements into one accumulator (double or int64_t). */
typedef void red_row(int64_t n, const void *a, void *acc, const red_par *par);
/* Folds n packed elements into n accumulators; centre is theirs. */
typedef void red_col(int64_t n, const void *a, void *acc, const red_par *par);
typedef void red_col8(int64_t n, const char *a, int64_t step, double *acc); /* eight rows of float */
typedef void red_mix(int64_t n, void *acc, const void *more);               /* combines n accumulators */
typedef struct red_kernel {
    red_row *row[3]; /* f32, f64, i64 */
    red_col *col[3];
    red_mix *mix[2]; /* double, int64_t */
    double start_f;
    int64_t start_i;
} red_kernel;
const red_kernel *red_kernel_of(red_id id);

/* New tensor of accumulators (float64 or int64) with the shape of `out`; t folded over the dimensions in
 * mask. keep: out has the reduced dimensions with size 1. */
tp_tensor *red_run(red_id id, tp_tensor *t, uint32_t mask, int ndim, const symint *size, const red_par *par,
                   tp_err *err);

/* Running reductions of packed lines, and of up to SCAN_COLS columns whose rows are `row` elements apart; idx is
 * where extremes are noted. A pick is NULL for a type it does not know. */
typedef enum { SCAN_sum, SCAN_prod, SCAN_lse, SCAN_max, SCAN_min } scan_kind;
enum { SCAN_COLS = 256 };
typedef void scan_line_fn(int64_t n, const void *a, void *o, int64_t *idx);
typedef void scan_cols_fn(int64_t n, int64_t w, const void *a, void *o, int64_t *idx, int64_t row);
/* The extreme of each of w columns, and its row. o may be NULL. */
typedef void place_cols_fn(int64_t n, int64_t w, const void *a, int64_t row, void *o, int64_t *idx);

/* First place of the extreme in a packed block; -1 unless this is the first block or it beats *best, which is then
 * replaced. NaN beats everything. */
typedef int64_t seek_fn(int64_t n, const void *a, void *best, bool first);

/* A contiguous tensor as outer x n x inner around dim. */
typedef struct around {
    int64_t outer, n, inner;
} around;
static inline around around_dim(const tp_tensor *t, int dim)
{
    around a = { 1, t->ndim ? t->size[dim] : 1, 1 };
    for (int d = 0; d < t->ndim; d++)
        *(d < dim ? &a.outer : &a.inner) *= d == dim ? 1 : t->size[d];
    return a;
}

/* Lines along one dimension: the other dimensions enumerated, several tensors together. */
enum { LINES_MAX = 4 };
typedef struct lines {
    int ndim, nop;
    int64_t n, count; /* elements a line, lines */
    int64_t size[TP_MAX_DIMS], stride[LINES_MAX][TP_MAX_DIMS];
    int64_t step[LINES_MAX]; /* bytes between elements of a line */
    char *data[LINES_MAX];
} lines;
/* ts[0] gives the shape. Others have the same shape, except that size in `dim` may differ. NULL entries are
 * allowed. */
void lines_init(lines *l, int nop, tp_tensor *const *ts, int dim);
void lines_at(const lines *l, int64_t k, char **p); /* first elements of line k */
#endif
