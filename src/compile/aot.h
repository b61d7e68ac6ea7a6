/* aot.h - how a compiler of pure graphs becomes a backend that also trains. */
#ifndef TAPER_BACKEND_AOT_H
#define TAPER_BACKEND_AOT_H
#include "aot/aot.h"
#include "compile/backend.h"

typedef struct aot_inner {
    /* Compiles one pure graph (forward, backward or inference); g stays the caller's. NULL with c->err. */
    run_program *(*compile)(const struct aot_inner *in, tp_comp *c, const ir_graph *g);
    uint32_t flags; /* AOT_* */
    void *data;
    const aot_cut *cut;                       /* NULL: the partition that the flags name */
    void (*free)(const struct aot_inner *in); /* with the last program that uses it; NULL: it is for ever */
    bool on_disk; /* its programs can be kept in the disk cache (compile/cache/graph_cache.h) */
} aot_inner;

/* Stands around every compile of a pure graph while somebody debugs; what it returns runs instead. NULL: nobody. */
typedef run_program *aot_wrap_fn(const backend *b, const aot_inner *in, tp_comp *c, const ir_graph *g,
                                 const char *what);
extern aot_wrap_fn *aot_wrap;

/* inner lives as long as the process or has a free, which is called also when this fails. */
run_program *aot_backend_compile(const backend *b, tp_comp *c, const ir_graph *g, const aot_inner *inner);
#endif
