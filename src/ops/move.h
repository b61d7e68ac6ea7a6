/* move.h - moving elements: runs forwards and backwards, and by places an index names. */
#ifndef TAPER_MOVE_H
#define TAPER_MOVE_H
#include "ops/pw.h"

/* bytes from s to d, which do not overlap. Long unaligned runs, where memcpy may be slow. */
typedef void move_run_fn(int64_t bytes, void *d, const void *s);
/* n elements of es bytes in reverse order */
typedef void move_back_fn(int64_t n, void *d, const void *s, size_t es);
/* at[i] = step * index[i] + i * along for the n int64 `st` bytes apart; false when one is not in [0, size), or, with
 * wrap, not in [-size, size). */
typedef bool move_places_fn(int64_t n, const char *index, int64_t st, int64_t size, bool wrap, int64_t step,
                            int64_t along, int64_t *at);
/* o[i] (os bytes apart) = base + at[i] */
typedef void move_fetch_fn(int64_t n, char *o, int64_t os, const char *base, const int64_t *at, size_t es);
typedef struct move_row {
    move_run_fn *run;
    move_back_fn *back;
    move_places_fn *places;
    move_fetch_fn *fetch;
    /* each of n elements `times` times */
    void (*spread)(int64_t n, int64_t times, void *d, const void *s, size_t es);
    /* o[i] = a + (at + i) step, n < 2^31 */
    void (*ramp_int)(int64_t n, int64_t *o, int64_t a, int64_t step, int64_t at);
    void (*ramp_float)(int64_t n, double *o, double a, double step, int64_t at);
    /* is every one of n numbers in [lo, lo + width)? */
    bool (*inside64)(int64_t n, const int64_t *p, int64_t lo, uint64_t width);
    bool (*inside32)(int64_t n, const int32_t *p, int64_t lo, uint64_t width);
    int64_t (*largest)(int64_t n, const int64_t *p); /* -1 of none, -2 when one is negative */
} move_row;
ISA_DECL(const move_row *, move_loops, (void));
static inline const move_row *moves(void) { return ISA_PICK(move_loops)(); }
#endif
