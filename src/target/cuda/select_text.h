/* select_text.h - the PTX of selecting: which elements are not zero, or differ from the one before, and where they go; and searches.
 * Knows element types and text. May not know the driver, tensors or who calls.
 *
 * Elements are cut into tiles. SELECT_count counts those of a tile that are selected, SELECT_scan (one block) sums the counts up, the
 * number of all behind the last, and SELECT_write looks again and writes. */
#ifndef TAPER_TARGET_CUDA_SELECT_TEXT_H
#define TAPER_TARGET_CUDA_SELECT_TEXT_H
#include "base/strbuf.h"
#include "tensor/dtype.h"

enum {
    SELECT_THREADS = 256,
    SELECT_ROUNDS = 16,
    SELECT_TILE = SELECT_THREADS * SELECT_ROUNDS,
    SELECT_DIMS = 6
};
typedef enum {
    SELECT_count,
    SELECT_scan,
    SELECT_write,
    SELECT_lengths,
    SELECT_search,
    SELECT_KINDS
} select_kind;
/* Parameters of all kernels, 8 bytes each. */
enum {
    SELECT_in,     /* elements; of a search the boundaries */
    SELECT_counts, /* by tile, 4 bytes */
    SELECT_n,      /* below 2^31; boundaries of a line */
    SELECT_tiles,
    SELECT_found,  /* how many */
    SELECT_to,     /* positions of those found, a column a dimension */
    SELECT_values, /* of runs: the first element of each ... */
    SELECT_starts, /* (where it is, 4 bytes) */
    SELECT_order,  /* 0, or which element of the result element i is of */
    SELECT_group,  /* 0, or the number of each element's run, at that place */
    SELECT_per,    /* values for a line of boundaries; 0: one line for all */
    SELECT_size,   /* of the dimensions */
    SELECT_PARAMS = SELECT_size + SELECT_DIMS
};
typedef struct select_form {
    select_kind kind;
    dtype dt;
    bool runs;          /* selected: elements that differ from the one before; else those that are not zero */
    int ndim;           /* of the positions */
    bool right, narrow; /* of a search */
} select_form;

void select_text(strbuf *b, const select_form *f); /* one entry, "select", of SELECT_THREADS threads */
#endif
