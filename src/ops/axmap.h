/* axmap.h - copies whose source index is a function of each axis alone: flip, roll, repeat, mirrored padding,
 * nearest interpolation, index_select. */
#ifndef TAPER_AXMAP_H
#define TAPER_AXMAP_H
#include "ops/redrow.h"

typedef struct axmap {
    int64_t *at[TP_MAX_DIMS]; /* at[d][i]: source index on axis d for destination index i; NULL: i itself */
} axmap;

int64_t *axmap_axis(axmap *m, int d, int64_t n); /* a table of n entries for axis d, to be filled in */
void axmap_free(axmap *m);
/* out[i...] = in[at(i)...]; same rank and type. */
void axmap_copy(const axmap *m, tp_tensor *out, const tp_tensor *in);
/* dst[at(i)...] op= src[i...]; same rank and type. Repeated places are combined in index order. */
void axmap_put(const axmap *m, red_op op, tp_tensor *dst, const tp_tensor *src);
#endif
