/* stages.h - what each stage makes of a graph, as text. Nothing is run, no code is loaded and no cache is read, so the text
 * depends on the graph and the options alone, not on the machine. */
#ifndef TAPER_COMPILE_STAGES_H
#define TAPER_COMPILE_STAGES_H
#include "ir/decide.h"
#include "target/target.h"

typedef enum {
#define STAGE(name, text, what) STAGE_##name,
#include "compile/stages.def"
    STAGE_COUNT
} stage_id;

typedef struct stage_options {
    const char
        *grad; /* "all", "none" or names of inputs with commas between them; NULL: as the stage needs it */
    bool backward;        /* plan and code: of the backward graph */
    bool why;             /* schedule: also what was fused and what not, with the reasons */
    const target *target; /* plan and code: for it */
} stage_options;

/* Appends the text of `stage`; false with c->err. */
bool stage_text(tp_comp *c, const ir_graph *g, stage_id stage, const stage_options *o, strbuf *out);
#endif
