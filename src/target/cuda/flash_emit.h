/* flash_emit.h - shared by the files that write the text of attention's kernels. Private to them.
 *
 * Registers have names: a and c are fragments of the block's own rows, s and e scores, x and y sums, top, sum and base numbers of rows;
 * r, q and f are scratch of 32 bits, of 64 and floats. */
#ifndef TAPER_TARGET_CUDA_FLASH_EMIT_H
#define TAPER_TARGET_CUDA_FLASH_EMIT_H
#include "target/cuda/ptx_line.h"
#include "target/cuda/flash_text.h"

#define LOG2E "0f3FB8AA3B"
#define NINF  "0fFF800000"

typedef struct text {
    strbuf *b;
    flash_form f;
    const char *half; /* "bf16" */
    int nd, nt;       /* tiles of 8 columns: of a head, of the scores */
    int pitch, tile;  /* bytes of a row in shared memory, of a streamed tile */
    int nb;           /* fragments read so far: each has registers of its own */
    int loop;         /* number of the loop, for labels */
    bool exact;       /* scores are scaled before the mask is added: numbers as large as a float may be */
} text;

/* Element e of the lane in row r of the scores, of 2 * nt. */
static inline int score(const text *t, int r, int e)
{
    return (r / 2 * t->nt + e / 2) * 4 + r % 2 * 2 + e % 2;
}
static inline int column(int e) { return e / 2 * 8 + e % 2; } /* from the lane's first */

/* flash_text.c */
void flash_row_address(text *t, const char *reg, int which, const char *row);
void flash_matrix_number(text *t, const char *reg);
void flash_ld_int(text *t, const char *reg, int param);
void flash_find_columns(text *t);
int flash_chunks_of(const text *t);
int flash_rows_at_once(const text *t);
void flash_pack(text *t, const char *to, const char *from);
void flash_bounds(text *t);
void flash_probabilities(text *t);

/* flash_extra.c: masks and dropout, where the form has them */
void flash_bias_start(text *t);
void flash_bias_tile(text *t);
void flash_drop_start(text *t);
void flash_drop_lines(text *t);
void flash_draw_tile(text *t);
void flash_drop(text *t, const char *reg, int s, int r, int e, bool more);

/* flash_wide.c: products of a warpgroup; they have happened after the wait */
void flash_wide_head(text *t);
int flash_wide_row(void); /* bytes from one row of a room to the next */
void flash_wide_place(text *t);
void flash_wide_scores(text *t, const char *acc, const char *own, const char *room, int further);
void flash_wide_weigh(text *t, const char *acc, const char *probs, const char *room, int further);
void flash_wide_wait(text *t);
void flash_wide_forward(text *t);
#endif
