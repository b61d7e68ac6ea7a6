/* graph_cache.h - whole graphs in the disk cache: what the autograd stage, fusion and the emitter made of a captured graph, so
 * that another process that captures the same graph goes on from there. The key is the graph's text with its constants,
 * which inputs need gradients, options, processor and build. */
#ifndef TAPER_RUN_GCACHE_H
#define TAPER_RUN_GCACHE_H
#include "compile/backend.h"
#include "target/disk.h"
#include "compile/options.h"

typedef struct gcache {
    bool on;
    char *id, *config, *what; /* owned */
    char *bw;                 /* the backward graph as stored, read when it is needed; owned */
    size_t nbw;
    bool has_bw;
} gcache;

/* Looks whether this graph may come from disk; says why not where somebody listens. Zeroed before. */
void gcache_open(gcache *x, tp_comp *c, const ir_graph *g, const bool *needs, bool grad, uint32_t flags);
void gcache_free(gcache *x);
void gcache_off(gcache *x, const char *why); /* nothing of it is stored */
/* Both parts at once: true, or false where it must be compiled. */
bool gcache_forward(gcache *x, tp_comp *c, const ir_graph *g, aot_unit **u, run_program **fw);
/* False with c->err only where TAPER_CHECK_CACHE makes what was stored run instead, and it does not read back. */
bool gcache_keep_forward(gcache *x, tp_comp *c, const ir_graph *g, aot_unit **u, run_program **fw);
/* The compiled backward; NULL where it must be compiled from u->bw, which is then there. NULL and c->err: neither. */
run_program *gcache_backward(gcache *x, tp_comp *c, const ir_graph *g, aot_unit *u);
bool gcache_keep_backward(gcache *x, tp_comp *c, const ir_graph *g, aot_unit *u, run_program **bw);
#endif
