/* rowstat.h - sums over rows of floats as normalisation needs them, vectorised, kept in double; and the rows made of
 * them. Once per instruction set (simd/rowstat.c). */
#ifndef TAPER_ROWSTAT_H
#define TAPER_ROWSTAT_H
#include "ops/pw.h"

ISA_DECL(double, rs_sum, (int64_t n, const float *x));
ISA_DECL(double, rs_square, (int64_t n, const float *x, double m)); /* of x - m */
ISA_DECL(void, rs_dots, (int64_t n, const float *g, const float *x, double m, double *s, double *p));
/* s += g, p += g (x - m) */
ISA_DECL(void, rs_wdots,
         (int64_t n, const float *g, const float *w, const float *x, double m, double *s, double *p));
/* the same with g w; w may be NULL */
ISA_DECL(void, rs_scale, (int64_t n, const float *x, float a, float b, float *y)); /* a x + b */
ISA_DECL(void, rs_affine,
         (int64_t n, const float *x, float m, float a, const float *w, const float *b, float *y));
/* (x - m) a w + b; w, b may be NULL */
ISA_DECL(void, rs_back,
         (int64_t n, const float *g, const float *x, float m, float a, float b, float c, float *y));
/* a g + b (x - m) + c */
ISA_DECL(void, rs_wback,
         (int64_t n, const float *g, const float *w, const float *x, float m, float a, float b, float c,
          float *y)); /* a g w + b (x - m) + c */
ISA_DECL(void, rs_cols,
         (int64_t n, const float *g, const float *x, float m, float s, double *dw, double *db));
/* db += g, dw += g (x - m) s */
/* Largest of kh x kw elements for n windows in a row, `step` apart; the first wins, a NaN always. x: the first window's
 * first element, number `at` of its plane; its rows are dh, its columns dw elements apart. */
ISA_DECL(void, rs_max_row,
         (int64_t n, int64_t kh, int64_t kw, const float *x, int64_t at, int64_t dh, int64_t dw, int64_t step,
          float *y, int64_t *ix));
#endif
