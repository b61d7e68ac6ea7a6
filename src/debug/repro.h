/* repro.h - a graph, real inputs, a backend: all that a failure needs to show itself again. */
#ifndef TAPER_REPRO_H
#define TAPER_REPRO_H
#include "debug/accuracy.h"

typedef struct repro {
    ir_graph *g;
    tp_val *in;          /* owned, one per placeholder; those that shared memory share it here too */
    uint8_t *needs_grad; /* one per placeholder: 0 no, 1 it is a leaf, 2 it was computed */
    int nin;
    char *backend;
    bool inner;            /* g is a pure forward or backward graph: the autograd stage is behind it */
    bool accuracy;         /* compare with eager and float64, too */
    bool forward_only;     /* no backward pass */
    bool no_fp64;          /* no float64 reference */
    uint64_t seed, offset; /* of the random numbers when it ran */
    char *setup;           /* Python lines that make the backend known, for scripts alone, or NULL */
    char *options;         /* of its compile, "name=value ...", or NULL: the defaults */
    char *state;           /* JSON object: facts about the process that saved it, or NULL */
    acc_opts acc;
} repro;
repro *repro_new(const ir_graph *g, const tp_val *in, int nin, const char *backend); /* copies everything */
repro *repro_copy(const repro *r);
void repro_free(repro *r);
int repro_ops(const repro *r);            /* operator nodes */
bool repro_has_gradients(const repro *r); /* a run of it goes backward, too */

/* Copies of inputs with the same strides, offsets and sharing, on memory of their own. dt: floats become that
 * (DT_none: stay; sharing is lost where they change). Released by inputs_free. NULL with err. */
tp_val *inputs_copy(const tp_val *in, int n, dtype dt, tp_err *err);
void inputs_free(tp_val *in, int n);

/* The graph again with other input types: every node is inferred anew. NULL with err when a shape rule refuses.
 * type: one per placeholder (NULL where it is a number). change (may be NULL) may alter a call's arguments first. */
typedef bool (*retype_fn)(void *data, const ir_node *n, tp_val *arg);
ir_graph *repro_retype(const ir_graph *g, tp_tensor *const *type, retype_fn change, void *data, tp_err *err);
#endif
