/* order_text.h - the PTX of sorting: a radix sort of 8 bits a pass, lowest bits first, which keeps the order of equal keys.
 * Knows element types and text. May not know the driver, tensors or who calls.
 *
 * Elements become unsigned keys in the same order (NaN last, -0 equal to 0), and travel with their position in the row. A row that
 * fits a block (order_tile) is sorted by ORDER_rows in one launch. Longer rows are cut into tiles, and each pass is three launches:
 *   ORDER_count    digits of a tile are counted: counts[row][digit][tile]
 *   ORDER_scan     those of a digit are summed up over the tiles before: a block for each row and digit; or, of up to ORDER_FEW
 *                  tiles (rounds 1, else 2), a block for each row with a digit a thread
 *   ORDER_scatter  a tile is ordered by its digit in shared memory and written to where its digits go
 * The first pass reads elements (first), the last one writes elements and positions (last). */
#ifndef TAPER_TARGET_CUDA_ORDER_TEXT_H
#define TAPER_TARGET_CUDA_ORDER_TEXT_H
#include "base/strbuf.h"
#include "tensor/dtype.h"

enum { ORDER_THREADS = 256, ORDER_FEW = 64 };
typedef enum { ORDER_count, ORDER_scan, ORDER_scatter, ORDER_rows, ORDER_KINDS } order_kind;
/* Parameters of all kernels, 8 bytes each. */
enum {
    ORDER_in,      /* elements: rows of n */
    ORDER_keys,    /* what a pass reads ... */
    ORDER_at,      /* (positions, 4 bytes) */
    ORDER_to_keys, /* ... and writes */
    ORDER_to_at,
    ORDER_values, /* results: rows of `keep` elements; 0: not wanted */
    ORDER_indices,
    ORDER_counts,
    ORDER_totals, /* of a row and digit */
    ORDER_n,      /* below 2^31 */
    ORDER_tiles,  /* of a row */
    ORDER_shift,  /* of the digit */
    ORDER_flip,   /* all bits of a key: descending; else 0 */
    ORDER_keep,   /* of a row's n */
    ORDER_PARAMS
};
typedef struct order_form {
    order_kind kind;
    dtype dt;
    bool first, last; /* pass; of ORDER_rows both */
    int rounds;       /* elements of a thread */
} order_form;

bool order_fits(dtype dt);     /* is there a key for it? */
int order_bits(dtype dt);      /* of a key */
int order_key_bytes(dtype dt); /* in memory: 4 or 8 */
int order_rounds(dtype dt);    /* the most */
static inline int order_tile(dtype dt) { return order_rounds(dt) * ORDER_THREADS; }
void order_text(strbuf *b, const order_form *f); /* one entry, "order", of ORDER_THREADS threads */
#endif
