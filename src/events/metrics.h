/* metrics.h - the numbers of each compile: who was compiled, how long each stage took, what came out of it.
 * Stages add to the record of the compile their thread is in and never ask for one. When the compile ends the record
 * becomes the trace event compilation_metrics (bwd_compilation_metrics for a backward graph) and is kept, so that
 * taper.compiler.metrics() and the report tell the same. */
#ifndef TAPER_METRICS_H
#define TAPER_METRICS_H
#include "events/events.h"

typedef enum {
#define STAGE(id, name, field) EVS_##id,
#include "events/metrics.def"
    EVS_COUNT
} ev_stage;
typedef enum {
#define PART(id, field) EVP_##id,
#include "events/metrics.def"
    EVP_COUNT
} ev_part;
typedef enum {
#define COUNT_OF(id, field) EVN_##id,
#include "events/metrics.def"
    EVN_COUNT
} ev_number;
typedef enum {
#define TEXT_OF(id, field) EVT_##id,
#include "events/metrics.def"
    EVT_COUNT
} ev_text_field;
enum { EV_METRICS_KEPT = 1024 }; /* newest records in memory */

/* Opens a record on this thread, inside another one or not. The strings are copied. */
void ev_metrics_begin(const ev_cid *cid, bool backward, const char *name, const char *file, int line);
/* Closes the innermost record: written and kept, or (drop) forgotten as if it had never been. */
void ev_metrics_end(bool drop);

void ev_add(ev_number n, int64_t more); /* no record open: nothing happens */
void ev_metrics_part(ev_part p, int64_t ns);
void ev_metrics_text(ev_text_field f, const char *s);
void ev_metrics_latency(double us);              /* one check of the guards */
void ev_metrics_stack(const ev_frame *f, int n); /* how the program came here, outermost first */
void ev_metrics_again(void);                     /* all the time so far was for an attempt that is given up */
void ev_metrics_custom(const char *op,
                       bool compliant); /* an operator of the user's in the graph, with a shape rule or not */
void ev_metrics_environment(
    const char *members); /* of all records from now on: JSON, `"key": value, ...`; NULL: none */
void ev_metrics_restart(const char *reason);
/* Both are remembered for the next record that this thread opens. contexts: a JSON list of what the program says about
 * where it is, or NULL. */
void ev_metrics_recompile(const char *reason, const char *contexts);
void ev_metrics_feature(const char *name, bool used); /* of the compiler, by this compile; name: a literal */
void ev_metrics_provenance(const char *json); /* places in the program that a program's kernels come from */
void ev_metrics_fail(const char *type, const char *reason, const char *file, int line);
void ev_metrics_fail_line(const char *text); /* of the traceback */

/* Time spent in a stage, without that of writing the trace, also a phase of the timeline. Spans of one stage do not nest.
 *   ev_span s = ev_span_begin(EVS_aot); ...; ev_span_end(&s); */
typedef struct ev_span {
    ev_stage stage;
    int64_t t0, logging; /* logging: what the trace had cost this thread by then */
} ev_span;
ev_span ev_span_begin(ev_stage s);
void ev_span_end(ev_span *s);

/* Kept records as JSON objects, oldest first; NULL behind the last. Borrowed until the next record ends. */
const char *ev_metrics_at(int i);
void ev_metrics_clear(void);
#endif
