/* attempt.h - what the files that capture a region share: breaks, logs and traces of a capture. */
#ifndef TAPER_CAPTURE_ATTEMPT_H
#define TAPER_CAPTURE_ATTEMPT_H
#include "capture/capture.h"

enum { EMPTY_CALLS = 64 }; /* so often something runs natively before it is looked at again */

typedef struct why_broke {
    bool set, quiet, error, inlined;
    break_id id;
    char reason[600];
    arena mem;
    const ir_loc *at, *named; /* all frames; the one to name, or NULL */
    char *stack;              /* frames as Python prints them, innermost last; NULL until somebody asks */
    char *last;               /* the instructions traced before it, when asked to be verbose */
} why_broke;
void region_name(const region *r, char *buf, size_t n);
void break_note(why_broke *w, trace *t);
PyObject *break_raise(why_broke *w); /* NULL */
void break_log(region *r, const cap_cfg *cfg, why_broke *w);
void break_log_reset(void); /* every break is logged in full again */

/* locations while a trace runs, as callbacks of the recorder and of the symbols */
const ir_loc *location_now(void *data, ir_graph *g);
const ir_loc *
location_outside(arena *a); /* the innermost line that runs now and is no line of the library, or NULL */
void location_print(void *data, strbuf *out);

void capture_log_graph(entry *e, ir_graph *g);
void capture_log_sizes(const ir_graph *g, strbuf *sizes);
void capture_log_entry(entry *e, bool still, PyObject *const *in);
void capture_log_guards(entry *e, double us);
bool capture_graph_stays(const ir_graph *g); /* what a log has of it need not be copied */
bool guard_latency_wanted(void);
double guard_latency(entry *e, frame *f); /* microseconds of one check */
void capture_trace_start(const region *r);
void capture_trace_source(const cap_code *cc); /* the lines of a function that is traced, once a trace file */
void capture_trace_error(const region *r, bool started, const char *file, int line);
void capture_raise_internal(void);
#endif
