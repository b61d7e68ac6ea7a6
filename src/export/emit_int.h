/* emit_int.h - private to emit.c and emit_lib.c: what both know of a graph that is being written as C. */
#ifndef TAPER_RUN_EMIT_INT_H
#define TAPER_RUN_EMIT_INT_H
#include "aot/aot.h"
#include "target/c/c.h"
#include "loop/loop.h"
#include "export/emit.h"
#include "sym/env.h"

typedef struct emit {
    tp_comp *c;
    const char *name;
    bool blas;
    bool draws; /* the function takes a generator */
    aot_unit *u;
    loop_plan *p;
    gen_c_unit unit;
    strbuf data, body, proto; /* weights; statements; "const float *x, float *out0" */
    map kernels;              /* structure -> name */
    map helpers;              /* helper functions asked for */
    int *region;              /* by slot: part of the workspace it lies in; -1: elsewhere */
    VEC(symint) size;         /* bytes of each region */
    int *direct;              /* by slot: + 1 of the result whose memory it is */
    arena mem;
} emit;

/* emit.c */
bool emit_cannot(emit *e, const ir_node *n, const char *why);
bool emit_contiguous(const tp_tensor *t);
void emit_num(strbuf *b, symint v);                           /* a number, or an expression over the sizes */
void emit_list(strbuf *b, const symint *v, int n, bool more); /* "a, b, c", and ", " where more follow */
bool emit_slot(emit *e, strbuf *b, int slot);                 /* a pointer */
bool emit_pointer(emit *e, strbuf *b, const ir_node *n);
/* Loops over all elements of a tensor that `at` points to, and the beginning of a block in which `v` is one of them. */
void emit_each(strbuf *b, const tp_tensor *x, const char *type, const char *at);
/* The slot of result `which` of a call with several, or -1 where nobody asks for it. */
int emit_item(emit *e, int of, int64_t which);

/* emit_lib.c: the name of a helper for this type, its text written on first use */
const char *emit_helper(emit *e, const char *name, dtype dt, dtype index);
bool emit_library(emit *e, const loop_step *s,
                  bool *known); /* known false: no C for it, nothing was written */
#endif
