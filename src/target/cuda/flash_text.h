/* flash_text.h - PTX of attention in one kernel: products by tensor cores, scores in registers.
 * Knows PTX and nothing of tensors or launches.
 *
 * A matrix is a head of one element of the batch. A block takes some rows of one matrix and streams all that they meet through shared
 * memory, a tile at a time:
 *   forward   rows of q; k and v are streamed. o = softmax(scale q k^T) v, with the maximum and the sum of a row as they are so far.
 *   rows      rows of q and of the gradient g; k and v are streamed: the gradient of q. It needs delta = sum of p (g v^T) first, which
 *             is the sum of g o where o is there, and one more pass over k and v where it is not.
 *   columns   rows of k and v; q and g of all heads that read them are streamed, and the scores are those of the transposed matrix:
 *             gradients of k and v.
 * A mask is read where the scores are, element by element. Dropout draws the numbers that a program would draw for the whole matrix of
 * probabilities: element i has word i % 4 of block i / 4. */
#ifndef TAPER_TARGET_CUDA_FLASH_TEXT_H
#define TAPER_TARGET_CUDA_FLASH_TEXT_H
#include "base/strbuf.h"
#include "tensor/dtype.h"

typedef enum { FLASH_forward, FLASH_rows, FLASH_columns, FLASH_KINDS } flash_kind;
enum { FLASH_LEAST = 16, FLASH_MOST = 128 }; /* head sizes, multiples of 16 */

typedef enum {
    FLASH_free,
    FLASH_bool,
    FLASH_add
} flash_mask; /* kept where true; added to the scaled scores, in type dt */
typedef struct flash_form {
    flash_kind kind;
    dtype dt;  /* f16 or bf16 */
    int d;     /* elements of a head */
    int warps; /* of a block */
    int tiles; /* of 16 rows that each warp has */
    int cols;  /* rows of a streamed tile: columns of the scores */
    flash_mask mask;
    bool drops;  /* dropout */
    bool ragged; /* rows of the scores do not begin at multiples of four numbers */
    bool given;  /* rows: o is there */
    bool wide;   /* products of a warpgroup (wgmma), on compute capability 9.0 alone */
} flash_form;

/* Parameters, each of 8 bytes. x: o, or the gradient of q or k; y: the gradient of v; of rows, o. Strides are in bytes: between elements
 * of the batch, heads, and rows. */
enum {
    FLASH_q,
    FLASH_k,
    FLASH_v,
    FLASH_g,
    FLASH_x,
    FLASH_y,
    FLASH_batch = 6, /* of q ... y */
    FLASH_row = 12,  /* of q ... y */
    FLASH_head = 18, /* of q ... y */
    FLASH_top = 24,  /* maximum of each row of the scaled scores, f32; forward: written unless 0 */
    FLASH_part,      /* 1 / sum of exp(score - top); the same */
    FLASH_stats,     /* two f32 a row that the kernel of rows writes for that of columns */
    FLASH_blocks,    /* of a matrix */
    FLASH_m,         /* rows of q */
    FLASH_n,         /* rows of k */
    FLASH_reach,     /* row r meets the first r + reach rows of k; FLASH_ALL: all of them */
    FLASH_scale,     /* f32, positive */
    FLASH_heads,     /* of q; 0 is not allowed */
    FLASH_group,     /* so many of them share a head of k and v */
    FLASH_bias,      /* the mask, and its strides in bytes: elements of the batch, heads, rows, columns */
    FLASH_bias_batch,
    FLASH_bias_head,
    FLASH_bias_row,
    FLASH_bias_col,
    FLASH_seed, /* address of two i64: the seed, and the first block of the numbers */
    FLASH_keep, /* f32: an element whose number is below stays, */
    FLASH_more, /* f32: times this */
    FLASH_PARAMS
};
enum { FLASH_ALL = 1 << 30 };

/* small: blocks of 64 rows, as larger ones would be too few; else 64 or 128. */
flash_form flash_form_of(flash_kind kind, dtype dt, int d, bool small);
bool flash_is_wide(flash_kind kind, int d); /* is there such a form? */
flash_form flash_wide_of(flash_kind kind, dtype dt, int d);
static inline int flash_block_rows(const flash_form *f) { return 16 * f->tiles * f->warps; }
/* A module with one entry, "flash". */
void flash_text(strbuf *out, const flash_form *f);
#endif
