/* conv_depth_loops.h - what the loops of simd/conv_depth.c are told; for those and ops/conv_depth.c.
 * Along an axis the results r, r + res, r + 2 res, ... take the same elements of the window: number j takes element k[t] from place
 * j * step + q[t] of the source. Forward has one such set and steps by the stride; the gradient of the input steps by one
 * and has as many sets as the stride. */
#ifndef TAPER_CONV_DEPTH_LOOPS_H
#define TAPER_CONV_DEPTH_LOOPS_H
#include "ops/pw.h"

enum { DEPTH_WINDOW = 16, DEPTH_STRIDE = 4, DEPTH_TAPS = DEPTH_WINDOW * DEPTH_WINDOW, DEPTH_LANES = 16 };
typedef struct depth_set {
    int n;
    int64_t count; /* results */
    int k[DEPTH_WINDOW];
    int64_t q[DEPTH_WINDOW];
} depth_set;
typedef struct depth_axis {
    int64_t from, to;    /* places of the source, of the result */
    int64_t step, res;   /* res: also how many sets */
    int64_t least, most; /* of all q */
    depth_set set[DEPTH_STRIDE];
} depth_axis;
typedef struct depth_run {
    depth_axis y, x;
    int64_t c, K, across; /* channels; elements of a window, of a row of it */
    const float *from, *dy, *w, *bias;
    /* results; of the gradient of the weight: sums over `per` images, [sum][channel][element], or [sum][element][channel] */
    float *to;
    int64_t n, per; /* images; of results side by side: tasks an image */
    /* planes: rows of results at a time; a row of the source becomes as many rows of `pitch` as the axis has steps */
    int64_t band, pitch;
} depth_run;

/* Tasks: planes (image times channel), or channels (sum times channel); where channels lie side by side, rows of results, or blocks
 * of DEPTH_LANES channels (sum times block). */
ISA_DECL(void, depth_planes, (void *run, int64_t lo, int64_t hi));
ISA_DECL(void, depth_plane_sums, (void *run, int64_t lo, int64_t hi));
ISA_DECL(void, depth_rows, (void *run, int64_t lo, int64_t hi));
ISA_DECL(void, depth_row_sums, (void *run, int64_t lo, int64_t hi));
#endif
