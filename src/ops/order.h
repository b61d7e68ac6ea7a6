/* order.h - sorting: every element type maps to an unsigned key in the same order (NaN last, -0 equal to 0).
 */
#ifndef TAPER_ORDER_H
#define TAPER_ORDER_H
#include "ops/red.h"

typedef struct keyed {
    uint64_t k;
    int64_t i; /* position in the line */
} keyed;

int key_bits(dtype dt); /* how many low bits of a key are used */
void keys_load(dtype dt, int64_t n, const char *p, int64_t step, keyed *o); /* o[i] = { key, i } */
uint64_t key_nan(dtype dt);                                                 /* what every NaN maps to */
void keys_flip(int64_t n, keyed *o, int bits);                              /* reverses the order */
void keys_sort(int64_t n, keyed *o, keyed *spare, int bits);                /* stable; spare: n more */
/* Stable sort of a line in words: position i of the order is word i's low `place` bits. o: room for 2 n words. NULL when
 * keys and positions do not fit words together. */
const uint64_t *words_sort(dtype dt, int64_t n, const char *p, int64_t step, bool flip, uint64_t *o,
                           int *place);
void keys_select(int64_t n, keyed *o,
                 int64_t k); /* o[k] is as if sorted by (key, position), smaller before */
/* The k-th by (key, position), by counting digits; o is left in disorder. */
keyed keys_nth(int64_t n, keyed *o, int64_t k, int bits);
#endif
