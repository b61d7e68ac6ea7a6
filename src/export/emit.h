/* emit.h - a graph as C that needs nothing of Taper: one function, its weights inside, a header to call it. */
#ifndef TAPER_RUN_EMIT_H
#define TAPER_RUN_EMIT_H
#include "ir/decide.h"

/* g: sizes that are symbols become arguments. name: a C identifier. blas: products by cblas_sgemm and cblas_dgemm. False with c->err, which
 * names the operator that has no C. */
bool emit_c(tp_comp *c, const ir_graph *g, const char *name, bool blas, strbuf *text, strbuf *header);
#endif
