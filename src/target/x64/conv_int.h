/* conv_int.h - shared by target/x64/conv*.c only.
 * A correlation tile: for rows r (places of the output, or window elements) and vectors of channels
 *     c[r][lane] (+)= sum over k of a[disp[r] + off[k]] * b[k][lane]
 * The elements of a are broadcast, the rows of b lie b_row bytes apart. */
#ifndef TAPER_GEN_CORR_INT_H
#define TAPER_GEN_CORR_INT_H
#include "target/x64/gemm_int.h"
#include "ops/conv.h"

enum { CORR_ROWS = 28 };
typedef struct corr_tile {
    uint8_t isa, wide; /* gen_isa; f64 */
    uint8_t mr, nv;
    uint8_t add; /* c is added to */
    uint8_t pad[3];
    int32_t b_row; /* bytes */
    int32_t disp[CORR_ROWS];
} corr_tile;

/* off: bytes, k of them; c_row in bytes. */
typedef void (*corr_micro)(const void *a, const void *b, void *c, int64_t k, const int64_t *off,
                           int64_t c_row);
corr_micro corr_tile_get(const corr_tile *t, tp_err *err); /* from a process-wide cache */
/* The other way round: rows are channels of the result, lanes its places. Vector v lies v % across vectors into line v / across.
 *     c[r][v][lane] = a[-1][r] + sum over k of a[k][r] * b[off[k] + v + lane] */
typedef struct corr_px {
    uint8_t isa, wide;
    uint8_t mr, nv, across;
    uint8_t last; /* lanes of the last vector of a line, 0: all */
    uint8_t pad[2];
    int32_t a_row, b_line,
        c_line; /* bytes between k of the weights, lines of the image, lines of the result */
} corr_px;
corr_micro corr_px_get(const corr_px *t, tp_err *err); /* the same arguments; c_row: between channels */
int corr_px_rows(gen_isa isa, int nv, bool last);      /* most rows of a tile of nv vectors */
int corr_max_rows(gen_isa isa, int nv);                /* most rows of a tile of nv vectors */
/* An image with zeros around it. Channels lie plane by plane, or where they are given side by side, in blocks of a cache line
 * of them: neighbouring places are then not a power of two apart, which would fill a few sets of the first cache alone. */
typedef struct corr_image {
    int64_t in[3];               /* sizes of the image as given */
    int64_t lo[3];               /* zeros before it */
    int64_t size[3];             /* with zeros; may be less than the image where nobody looks at its end */
    int64_t chans, side, blocks; /* of all groups; side by side in a block (1: planes); blocks */
    int64_t pitch, layer, plane; /* elements between rows, layers, blocks */
    bool copy;                   /* else the image is read where it is */
    bool last;                   /* given with channels side by side */
} corr_image;

/* From in, lo and size, for the image that g reads: its input, or where grad its output. */
void corr_image_init(corr_image *p, const conv_geom *g, bool grad, int64_t es);
static inline int64_t corr_channel(const corr_image *p, int64_t c) /* where it begins */
{
    return c / p->side * p->plane + c % p->side;
}
/* images one after the other: in the calling thread's scratch 0, or in place. NULL: out of memory. */
const char *corr_pad(const corr_image *p, const char *from, int64_t images, int64_t es);
char *corr_scratch(int which,
                   int64_t bytes); /* of the calling thread: 0 images, 1 weights, 2 transposed gradients */
bool corr_worth(gen_isa isa, dtype dt, const conv_geom *g, int64_t lanes_of, int64_t reads);
static inline int64_t corr_volume(const int64_t v[3]) { return v[0] * v[1] * v[2]; }
#endif
