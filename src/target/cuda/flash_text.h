/* flash_text.h - PTX of attention in one kernel: products by tensor cores, scores in registers.
 * Knows PTX and nothing of tensors or launches.
 *
 * A block takes some rows of one matrix of the batch and streams all that they meet through shared memory, a tile at a time:
 *   forward   rows of q; k and v are streamed. o = softmax(scale q k^T) v, with the maximum and the sum of a row as they are so far.
 *   rows      rows of q and of the gradient g; k and v are streamed twice: first delta = sum of p (g v^T), then the gradient of q.
 *   columns   rows of k and v; q and g are streamed, and the scores are those of the transposed matrix: gradients of k and v. */
#ifndef TAPER_TARGET_CUDA_FLASH_TEXT_H
#define TAPER_TARGET_CUDA_FLASH_TEXT_H
#include "base/strbuf.h"
#include "tensor/dtype.h"

typedef enum { FLASH_forward, FLASH_rows, FLASH_columns, FLASH_KINDS } flash_kind;
enum { FLASH_LEAST = 16, FLASH_MOST = 128 }; /* head sizes, multiples of 16 */

typedef struct flash_form {
    flash_kind kind;
    dtype dt;  /* f16 or bf16 */
    int d;     /* elements of a head */
    int warps; /* of a block */
    int tiles; /* of 16 rows that each warp has */
    int cols;  /* rows of a streamed tile: columns of the scores */
} flash_form;

/* Parameters, each of 8 bytes. x: o, or the gradient of q or k; y: the gradient of v. Strides are in bytes: between matrices of the
 * batch, and between rows. */
enum {
    FLASH_q,
    FLASH_k,
    FLASH_v,
    FLASH_g,
    FLASH_x,
    FLASH_y,
    FLASH_batch = 6, /* of q ... y */
    FLASH_row = 12,  /* of q ... y */
    FLASH_top = 18,  /* maximum of each row of the scaled scores, f32; forward: written unless 0 */
    FLASH_part,      /* 1 / sum of exp(score - top); the same */
    FLASH_stats,     /* two f32 a row that the kernel of rows writes for that of columns */
    FLASH_blocks,    /* of a matrix */
    FLASH_m,         /* rows of q */
    FLASH_n,         /* rows of k */
    FLASH_reach,     /* row r meets the first r + reach rows of k; FLASH_ALL: all of them */
    FLASH_scale,     /* f32, positive */
    FLASH_PARAMS
};
enum { FLASH_ALL = 1 << 30 };

/* small: blocks of 64 rows, as larger ones would be too few; else 64 or 128. */
flash_form flash_form_of(flash_kind kind, dtype dt, int d, bool small);
static inline int flash_block_rows(const flash_form *f) { return 16 * f->tiles * f->warps; }
/* A module with one entry, "flash". */
void flash_text(strbuf *out, const flash_form *f);
#endif
