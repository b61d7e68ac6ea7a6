/* artefacts.h - TAPER_COMPILE_DEBUG=1: one folder for each graph that is compiled, with what the stages made of it. */
#ifndef TAPER_ARTEFACTS_H
#define TAPER_ARTEFACTS_H
#include "debug/trial.h"

typedef struct artefacts artefacts;
/* NULL when nobody asked. What the compile of this thread says until artefacts_end goes into the folder. inner: the graph
 * is one that the autograd stage made. */
artefacts *artefacts_begin(const char *backend, const char *name, bool inner, const ir_graph *g,
                           const tp_val *in, int nin);
void artefacts_end(artefacts *a); /* NULL allowed */
bool artefacts_wanted(void);
void artefacts_init(void); /* from here on what capture says is kept, too */
#endif
