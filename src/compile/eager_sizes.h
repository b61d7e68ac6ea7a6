/* eager_sizes.h - calls of an operator that differ in sizes alone share a program.
 * Which numbers of a call change is learned from call to call: the first sizes are compiled as constants, and what differs the next
 * time becomes a symbol. Knows numbers and their names in a graph; may not know operators or programs. */
#ifndef TAPER_COMPILE_EAGER_SIZES_H
#define TAPER_COMPILE_EAGER_SIZES_H
#include "ops/val.h"
#include "sym/env.h"

enum { SIZES_MOST = 48 };

/* The sizes of the tensors of a call, in order; of a call without tensors its integers. */
typedef struct sizes {
    int n; /* -1: too many */
    int64_t at[SIZES_MOST];
} sizes;
void sizes_of(sizes *s, tp_tensor *const *t, int nt, const tp_val *arg, int narg);

/* What was seen of one operator with tensors of these types and arguments. */
typedef struct sizes_seen {
    sizes first;
    uint64_t move; /* numbers that differed in a later call */
} sizes_seen;
/* Notes the differences to the first call; false where there is none yet, or nothing can be learned. */
bool sizes_learn(sizes_seen *seen, const sizes *s);

/* Symbols in the place of numbers. */
typedef struct sizes_names {
    sym_env *env;
    symint name[SIZES_MOST]; /* numbers where nothing moves */
    sym_prog *holds;         /* what was assumed of the symbols; NULL: nothing */
    int nholds, nsym;
} sizes_names;
void sizes_name(sizes_names *x, const sizes *s, uint64_t move);
/* After compiling: keeps what was assumed. False: the program is good for these sizes alone. */
bool sizes_named(sizes_names *x);
bool sizes_hold(const sizes_names *x, const sizes *s);
void sizes_names_free(sizes_names *x);

/* What decides between programs beside the numbers that move: which of them are equal, which are 0 or 1, and how strides follow. */
void sizes_key(strbuf *key, const sizes *s, uint64_t move, tp_tensor *const *t, int nt);
/* The type of tensor number k with names in the place of sizes, and strides that follow from them. */
tp_tensor *sizes_type(const sizes_names *x, const sizes *s, tp_tensor *const *t, int k);
#endif
