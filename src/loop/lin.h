/* lin.h - index expressions: linear in the loop variables of a group, with symbolic coefficients.
 * What is not linear (a quotient that does not come out even, an index read from memory) is an opaque value. */
#ifndef TAPER_LOOP_LIN_H
#define TAPER_LOOP_LIN_H
#include "vir/vir.h"
#include "sym/sym.h"

enum { LIN_MAX = 24 };
typedef struct lin {
    int n;
    bool opaque; /* ref holds the value (0 while nothing is emitted); n and k do not count */
    vir_ref ref;
    bool rest;            /* of an opaque value: the remainder, not the quotient, of */
    symint by;            /* a division by this */
    const struct lin *of; /* of this; NULL: it is something else */
    symint k;
    struct {
        int var;
        symint c;
    } t[LIN_MAX];
} lin;

static inline lin lin_const(symint k) { return (lin){ .k = k }; }
static inline lin lin_var(int v) { return (lin){ .n = 1, .t = { { v, 1 } } }; }
/* Few terms are in use: these touch no others. */
static inline void lin_set(lin *to, const lin *from)
{
    to->n = from->n;
    to->opaque = from->opaque;
    to->ref = from->ref;
    to->rest = from->rest;
    to->by = from->by;
    to->of = from->of;
    to->k = from->k;
    for (int i = 0; i < from->n; i++)
        to->t[i] = from->t[i];
}
static inline void lin_set_const(lin *to, symint k)
{
    to->n = 0;
    to->opaque = false;
    to->ref = 0;
    to->rest = false;
    to->by = 0;
    to->of = NULL;
    to->k = k;
}
static inline bool lin_is_const(const lin *a) { return !a->opaque && a->n == 0; }
bool lin_equal(const lin *a, const lin *b);
/* sizes: of the variables, for range arguments. The results are exact or *ok becomes false. */
lin lin_add(lin a, const lin *b, bool *ok);
lin lin_scale(lin a, symint c);
bool lin_acc(lin *a, const lin *b,
             symint c); /* a += c b; false: one is opaque, or too many terms; a is as it was */
lin lin_div(const lin *a, symint by, const symint *sizes, bool *ok);
lin lin_mod(const lin *a, symint by, const symint *sizes, bool *ok);
#endif
